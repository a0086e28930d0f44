#pragma once
// A coordinator's log belongs to one job. The log says so with a hash; a copy of the job file
// beside it says in words which job that is.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/wire/messages.h"
#include "elastic/raft/raft.h"

namespace starling::actors {

// Returns the job with which a log began, as far as its snapshot and entries say it.
std::optional<JobStarted> job_of(const elastic::RaftSnapshot& snapshot,
                                 const std::vector<RaftEntry>& log);

// Leaves the job file beside a log that does not say yet which
// job it belongs to. Errors are ignored: the copy is for people.
void leave_job_file(const std::string& state_dir, const Job& job);

// Returns kBadInput, in one line: which folder, which job, what to do.
Error other_job(const std::string& state_dir, std::uint64_t of_log, const Job& job);

}  // namespace starling::actors
