// The leader judges a joiner's machine: it refuses a slow one, and warns of a wrong clock and of data that are waited for.

#include "elastic/membership/health.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/elastic/one_leader.h"

namespace starling::elastic {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

Machine that_takes(std::uint64_t ns) {
  Machine machine;
  machine.first_gradient_ns = ns;
  return machine;
}

// Three members, whose micro-batches take 90, 100 and 400 ms, and a leader of that rule.
void make_group(OneLeader& one, std::uint32_t slowest) {
  one.slowest = slowest;
  one.elect(1);
  one.machines = {
      {1, that_takes(90 * kMs)}, {2, that_takes(400 * kMs)}, {3, that_takes(100 * kMs)}};
}

std::vector<std::string> refusals_of(const OneLeader& one) {
  std::vector<std::string> reasons;
  for (const auto& sent : one.sent)
    if (const auto* refused = std::get_if<Refused>(&sent.body)) reasons.push_back(refused->reason);
  return reasons;
}

struct Warned : OneLeader {
  void take(const LeaderCommand& command) override {
    const auto* told = std::get_if<Event>(&command);
    if (!told) return;
    if (const auto* warning = std::get_if<event::Warning>(told)) warnings.push_back(warning->text);
    if (const auto* worker = std::get_if<event::WorkerChanged>(told)) workers.push_back(*worker);
  }
  std::vector<std::string> warnings;
  std::vector<event::WorkerChanged> workers;
};

TEST_CASE("health: a joiner slower than so many times the median member is refused, and told why") {
  OneLeader one;
  make_group(one, 3);
  one.begin(5);
  one.machines[4] = that_takes(301 * kMs);
  one.ask_to_join(4);
  CHECK(one.first_proposed<Joined>() == nullptr);
  const auto refused = refusals_of(one);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0] ==
        "a micro-batch takes 301 ms on this worker's machine and 100 ms on the median member's, "
        "more than 3 times as long; [elastic].slowest");
}

TEST_CASE("health: who is at the limit, computes nothing, or says no time is let in") {
  for (int which = 0; which < 4; ++which) {
    CAPTURE(which);
    OneLeader one;
    make_group(one, which == 3 ? 0 : 3);
    one.begin(5);
    one.machines[4] = that_takes(which == 0 ? 300 * kMs : which == 2 ? 0 : 100'000 * kMs);
    if (which == 1) one.roles[4] = WorkerRole::kHold;
    one.ask_to_join(4);
    CHECK(refusals_of(one).empty());
    CHECK(one.first_proposed<Joined>() != nullptr);
  }
}

// At the start there are no members to compare with, and nobody waits for a step yet.
TEST_CASE("health: nobody is too slow for a group that has not begun") {
  OneLeader one;
  make_group(one, 2);
  one.apply(JobStarted{});
  for (std::uint64_t nonce : {1, 2, 3}) one.join(nonce);
  CHECK(refusals_of(one).empty());
}

TEST_CASE("health: a worker whose clock is wrong joins, and people are warned once") {
  for (const std::int64_t ahead : {-kClockMs, kClockMs, -kClockMs - 1, std::int64_t{312'400}}) {
    CAPTURE(ahead);
    Warned one;
    one.begin(5);
    one.warnings.clear();
    one.machines[4].clock_ahead_ms = ahead;
    one.ask_to_join(4);
    one.ask_to_join(4);
    REQUIRE(one.first_proposed<Joined>() != nullptr);
    one.commit();
    one.ask_to_join(4);
    if (ahead >= -kClockMs && ahead <= kClockMs) {
      CHECK(one.warnings.empty());
      continue;
    }
    REQUIRE(one.warnings.size() == 1);
    CHECK(one.warnings[0].starts_with(ahead < 0
                                          ? "the clock of 4's machine is 30 s behind the coord"
                                          : "the clock of 4's machine is 312 s ahead of the"));
  }
}

TEST_CASE(
    "health: what a worker says of its machine stands in the event of its joining, and only "
    "there") {
  Warned one;
  one.begin(5);
  one.workers.clear();
  one.machines[4].memory = 1 << 30;
  one.machines[4].device = "NVIDIA H200";
  one.join(4);
  one.die(4);
  REQUIRE(one.workers.size() == 2);
  CHECK(one.workers[0].machine == one.machines[4]);
  CHECK(one.workers[1].machine == Machine{});
}

TEST_CASE(
    "health: people hear once that a worker waits for data, and again when it does so again") {
  Warned one;
  one.begin(5);
  one.warnings.clear();
  Heartbeat beat{one.group.plan()->id, 5, {}};
  const auto say = [&](std::uint8_t percent) {
    beat.data_wait_percent = percent;
    one.say(2, beat);
    return one.warnings.size();
  };
  CHECK(say(0) == 0);
  CHECK(say(63) == 1);
  CHECK(say(70) == 1);
  CHECK(one.warnings[0] ==
        "2 waits for data 63 % of its time: they are read more slowly than they are used");
  CHECK(say(0) == 1);
  CHECK(say(51) == 2);
  one.say(9, beat);  // a life that nobody knows
  CHECK(one.warnings.size() == 2);
}

}  // namespace
}  // namespace starling::elastic
