#pragma once
// What faults of worker processes share.

#include <functional>
#include <vector>

#include "tools/chaos/disturbance.h"

namespace starling::chaos {

inline constexpr double kPulse_s = 0.1;  // of what is done to a process again and again

std::vector<Target> targets_of(const std::vector<Player*>& players);
bool taken(const Player& player);  // another fault took it
// Whom a kill or a leave is for: by name wherever they are, also on their way in; none after it was
// held back.
std::vector<Player*> to_be_gone(Disturbance& it);
std::size_t that_count(const DisturbedRun& run);  // as workers that are left

// The process that computes. Before it is known it may be born between a look and a kill, so the
// guard is stopped first and goes with it.
void kill_process(Player& player);
// So long after a kill or leave that says so, a new worker comes for one that went.
void bring_back(Disturbance& it);
// Whoever of these is stopped by us goes on. FaultKind::end of what stops workers.
void let_go_on(Disturbance& it);

void expect_gone(Disturbance& it, const Target& target, std::function<void()> then = {});
// An epoch without that life of it, told after the deed.
void expect_left_out(Disturbance& it, const Target& target);

// FaultKind::impossible of what needs one worker more than are always left.
std::string too_few_workers(const Beginning& run);

}  // namespace starling::chaos
