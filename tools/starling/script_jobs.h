#pragma once
// Python scripts where a command wants a job file: the script says what its job is
// (tools/python/starling/job.py), into memory that has no name, so that nothing of it is left
// however the command ends.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

class ScriptJobs {
 public:
  // arguments: of the script, sys.argv[1:].
  explicit ScriptJobs(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  ~ScriptJobs();
  ScriptJobs(const ScriptJobs&) = delete;
  ScriptJobs& operator=(const ScriptJobs&) = delete;

  // Puts the place of its job into `path` if that names a script (".py"); else does nothing.
  // Runs the script with STARLING_PYTHON or python3. Errors: kBadInput  the script ended without a
  // job; it has said why.
  Result<> take(std::string& path);
  // Whether there was a script for the arguments: one that was taken, or `script` (empty: none).
  // Errors: kBadInput  arguments for nobody.
  Result<> given(const std::string& script) const;

 private:
  const std::vector<std::string> arguments_;
  std::vector<int> files_;
};

}  // namespace starling::tools
