#pragma once
// ScriptJobs lets Python scripts stand where a command wants a job file:
// the script writes its job (tools/python/starling/job.py) into memory
// without a name, so that nothing of it is left however the command ends.

#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

class ScriptJobs {
 public:
  // arguments: the script's sys.argv[1:].
  explicit ScriptJobs(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  ~ScriptJobs();
  ScriptJobs(const ScriptJobs&) = delete;
  ScriptJobs& operator=(const ScriptJobs&) = delete;

  // Puts the place of its job into `path` if that names a script (".py");
  // else does nothing. Runs the script with STARLING_PYTHON or python3.
  // Errors: kBadInput  the script ended without a job; it has said why.
  Result<> take(std::string& path);
  // Checks that the arguments have a script: one that was taken, or
  // `script` (empty: none). Errors: kBadInput  arguments without a script.
  Result<> given(const std::string& script) const;

 private:
  const std::vector<std::string> arguments_;
  std::vector<int> files_;
};

}  // namespace starling::tools
