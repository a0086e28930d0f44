#pragma once
// These find the checkpoints from which a job can go on.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/formats/checkpoint.h"
#include "core/formats/checkpoint_owner.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

// Returns checkpoints of the job's folder whose manifest can be read, oldest first;
// says on stderr which cannot. None if the folder has none. Shards are read later,
// when they are loaded. Errors: kBadInput  the job has no [checkpoint], the newest
// is of another job or leaves nothing to do, or there are some and none can be read.
Result<std::vector<Checkpoint>> checkpoints_to_resume(const Job& job, const Layout& layout);

// Warns if the job's script has changed since the newest of them; empty: it has not.
// `starling audit` knows it by "the script has changed (" (tools/judge/audit/history.cpp).
std::string script_remark(const Job& job, const std::vector<Checkpoint>& to_go_on_from);

// Says which rate an admin gave the job, and whether it still counts; empty: none was changed.
std::string rate_note(const Job& job, const std::vector<Checkpoint>& to_go_on_from);

// These say where the command line differs from the job file.
struct ResumeOptions {
  bool steps = false, peak_rate = false;
};

// Returns the job as it goes on from the newest readable checkpoint of its folder,
// if there is one: with other steps the schedule of the rate stays that of the
// checkpoint's job, unless the job file says its own; with another rate that job's
// checkpoints are accepted. Errors: kBadInput  the folder cannot be read.
Result<Job> job_to_go_on(Job job, const ResumeOptions& options);

// Returns the command line that goes on with this one's work from the newest checkpoint,
// in the folder that it names, where this run's files are put aside, or a new one.
std::string resume_line(int argc, char** argv);

// Gives schedules that are as long as the job the length that they have in `was`.
void keep_schedules(Job& job, const Job& was);

// A CheckpointClaim is a run's claim to a folder; its end gives up a folder where the run has written no
// checkpoint: to the run before it, or, if it has none, so that an edited job can be started there. Movable.
class CheckpointClaim {
 public:
  CheckpointClaim() = default;
  CheckpointClaim(std::string dir, const JobId& run) : dir_(std::move(dir)), run_(run) {}
  CheckpointClaim(CheckpointClaim&& other) noexcept
      : dir_(std::exchange(other.dir_, {})), run_(other.run_) {}
  CheckpointClaim& operator=(CheckpointClaim&& other) noexcept {
    std::swap(dir_, other.dir_);
    std::swap(run_, other.run_);
    return *this;
  }
  ~CheckpointClaim();
  explicit operator bool() const { return !dir_.empty(); }

 private:
  std::string dir_;  // empty: no claim
  JobId run_{};
};

struct OpenedCheckpoints {
  std::vector<Checkpoint> to_go_on_from;  // oldest first
  std::string remark;                     // script_remark()
};

// Prepares a run: the folder can be written, is no other job's, and has no checkpoints
// unless the run goes on from them. Does nothing without [checkpoint]. Errors: kBadInput.
Result<OpenedCheckpoints> open_checkpoints(const Job& job, const Layout& layout, bool resume);

// Checks that the folder can be written and is no other job's. Does nothing without [checkpoint].
// Errors: kBadInput  it cannot be written, or is another job's; the text names the keys that differ.
Result<> check_folder(const Job& job);

// Makes the folder this run's, whichever run of the job had it before. Does nothing without
// [checkpoint]. `process`: CheckpointOwner::process. Errors: as check_folder().
Result<> take_folder(const Job& job, const JobId& run, const std::string& process);

// Returns this run's process as a writer of the job's checkpoints, when no coordinator is left.
CheckpointWriter writer_of(const Job& job, const JobId& run);

}  // namespace starling::tools
