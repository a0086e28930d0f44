#include "actors/coordinator/other_job.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "core/base/text.h"
#include "core/formats/job_file.h"
#include "core/wire/codec.h"

namespace starling::actors {
namespace {

namespace fs = std::filesystem;

std::string job_file(const std::string& state_dir) {
  return (fs::path(state_dir) / "job.toml").string();
}

}  // namespace

std::optional<JobStarted> job_of(const elastic::RaftSnapshot& snapshot,
                                 const std::vector<RaftEntry>& log) {
  if (snapshot.data) {
    auto state = decode_group(*snapshot.data);
    return state ? state.value().job : std::nullopt;
  }
  for (const RaftEntry& raft_entry : log) {
    if (raft_entry.data.empty()) continue;  // begins a term
    auto entry = decode_entry(raft_entry.data);
    if (!entry) return std::nullopt;
    if (const auto* job = std::get_if<JobStarted>(&entry.value())) return *job;
    return std::nullopt;  // nothing else is proposed before it
  }
  return std::nullopt;
}

void leave_job_file(const std::string& state_dir, const Job& job) {
  std::ofstream file(job_file(state_dir));
  file << format_job(job);
}

Error other_job(const std::string& state_dir, std::uint64_t of_log, const Job& job) {
  std::string which = "a job of hash " + hex(of_log) + ", this job file's is " + hex(job_hash(job));
  std::error_code error;
  if (fs::is_regular_file(job_file(state_dir), error)) {
    const auto kept = load_job(job_file(state_dir));
    if (kept && job_hash(kept.value()) == of_log)
      which = "job " + kept.value().name + ": " + job_differences(job, kept.value());
  }
  return Error(Code::kBadInput,
               "the coordinator's log in " + state_dir + " is that of another job (" + which +
                   "); start it with the job file that it was begun with, or begin a new job with "
                   "new keys and a new state folder");
}

}  // namespace starling::actors
