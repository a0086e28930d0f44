// How far an epoch is known to be.

#include "elastic/membership/epoch_progress.h"

#include <doctest/doctest.h>

#include <vector>

namespace starling::elastic {
namespace {

Plan plan(PlanKind kind, Version base, std::vector<std::uint32_t> moves) {
  Plan p;
  p.kind = kind;
  p.base = base;
  for (const std::uint32_t offset : moves) p.moves.emplace_back().step_offset = offset;
  return p;
}

TEST_CASE("epoch progress: moves are done when a member is past the step of the last one") {
  EpochProgress progress;
  progress.follow(plan(PlanKind::kForced, 10, {0, 3, 1}));
  CHECK_FALSE(progress.moves_done());
  CHECK_FALSE(progress.seen_at(13, 0));
  CHECK_FALSE(progress.moves_done());
  CHECK(progress.seen_at(14, 0));
  CHECK(progress.moves_done());
  CHECK_FALSE(progress.seen_at(15, 0));  // it was known
}

TEST_CASE(
    "epoch progress: without moves they are done, and the first step's end is seen all the same") {
  EpochProgress progress;
  progress.follow(plan(PlanKind::kForced, 10, {}));
  CHECK(progress.moves_done());
  CHECK_FALSE(progress.seen_at(10, 0));
  CHECK(progress.seen_at(11, 0));
}

// A plan cannot say at which vote its epoch begins; at the lowest version it has been entered at.
TEST_CASE(
    "epoch progress: a prepared epoch began at the lowest version of who has entered it, or "
    "before") {
  EpochProgress progress;
  progress.follow(plan(PlanKind::kPrepared, 0, {2}));
  CHECK_FALSE(progress.seen_at(50, 0));  // nobody has said where it began
  progress.entered_at(22);
  progress.entered_at(20);
  progress.entered_at(21);
  CHECK_FALSE(progress.seen_at(22, 0));
  CHECK(progress.seen_at(23, 0));
}

TEST_CASE("epoch progress: a forced epoch begins where its plan says") {
  EpochProgress progress;
  progress.follow(plan(PlanKind::kForced, 10, {2}));
  progress.entered_at(9);  // has not begun it yet
  CHECK_FALSE(progress.seen_at(12, 0));
  CHECK(progress.seen_at(13, 0));
}

TEST_CASE("epoch progress: the next plan begins anew, how long steps took stays known") {
  EpochProgress progress;
  progress.follow(plan(PlanKind::kForced, 10, {}));
  progress.begins(1000);
  progress.seen_at(11, 1100);
  progress.seen_at(12, 1400);
  CHECK(progress.steps().longest_ms() == 300);
  progress.follow(plan(PlanKind::kForced, 12, {1}));
  progress.begins(5000);
  CHECK_FALSE(progress.moves_done());
  progress.seen_at(12, 9000);  // what comes before the first version is no step
  CHECK(progress.steps().longest_ms() == 300);
}

}  // namespace
}  // namespace starling::elastic
