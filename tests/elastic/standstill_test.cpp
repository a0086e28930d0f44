// Who holds up all others: three workers, of which the third one has something to do. What follows
// from it is shown with a whole leader in leader_waiting_test.cpp.

#include "elastic/membership/standstill.h"

#include <doctest/doctest.h>

#include "tests/elastic/known_group.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

const std::uint64_t kStandstillPatience =
    LeaderConfig{}.elastic.standstill_ms;  // steps here are short
const std::uint64_t kStateTimeout = LeaderConfig{}.elastic.state_timeout_ms;

struct ThreeThatOwe : KnownGroup {
  explicit ThreeThatOwe(std::vector<std::vector<Rank>> holders = {{0, 1}, {1, 2}, {2, 0}}) {
    for (const std::uint64_t n : {1, 2, 3}) join(n);
    follow(plan(kFirst, PlanKind::kFresh, {1, 2, 3}, std::move(holders)));
    enter(5);
  }
  // Since the beginning at 1 ms, it owes this.
  void owe(std::uint64_t n, std::uint32_t share, std::uint32_t load = 0, std::uint32_t orders = 0) {
    Heartbeat beat{kFirst, 5, {}};
    beat.share_left = share;
    beat.load_left = load;
    beat.orders_left = orders;
    say(n, beat);
  }
  Standstill after(std::uint64_t ms) {
    at(1 + ms);
    return standstill(config, group, roster, progress);
  }
  std::string warning(std::uint64_t n) {
    return warning_of(after(kStandstillPatience), who(n), group, roster);
  }
};

std::string names(const Standstill& still) {
  std::string nonces;
  for (const Incarnation& who : still.by) nonces += std::to_string(who.nonce);
  return nonces;
}

TEST_CASE("standstill: people are told after a quarter of the patience, which ends after it") {
  ThreeThatOwe three;
  three.owe(3, /*share=*/2);
  CHECK(names(three.after(kStandstillPatience / 4)).empty());
  CHECK(names(three.after(kStandstillPatience / 4 + 1)) == "3");
  CHECK_FALSE(three.after(kStandstillPatience).too_long);
  CHECK(three.after(kStandstillPatience + 1).too_long);
  CHECK_FALSE(three.after(kStandstillPatience + 1).at_any_price);
}

TEST_CASE("standstill: one that has what others lack is waited for as a silent one is") {
  ThreeThatOwe three({{0, 1}, {1, 0}, {2}});
  three.owe(3, /*share=*/2);
  CHECK(names(three.after(kStandstillPatience + 1)) == "3");
  CHECK_FALSE(three.after(kStandstillPatience + 1).too_long);
  CHECK_FALSE(three.after(kStandstillPatience + kStateTimeout).too_long);
  CHECK(three.after(kStandstillPatience + kStateTimeout + 1).too_long);
  CHECK(three.after(kStandstillPatience + kStateTimeout + 1).at_any_price);
}

// What two have that get nowhere together, nobody else has.
TEST_CASE("standstill: those who hold up the others do not stand in for each other") {
  ThreeThatOwe three;
  three.owe(2, /*share=*/1);
  three.owe(3, /*share=*/2);
  CHECK(names(three.after(kStandstillPatience + 1)) == "23");
  CHECK_FALSE(three.after(kStandstillPatience + 1).too_long);
}

TEST_CASE("standstill: a copy counts that was moved, when the moves are done") {
  const auto too_long_at = [](Version version) {
    ThreeThatOwe three;
    Plan p = three.plan(kSecond, PlanKind::kForced, {1, 2, 3}, {{0, 1}, {1, 0}, {2}});
    p.base = 5;
    p.moves.push_back({{SegmentId{2}, 1}, /*source=*/2, /*target=*/0, /*step_offset=*/0});
    three.follow(p);
    three.enter(version);
    Heartbeat owes{kSecond, version, {}};
    owes.share_left = 1;
    three.say(3, owes);
    return three.after(kStandstillPatience + 1).too_long;
  };
  CHECK_FALSE(too_long_at(5));
  CHECK(too_long_at(6));
}

