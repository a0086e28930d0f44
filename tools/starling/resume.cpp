#include "tools/starling/resume.h"

#include <algorithm>
#include <cstdio>

#include "core/base/environment.h"
#include "core/formats/checkpoint_owner.h"
#include "core/job/words.h"
#include "core/observe/line_format.h"
#include "tools/chaos/command_line.h"

namespace starling::tools {
namespace {

using job_words::number_text;

// Returns the job of a manifest or an owner; its data may lie elsewhere now.
Result<Job> job_of(std::string text, const Job& now) {
  const auto data = text.find("\n[data]");
  const auto begin = data == std::string::npos ? data : text.find("\npath = ", data);
  const std::string here = format_job(now);
  const auto from = here.find("\npath = ", std::min(here.find("\n[data]"), here.size()));
  if (begin != std::string::npos && from != std::string::npos)
    text.replace(begin, text.find('\n', begin + 1) - begin,
                 here.substr(from, here.find('\n', from + 1) - from));
  return parse_job(text, "/");
}

// Returns "[job].seed is 1 and 2", of the first few keys.
std::string keys_that_differ(const Job& was, const Job& job) {
  constexpr std::size_t kShown = 3;
  const auto differences = state_differences(was, job);
  std::string all;
  for (std::size_t i = 0; i < std::min(kShown, differences.size()); ++i)
    all += (i == 0 ? "" : "; ") + differences[i];
  if (differences.size() > kShown)
    all += "; and " + std::to_string(differences.size() - kShown) + " more";
  return all;
}

// Returns the words that give a run of the job this option. A script that starts its run itself
// (python train.py) has them in its call, as the command line is not seen.
std::string as_option(const std::string& option, const std::string& value) {
  if (!environment().is_set(EnvVar::kAgain)) return option + " " + value;
  return "command=(\"" + option + "\", \"" + value + "\") in starling.train()";
}

std::string more_steps(const Job& job) {
  return as_option("--steps", std::to_string(job.steps));
}

std::string difference(const Manifest& manifest, const Job& job) {
  const auto was = job_of(manifest.job, job);
  const std::string see = "(its manifest.json has the job)";
  if (!was) return "expected one of the same model, optimizer, data and seed " + see;
  std::string all = keys_that_differ(was.value(), job);
  if (all.empty()) return "it is cut into other segments " + see;
  Job same_rate = job;
  same_rate.optimizer.peak_rate = was.value().optimizer.peak_rate;
  if (state_hash(same_rate) == state_hash(was.value()))
    all +=
        "; " + as_option("--peak-rate", number_text(job.optimizer.peak_rate)) + " goes on with it";
  Job same_schedule = job;
  keep_schedules(same_schedule, was.value());
  if (state_hash(same_schedule) == state_hash(was.value()))
    all += "; " + more_steps(job) + " goes on and leaves the schedule as it was";
  return all + " " + see;
}

}  // namespace

void keep_schedules(Job& job, const Job& was) {
  if (job.optimizer.schedule_steps == 0) job.optimizer.schedule_steps = schedule_of(was);
  std::uint64_t& local = job.local.optimizer.schedule_steps;
  if (job.local.on() && local == 0)
    local =
        was.local.optimizer.schedule_steps ? was.local.optimizer.schedule_steps : local_steps(was);
}

// Warns of a changed script. It may have been mended, and its arguments say where to
// write, so it may go on; its first gradient has to be the same (design.md, section 5).
std::string script_remark(const Job& job, const std::vector<Checkpoint>& to_go_on_from) {
  if (to_go_on_from.empty()) return {};
  const Version from = to_go_on_from.back().version;
  const auto manifest = read_manifest(*open_storage(job.checkpoint.dir), from);
  if (!manifest) return {};
  const auto was = job_of(manifest.value().job, job);
  const std::string differences = was ? script_differences(was.value(), job) : "";
  if (differences.empty()) return {};
  return "since the checkpoint of step " + std::to_string(from) + " the script has changed (" +
         differences + "); the steps from there on are those of the script as it is now";
}

std::string rate_note(const Job& job, const std::vector<Checkpoint>& to_go_on_from) {
  if (to_go_on_from.empty()) return {};
  const auto manifest =
      read_manifest(*open_storage(job.checkpoint.dir), to_go_on_from.back().version);
  if (!manifest || manifest.value().checkpoint.rates.empty()) return {};
  const RateChange& last = manifest.value().checkpoint.rates.back();
  const std::string changed =
      number_text(last.peak_rate) + ", as it was changed after step " + std::to_string(last.from);
  if (!to_go_on_from.back().rates.empty())
    return "the peak rate is " + changed + "; starling admin rate gives the run another";
  return "the peak rate is " + number_text(job.optimizer.peak_rate) +
         " from here on, and no longer " + changed;
}

Result<Job> job_to_go_on(Job job, const ResumeOptions& options) {
  if (!job.checkpoint.on()) return job;
  const auto storage = open_storage(job.checkpoint.dir);
  STARLING_TRY(versions, list_checkpoints(*storage));
  for (auto version = versions.rbegin(); version != versions.rend(); ++version) {
    const auto manifest = read_manifest(*storage, *version);
    if (!manifest) continue;  // checkpoints_to_resume() says why
    const auto was = job_of(manifest.value().job, job);
    if (!was) return job;
    if (options.steps) keep_schedules(job, was.value());
    Job same_rate = job;
    same_rate.optimizer.peak_rate = was.value().optimizer.peak_rate;
    // Use the manifest's own hash, so that a job that has gone on so before is accepted, too.
    if (options.peak_rate && state_hash(same_rate) == state_hash(was.value()))
      job.checkpoint.accepts = manifest.value().state_hash;
    return job;
  }
  return job;
}

std::string resume_line(int argc, char** argv) {
  if (environment().is_set(EnvVar::kAgain)) return environment().value(EnvVar::kAgain);
  std::vector<std::string_view> words{argv[0]};
  std::vector<std::string_view> of_script;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      of_script.assign(argv + i, argv + argc);
      break;
    }
    if (word != "--resume") words.push_back(word);
  }
  words.push_back("--resume");
  words.insert(words.end(), of_script.begin(), of_script.end());
  return chaos::CommandLine(words).text();
}

