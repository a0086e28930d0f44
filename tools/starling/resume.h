#pragma once
// From which checkpoints a job can go on.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/formats/checkpoint.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

// Those of the job's folder whose manifest can be read, oldest first; says on stderr which cannot.
// None if the folder has none. The shards are looked at when they are loaded.
// Errors: kBadInput  the job has no [checkpoint], the newest is of another job or leaves nothing to
// do, or there are some and none can be read.
Result<std::vector<Checkpoint>> checkpoints_to_resume(const Job& job, const Layout& layout);

// A warning if the job's script has changed since the newest of them; empty: it has not.
// `starling audit` knows it by "the script has changed (" (tools/audit/history.cpp).
std::string script_remark(const Job& job, const std::vector<Checkpoint>& to_go_on_from);

// What the command line says otherwise than the job file.
struct ResumeOptions {
  bool steps = false, peak_rate = false;
};

// The job as it goes on from the newest checkpoint of its folder, if there is one that can be read:
// with other steps the schedule of the rate stays that of the checkpoint's job, unless the job file
// says its own; with another rate that job's checkpoints are accepted.
// Errors: kBadInput  the folder cannot be read.
Result<Job> job_to_go_on(Job job, const ResumeOptions& options);

// The command line that does what this one did from the newest checkpoint on, in the folder that it
// names, where what this one has left is put aside, or a new one.
std::string resume_line(int argc, char** argv);

// Ends the claim that a run has laid to a folder which is still without a checkpoint, so that an
// edited job can be started there. Movable.
class CheckpointClaim {
 public:
  CheckpointClaim() = default;
  explicit CheckpointClaim(std::string dir) : dir_(std::move(dir)) {}
  CheckpointClaim(CheckpointClaim&& other) noexcept : dir_(std::exchange(other.dir_, {})) {}
  CheckpointClaim& operator=(CheckpointClaim&& other) noexcept {
    std::swap(dir_, other.dir_);
    return *this;
  }
  ~CheckpointClaim();

 private:
  std::string dir_;  // empty: no claim
};

struct OpenedCheckpoints {
  std::vector<Checkpoint> to_go_on_from;  // oldest first
  CheckpointClaim claim;
  std::string remark;  // script_remark()
};

// Before a run: the folder can be written, is this job's from here on, and is empty of checkpoints
// unless the run is to go on from them. Nothing to do for a job without. Errors: kBadInput.
Result<OpenedCheckpoints> open_checkpoints(const Job& job, const Layout& layout, bool resume);

// The folder can be written and is this job's from here on. Nothing to do for a job without.
// Value: whether it was nobody's. Errors: kBadInput  it cannot, or is another job's; the text names
// the keys that differ.
Result<bool> claim_folder(const Job& job);

}  // namespace starling::tools
