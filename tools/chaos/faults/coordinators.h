#pragma once
// Faults of coordinators share these functions.

#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

// Returns targets by name; none after it held the fault back, as not all are as they should be.
std::vector<judge::Target> whole_coordinators(Disturbance& it);
// Expects a new process of that name.
void expect_again(Disturbance& it, const judge::Target& target);

// FaultKind::impossible for a fault that takes one coordinator while the others go on.
std::string too_few_coordinators(const Beginning& run);

}  // namespace starling::chaos