Result<std::vector<Checkpoint>> checkpoints_to_resume(const Job& job, const Layout& layout) {
  if (!job.checkpoint.on())
    return Error(Code::kBadInput,
                 kind_of(job.model).is_script
                     ? "resume needs checkpoint= in starling.train(), the folder to go on from"
                     : "--resume needs a [checkpoint] section in the job file");
  const std::string& dir = job.checkpoint.dir;
  const auto storage = open_storage(dir);
  STARLING_TRY(versions, list_checkpoints(*storage));
  std::vector<Checkpoint> found;
  std::string last;
  for (const Version version : versions) {
    auto manifest = read_manifest(*storage, version);
    if (!manifest) {
      // A store that does not show it says nothing of what it holds: an older one would repeat steps.
      if (!is_damage(manifest.error())) return std::move(manifest).error();
      last = manifest.error().text();
      write_line(LogLevel::kWarn, "starling: ",
                 "checkpoint of step " + std::to_string(version) + " cannot be used: " + last);
      continue;
    }
    const Manifest& m = manifest.value();
    const std::string which = "the checkpoint of step " + std::to_string(version) + " in " + dir;
    if (!may_go_on_from(job, m.state_hash) || m.segments != layout.segments() ||
        m.segment_blocks != layout.segment_blocks()) {
      if (version != versions.back()) continue;  // of the job that this one continued
      return Error(Code::kBadInput, which + " is of another job: " + difference(m, job));
    }
    if (version >= job.steps)
      return Error(
          Code::kBadInput,
          which + " leaves nothing to do, the job has " + std::to_string(job.steps) + " steps; " +
              (kind_of(job.model).is_script ? "command=(\"--steps\", \"..\") in starling.train()"
                                            : "--steps") +
              " says more");
    found.push_back(m.checkpoint);
    // Another peak rate of the job, which --peak-rate alone gives it, takes the place of those before.
    const auto was = job_of(m.job, job);
    if (was && was.value().optimizer.peak_rate != job.optimizer.peak_rate)
      found.back().rates.clear();
  }
  if (found.empty() && !versions.empty())
    return Error(Code::kBadInput, "no checkpoint in " + dir + " can be read: " + last);
  return found;
}

CheckpointClaim::~CheckpointClaim() {
  if (!dir_.empty()) give_up_checkpoints(*open_storage(dir_), run_);
}

CheckpointWriter writer_of(const Job& job, const JobId& run) {
  return {state_hash(job), job.checkpoint.accepts, format_job(job), run};
}

Result<> check_folder(const Job& job) {
  if (!job.checkpoint.on()) return ok();
  const std::string& dir = job.checkpoint.dir;
  const auto storage = open_storage(dir);
  STARLING_TRY(storage->make());
  auto allowed = may_take_checkpoints(*storage, writer_of(job, {}));
  if (allowed) return ok();
  const auto owner = read_checkpoint_owner(*storage);
  if (!owner || !owner.value() || owner.value()->has(state_hash(job))) return allowed;
  const auto was = job_of(owner.value()->job, job);
  return Error(Code::kBadInput, "the checkpoint folder " + dir + " is of another job" +
                                    (was ? ": " + keys_that_differ(was.value(), job) : "") +
                                    " (its owner.json has the job; once that one is over and has "
                                    "no checkpoint there, the file may be removed)");
}

Result<> take_folder(const Job& job, const JobId& run, const std::string& process) {
  STARLING_TRY(check_folder(job));
  if (!job.checkpoint.on()) return ok();
  CheckpointWriter writer = writer_of(job, run);
  writer.process = process;
  return take_checkpoints(*open_storage(job.checkpoint.dir), writer);
}

Result<OpenedCheckpoints> open_checkpoints(const Job& job, const Layout& layout, bool resume) {
  OpenedCheckpoints opened;
  if (!job.checkpoint.on() && !resume) return opened;
  if (resume) {
    STARLING_TRY(found, checkpoints_to_resume(job, layout));
    opened.to_go_on_from = std::move(found);
    opened.remark = script_remark(job, opened.to_go_on_from);
  } else {
    STARLING_TRY(versions, list_checkpoints(*open_storage(job.checkpoint.dir)));
    if (!versions.empty())
      return Error(Code::kBadInput,
                   "checkpoint folder already has one of step " + std::to_string(versions.back()) +
                       ", expected an empty folder, or " +
                       (kind_of(job.model).is_script
                            ? "resume=True in starling.train() (STARLING_RESUME=1, or --resume of "
                              "starling run)"
                            : "--resume") +
                       " to go on from it; " + job.checkpoint.dir);
  }
  STARLING_TRY(check_folder(job));
  return opened;
}

}  // namespace starling::tools