TEST_CASE("standstill: nobody is named while a plan is on its way to somebody") {
  ThreeThatOwe three;
  three.follow(three.plan(kSecond, PlanKind::kForced, {1, 2, 3}, {{0}, {0}, {0}}));
  for (const std::uint64_t n : {1, 2}) three.say(n, Heartbeat{kSecond, 5, {}});
  three.owe(3, /*share=*/2);  // it is in the first epoch yet
  CHECK(names(three.after(2 * kStandstillPatience)).empty());
}

TEST_CASE("standstill: a joiner that has no state yet waits for the others, and they not for it") {
  ThreeThatOwe three;
  three.join(4);
  Plan p = three.plan(kSecond, PlanKind::kPrepared, {1, 2, 3, 4}, {{0}, {1}, {2}});
  p.members[3].joiner = true;
  three.follow(p);
  three.say(4, Heartbeat{});
  three.owe(3, /*share=*/2);
  CHECK(names(three.after(2 * kStandstillPatience)) == "3");
}

TEST_CASE("standstill: with standstill_ms = 0 nobody is named") {
  ThreeThatOwe three;
  three.config.elastic.standstill_ms = 0;
  three.owe(3, /*share=*/2);
  CHECK(names(three.after(100 * kStandstillPatience)).empty());
}

TEST_CASE("standstill: people are told what it gets nowhere with") {
  ThreeThatOwe three;
  three.owe(3, /*share=*/2);
  CHECK(three.warning(3) ==
        "3 is heard but gets nowhere with its share of step 5 (2 micro-batches left) for 30000 ms, "
        "and all others wait for it; after 30000 ms it is left out");
  ThreeThatOwe loads;
  loads.owe(3, 0, /*load=*/7);
  CHECK(loads.warning(3).find("loading the checkpoint of step 0 (7 segments left)") !=
        std::string::npos);
  ThreeThatOwe stores;
  stores.owe(3, 0, 0, /*orders=*/4);
  CHECK(stores.warning(3).find("state and sums (4 orders left)") != std::string::npos);
}

// All wait, and nobody has anything left to do: what two had sent each other is lost.
TEST_CASE("standstill: where nobody owes anything, whoever most of the others miss is named") {
  ThreeThatOwe three;
  const auto miss = [&](std::uint64_t n, std::vector<Rank> ranks) {
    Heartbeat beat{kFirst, 5, {}};
    beat.missed = std::move(ranks);
    three.say(n, beat);
  };
  miss(1, {1});
  miss(2, {2});
  miss(3, {1});
  CHECK(names(three.after(kStandstillPatience / 4)).empty());
  CHECK(names(three.after(kStandstillPatience / 4 + 1)) == "2");
  CHECK(three.warning(2).find("gets nowhere with what it was to send for step 5") !=
        std::string::npos);
  CHECK(three.after(kStandstillPatience + 1).too_long);
  miss(3, {});  // of equals the higher rank
  CHECK(names(three.after(kStandstillPatience + 1)) == "3");
  miss(1, {Rank{7}});  // there is no such member
  miss(2, {});
  CHECK(names(three.after(kStandstillPatience + 1)).empty());
}

TEST_CASE("standstill: who owes something is named before who is missed") {
  ThreeThatOwe three;
  Heartbeat misses{kFirst, 5, {}};
  misses.missed = {1};
  three.say(1, misses);
  three.owe(3, /*share=*/2);
  CHECK(names(three.after(kStandstillPatience + 1)) == "3");
}

TEST_CASE("standstill: a plan without them names them all") {
  ThreeThatOwe three;
  three.owe(2, /*share=*/1);
  three.owe(3, /*share=*/2);
  CHECK(cause_of(three.after(kStandstillPatience), three.roster) ==
        "2, 3 got nowhere for 30000 ms while the others waited");
}

}  // namespace
}  // namespace starling::elastic
