#pragma once
// `starling chaos --attach DIR` disturbs a run that is there
// already, and judges what can be judged without an undisturbed run.

#include "core/base/result.h"
#include "tools/starling/commands.h"

namespace starling::tools {

// Returns the exit code: 0, 1, or 128 and a signal. Errors: kBadInput.
Result<int> chaos_attached(const ChaosCommand& command);

}  // namespace starling::tools
