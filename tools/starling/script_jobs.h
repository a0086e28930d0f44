#pragma once
// Python scripts where a command wants a job file: the script says what its job is
// (tools/python/starling/job.py), which is a file as long as the command runs.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

class ScriptJobs {
 public:
  ScriptJobs() = default;
  ~ScriptJobs();  // removes the files
  ScriptJobs(const ScriptJobs&) = delete;
  ScriptJobs& operator=(const ScriptJobs&) = delete;

  // Puts the name of its job file into `path` if that names a script (".py"); else does nothing.
  // Runs the script with STARLING_PYTHON or python3. Errors: kBadInput  the script ended without a
  // job; it has said why.
  Result<> take(std::string& path);

 private:
  std::vector<std::string> folders_;
};

}  // namespace starling::tools
