#include "collectives/nccl/turns.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace starling::collectives::nccl {
namespace {

const auto kNow = std::chrono::steady_clock::now();
const auto kLater = kNow + std::chrono::hours(1);

TEST_CASE("two make something at a time, in the order of asking, and the first of all uses it") {
  Turns turns;
  const std::atomic<bool> never{false};
  const auto first = turns.ask(), second = turns.ask(), third = turns.ask();
  CHECK(turns.wait_to_make(first, kLater, never));
  CHECK(turns.wait_to_use(first, never));
  CHECK(turns.wait_to_make(second, kLater, never));
  CHECK(!turns.wait_to_make(third, kNow, never));
  turns.give_back(second);  // without having had its turn
  CHECK(turns.wait_to_make(third, kLater, never));
  turns.give_back(first);
  CHECK(turns.wait_to_use(third, never));
}

TEST_CASE("when turns are closed nobody waits for one any more") {
  Turns turns;
  const std::atomic<bool> never{false};
  turns.ask();
  const auto second = turns.ask(), third = turns.ask();
  std::atomic<int> woken{0};
  std::thread to_use([&] { woken += turns.wait_to_use(second, never) ? 100 : 1; });
  std::thread to_make([&] { woken += turns.wait_to_make(third, kLater, never) ? 100 : 1; });
  CHECK(turns.closed().empty());
  turns.close("why");
  turns.close("another one");
  to_use.join();
  to_make.join();
  CHECK(woken == 2);
  CHECK(turns.closed() == "why");
  CHECK(!turns.wait_to_make(turns.ask(), kLater, never));
}

TEST_CASE("nothing is made beside what ends, but what was made before may be used after") {
  Turns turns;
  const std::atomic<bool> never{false};
  const auto first = turns.ask(), second = turns.ask();
  CHECK(turns.wait_to_make(second, kLater, never));
  turns.ends(first);
  CHECK(!turns.wait_to_make(second, kNow, never));
  turns.give_back(first);
  CHECK(turns.wait_to_use(second, never));
  const auto third = turns.ask();
  turns.ends(second);
  CHECK(!turns.wait_to_make(third, kNow, never));
  turns.give_back(second);
  CHECK(turns.wait_to_make(third, kLater, never));
  turns.ends(second);  // its owner gives up what is gone
}

TEST_CASE("whoever waits is woken by its turn, or when it is given up") {
  Turns turns;
  const std::atomic<bool> never{false};
  std::atomic<bool> given_up{false};
  const auto first = turns.ask(), second = turns.ask(), third = turns.ask();
  std::atomic<bool> had{false}, gave_up{false}, did_not_make{false};
  std::thread a([&] { had = turns.wait_to_use(second, never); });
  std::thread b([&] { gave_up = !turns.wait_to_use(second, given_up); });
  std::thread c([&] { did_not_make = !turns.wait_to_make(third, kLater, given_up); });
  given_up = true;
  turns.ends(third);
  b.join();
  c.join();
  CHECK(gave_up);
  CHECK(did_not_make);
  CHECK(!had);
  turns.give_back(first);
  a.join();
  CHECK(had);
  turns.give_back(third);
  turns.give_back(second);
}

}  // namespace
}  // namespace starling::collectives::nccl
