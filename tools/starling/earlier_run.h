#pragma once
// What runs that are over have left beside a new one.

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/observe/event.h"

namespace starling::tools {

// The same command line with --resume, started again, goes on in the same folder: the files of the
// run before it, of this job, go into a folder of their own there, run-1, run-2 and so on. Returns
// that folder; empty: there was none, or one that is still running or of another job, which opening
// the events says.
// Errors: kBadInput  they cannot be moved.
Result<std::string> put_aside_earlier_run(const std::string& folder, const Job& job);

// What that folder's run of this very job has ended with, if it is done and has saved its model: a
// command that is started again has nothing left to do.
std::optional<event::Done> finished_run(const std::string& folder, const Job& job);
// Says so to people. Returns the exit code.
int tell_finished(const event::Done& done, const std::string& folder);

// A run that was killed could not remove its keys: removes those of such runs whose output folders
// lie beside this one. Returns them, for people; empty: none were there.
std::string remove_keys_of_dead_runs(const std::string& folder);

}  // namespace starling::tools
