#pragma once
// What faults of links share: a worker's links are disturbed by one at a time.

#include <cstdint>
#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

// Members to hit, whose links are as they should be; none after it was held back.
std::vector<Player*> with_whole_links(Disturbance& it);
void mend(DisturbedRun& run, Player& player);

// A worker as it was when its links were disturbed.
struct Linked {
  Player* player;
  std::uint64_t id;    // its life
  std::size_t epochs;  // that had been told of
};
Linked linked(DisturbedRun& run, Player* player);
// The worker's links are as they should be: its life goes on, or the worker was left out and is back
// as a new one.
void expect_back(Disturbance& it, const Linked& worker);

// FaultKind::end of what disturbs links for some time.
void mend_all(Disturbance& it);

}  // namespace starling::chaos
