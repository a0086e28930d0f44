#pragma once
// A RunPlace says where a worker joins a run of this machine, as the run's folder tells it.

#include <string>

#include "core/base/result.h"

namespace starling::tools {

struct RunPlace {
  std::string addresses;  // of its coordinators
  std::string keys;       // folder of split keys
};

// `keys`: instead of the run's own; may be empty.
// Errors: kBadInput  there is no run in the folder, or it is over.
Result<RunPlace> place_of_run(const std::string& folder, const std::string& keys);

// Returns how the run in that folder ended, as its last events say; empty: it has not, or no run is there.
std::string end_of_run(const std::string& folder);

// Returns the command by which another worker joins that folder's run.
std::string join_command(const std::string& folder);

}  // namespace starling::tools
