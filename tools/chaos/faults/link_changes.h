#pragma once
// Faults of links share these: only one fault at a time disturbs a worker's links.

#include <cstdint>
#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

// Returns members to hit, with whole links; none after it held the fault back.
std::vector<Player*> with_whole_links(Disturbance& it);
void mend(DisturbedRun& run, Player& player);

// A Linked is a worker as it was when its links were disturbed.
struct Linked {
  Player* player;
  std::uint64_t id;    // its life
  std::size_t epochs;  // told by then
};
Linked linked(DisturbedRun& run, Player* player);
// Expects whole links: the worker's life goes on, or
// the worker was left out and is back as a new one.
void expect_back(Disturbance& it, const Linked& worker);

// FaultKind::end for faults that disturb links for some time.
void mend_all(Disturbance& it);

}  // namespace starling::chaos
