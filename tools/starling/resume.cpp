#include "tools/starling/resume.h"

#include <cstdio>

namespace starling::tools {

Result<std::vector<Checkpoint>> checkpoints_to_resume(const Job& job, const Layout& layout) {
  if (!job.checkpoint.on())
    return Error(Code::kBadInput, "--resume needs a [checkpoint] section in the job file");
  const std::string& dir = job.checkpoint.dir;
  STARLING_TRY(versions, list_checkpoints(dir));
  std::vector<Checkpoint> found;
  std::string last;
  for (const Version version : versions) {
    auto manifest = read_manifest(dir, version);
    if (!manifest) {
      last = manifest.error().text();
      std::fprintf(stderr, "starling: checkpoint of step %llu cannot be used: %s\n",
                   static_cast<unsigned long long>(version), last.c_str());
      continue;
    }
    const Manifest& m = manifest.value();
    const std::string which = "the checkpoint of step " + std::to_string(version) + " in " + dir;
    if (m.state_hash != state_hash(job) || m.segments != layout.segments() ||
        m.segment_blocks != layout.segment_blocks())
      return Error(Code::kBadInput, which +
                                        " is of another job, expected one of the same model, "
                                        "optimizer, data and seed (its manifest.json has the job)");
    if (version >= job.steps)
      return Error(Code::kBadInput, which + " leaves nothing to do, the job has " +
                                        std::to_string(job.steps) + " steps");
    found.push_back(m.checkpoint);
  }
  if (found.empty() && !versions.empty())
    return Error(Code::kBadInput, "no checkpoint in " + dir + " can be read: " + last);
  return found;
}

Result<std::vector<Checkpoint>> open_checkpoints(const Job& job, const Layout& layout,
                                                 bool resume) {
  if (!job.checkpoint.on() && !resume) return std::vector<Checkpoint>();
  if (job.checkpoint.on()) {
    STARLING_TRY(open_checkpoint_dir(job.checkpoint.dir));
  }
  if (resume) return checkpoints_to_resume(job, layout);
  STARLING_TRY(versions, list_checkpoints(job.checkpoint.dir));
  if (!versions.empty())
    return Error(Code::kBadInput, "checkpoint folder already has one of step " +
                                      std::to_string(versions.back()) +
                                      ", expected an empty folder, or --resume to go on from it; " +
                                      job.checkpoint.dir);
  return std::vector<Checkpoint>();
}

}  // namespace starling::tools
