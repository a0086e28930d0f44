#pragma once
// Faults of worker processes share these functions.

#include <functional>
#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

inline constexpr double kPulse_s = 0.1;  // between two repeated acts on a process

std::vector<judge::Target> targets_of(const std::vector<Player*>& players);
bool taken(const Player& player);  // another fault took it
// Returns the players for a kill or a leave: by name wherever they
// are, also on their way in; none after it held the fault back.
std::vector<Player*> to_be_gone(Disturbance& it);
std::size_t that_count(const DisturbedRun& run);  // workers that count as left

// Kills the process that computes. Before it is known it may be born between
// a look and a kill, so the guard is stopped first and goes with it.
void kill_process(Player& player);
// Starts a new worker for each that went, so long after a kill or leave that says so.
void bring_back(Disturbance& it);
// Lets stopped processes of these go on. FaultKind::end of faults that stop workers.
void let_go_on(Disturbance& it);

void expect_gone(Disturbance& it, const judge::Target& target, std::function<void()> then = {});
// Expects an epoch without that life, told after the deed.
void expect_left_out(Disturbance& it, const judge::Target& target);

// FaultKind::impossible for faults that need one worker more than always stay.
std::string too_few_workers(const Beginning& run);

}  // namespace starling::chaos
