#pragma once
// What faults of links share: a worker's links are disturbed by one at a time.

#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

// Members to hit, whose links are as they should be; none after it was held back.
std::vector<Player*> with_whole_links(Disturbance& it);
void mend(DisturbedRun& run, Player& player);
// FaultKind::end of what disturbs links for some time.
void mend_all(Disturbance& it);

}  // namespace starling::chaos
