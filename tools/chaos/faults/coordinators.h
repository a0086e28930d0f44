#pragma once
// What faults of coordinators share.

#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

// Those that can be hit, by name; none after it was held back since not all are as they should be.
std::vector<Target> whole_coordinators(Disturbance& it);
// A new process of that name.
void expect_again(Disturbance& it, const Target& target);

// FaultKind::impossible of what takes one coordinator while the others go on.
std::string too_few_coordinators(const Beginning& run);

}  // namespace starling::chaos
