#pragma once
// Weights that are mapped from a file which another process cuts.

#include <string>

#include "actors/guard/guard.h"

namespace starling::tools {

// Has the process end with a line and exit code 2 where `weights` are cut while it reads them, which
// raises SIGBUS. `shared` gets the reason for its guard. Call it once, before the weights are read.
void end_where_weights_are_cut(actors::SharedLife& shared, const std::string& weights);

}  // namespace starling::tools
