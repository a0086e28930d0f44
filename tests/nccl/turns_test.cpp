#include "collectives/nccl/turns.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace starling::collectives::nccl {
namespace {

const auto kNow = std::chrono::steady_clock::now();
const auto kLater = kNow + std::chrono::hours(1);

TEST_CASE("turns go in the order of asking, to one at a time") {
  Turns turns;
  const std::atomic<bool> never{false};
  const auto first = turns.ask(), second = turns.ask(), third = turns.ask();
  CHECK(turns.wait(first, kLater, never));
  CHECK(!turns.wait(second, kNow, never));
  turns.give_back(second);  // without having had it
  CHECK(!turns.wait(third, kNow, never));
  turns.give_back(first);
  CHECK(turns.wait(third, kLater, never));
}

TEST_CASE("whoever waits is woken by its turn, or when it is given up") {
  Turns turns;
  const std::atomic<bool> never{false};
  std::atomic<bool> given_up{false};
  const auto first = turns.ask(), second = turns.ask(), third = turns.ask();
  std::atomic<bool> had{false}, gave_up{false};
  std::thread a([&] { had = turns.wait(second, kLater, never); });
  std::thread b([&] { gave_up = !turns.wait(third, kLater, given_up); });
  given_up = true;
  turns.look();
  b.join();
  CHECK(gave_up);
  CHECK(!had);
  turns.give_back(first);
  a.join();
  CHECK(had);
  turns.give_back(third);
  turns.give_back(second);
}

}  // namespace
}  // namespace starling::collectives::nccl
