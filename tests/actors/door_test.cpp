// What waits for a coordinator is bounded, and what is turned away is what will be said again.

#include "actors/coordinator/door.h"

#include <doctest/doctest.h>

namespace starling::actors {
namespace {

Arrival step(std::uint64_t nonce, Version version, std::size_t rows = 1024) {
  Progress progress;
  progress.record.version = version;
  progress.ledger.resize(rows);
  Arrival arrival;
  arrival.from = {1, Nonce(nonce)};
  arrival.body = std::move(progress);
  return arrival;
}

Arrival heartbeat() {
  Arrival arrival;
  arrival.body = Heartbeat{};
  return arrival;
}

TEST_CASE("door: a step that waits is not taken a second time from its sender") {
  Door door;
  CHECK(door.enter(step(1, 7)));
  CHECK_FALSE(door.enter(step(1, 7)));
  CHECK(door.enter(step(2, 7)));  // another's word counts: records are compared
  CHECK(door.enter(step(1, 8)));
  door.leave(step(1, 7));
  CHECK(door.enter(step(1, 7)));
  CHECK(door.turned_away() == 0);
}

// Six workers that make a thousand steps a second with 1024 rows for 25 s.
TEST_CASE("door: whatever is told while nobody looks, a bounded part waits") {
  Door door;
  std::size_t bytes = 0;
  for (Version v = 0; v < 25'000; ++v)
    for (std::uint64_t worker = 1; worker <= 6; ++worker)
      if (door.enter(step(worker, v))) bytes += 1024 * sizeof(LedgerRow);
  CHECK(bytes <= Door::kStepBytesMax);
  CHECK(bytes > Door::kStepBytesMax / 2);
  CHECK(door.turned_away() > 100'000);
  CHECK(door.enter(heartbeat()));  // steps do not keep others out
  std::size_t beats = 1;
  while (beats < 1'000'000 && door.enter(heartbeat())) ++beats;
  CHECK(beats < 100'000);
  for (std::size_t i = 0; i < beats; ++i) door.leave(heartbeat());
  CHECK(door.enter(heartbeat()));
}

}  // namespace
}  // namespace starling::actors
