#pragma once
// These functions handle what earlier runs have left beside a new one.

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/observe/event.h"

namespace starling::tools {

// Moves the files of this job's earlier run in the folder, its model too if it was done, into a
// folder of their own there, run-1, run-2 and so on, so that the same command line with --resume,
// or with more steps, can go on in the same folder. Returns that folder; empty: there was no run,
// or one that is still running or of another job, which opening the events reports.
// Errors: kBadInput  they cannot be moved.
Result<std::string> put_aside_earlier_run(const std::string& folder, const Job& job);

// The same for a run, of any job, that has ended before its first step: what its workers refused
// is put right, and the same command line begins in the same folder.
Result<std::string> put_aside_run_without_steps(const std::string& folder);

// Returns the first step that the events of that folder's run say to be in doubt, all of the job if
// contributions or two records of a step differ; none: no event does. A run that was killed as it
// found out may have left manifests that do not say so.
std::optional<Version> doubt_told_in(const std::string& folder);

// Returns a version of which, and of any after it, that file of events has no step; 0: it has none at all.
Version told_in(const std::string& path);

// Returns the end of that folder's run of this very job, if it is done and
// has saved its model: a command that is started again has no work left.
std::optional<event::Done> finished_run(const std::string& folder, const Job& job);
// Tells people about that end. Returns the exit code.
int tell_finished(const event::Done& done, const std::string& folder);

// Removes the keys of killed runs (these could not remove them) whose output
// folders lie beside this one. Returns them, for people; empty: none were there.
std::string remove_keys_of_dead_runs(const std::string& folder);

}  // namespace starling::tools
