// The plan that stops nobody, from what a leader goes by: workers 1, 2, 3 run at version 5, of three
// segments each has two. How many such plans there are over time is shown with a whole leader in
// leader_changes_test.cpp.

#include "elastic/membership/preparing.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/elastic/known_group.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

const std::uint64_t kWindow = LeaderConfig{}.change_window_ms;

struct ThreeToChange : KnownGroup {
  explicit ThreeToChange(std::vector<std::vector<Rank>> holders = {{0, 1}, {1, 2}, {2, 0}},
                         WorkerRole first_two = WorkerRole::kBoth,
                         WorkerRole third = WorkerRole::kBoth) {
    for (const std::uint64_t n : {1, 2}) join(n, first_two);
    join(3, third);
    follow(plan(kFirst, PlanKind::kFresh, {1, 2, 3}, std::move(holders)));
    enter(5);
  }
  void leave(std::uint64_t n, std::uint64_t notice_ms) {
    REQUIRE(group.apply(LeaveAnnounced{who(n)}));
    roster.noticed(who(n), notice_ms);
    roster.leaves(who(n));
  }
  std::optional<Plan> now() { return prepare(config, group, roster, progress); }
  std::optional<Plan> after(std::uint64_t ms) {
    at(roster.now_ms() + ms);
    return now();
  }
  // What is prepared now is committed, and all enter it at this version.
  void run(Version version) {
    auto prepared = now();
    REQUIRE(prepared.has_value());
    prepared->id = group.plan()->id.next();
    follow(*prepared);
    enter(version);
  }
};

std::string members_of(const Plan& plan) {
  std::string nonces;
  for (const Member& m : plan.members)
    nonces += std::to_string(m.who.nonce) + (m.joiner ? "j" : "") + (m.draining ? "d" : "");
  return nonces;
}

TEST_CASE("preparing: where nothing changes there is no plan") {
  ThreeToChange three;
  CHECK_FALSE(three.after(10 * kWindow).has_value());
}

TEST_CASE("preparing: who waits is let in after the window of joins, all with the first of them") {
  ThreeToChange three;
  three.join(4);
  CHECK_FALSE(three.after(kWindow - 1).has_value());
  three.join(5);
  const auto plan = three.after(1);
  REQUIRE(plan.has_value());
  CHECK(plan->kind == PlanKind::kPrepared);
  CHECK(plan->predecessor == kFirst);
  CHECK_FALSE(bool(plan->id));
  CHECK(members_of(*plan).size() == 3 + 2 * 2);
  CHECK(members_of(*plan).find("4j") != std::string::npos);
  CHECK(members_of(*plan).find("5j") != std::string::npos);
  CHECK(plan->cause == "5 joins");
  // A joiner holds nothing before it is moved there.
  for (const auto& holders : plan->holders)
    for (const Rank r : holders) CHECK_FALSE(plan->members[r].joiner);
  CHECK_FALSE(plan->moves.empty());
}

TEST_CASE("preparing: a joiner that fell silent is not let in") {
  ThreeToChange three;
  three.join(4);
  for (int i = 0; i < 30; ++i) {
    three.at(three.roster.now_ms() + kWindow);
    three.enter(5);
  }
  CHECK_FALSE(three.now().has_value());
}

TEST_CASE("preparing: nothing is prepared before every member is seen in the last plan's epoch") {
  ThreeToChange three;
  three.join(4);
  three.follow(three.plan(kSecond, PlanKind::kForced, {1, 2, 3}, {{0}, {1}, {2}}));
  for (const std::uint64_t n : {1, 2}) three.say(n, Heartbeat{kSecond, 5, {}});
  CHECK_FALSE(three.after(kWindow).has_value());
  three.say(3, Heartbeat{kSecond, 5, {}});
  CHECK(three.now().has_value());
}

TEST_CASE("preparing: at the last version nothing changes any more") {
  ThreeToChange three;
  three.join(4);
  three.say(2, Heartbeat{kFirst, Version(three.config.steps), {}});
  CHECK_FALSE(three.after(kWindow).has_value());
}

// ---- Leaves -----------------------------------------------------------------------------------

TEST_CASE("preparing: a leaver drains, and goes when enough copies exist without it") {
  ThreeToChange three;
  three.leave(3, 60'000);
  CHECK_FALSE(three.after(kWindow - 1).has_value());
  const auto drains = three.after(1);
  REQUIRE(drains.has_value());
  CHECK(members_of(*drains) == "123d");
  CHECK(drains->cause == "3 announced its leave");
  REQUIRE_FALSE(drains->moves.empty());
  three.run(6);
  CHECK_FALSE(three.now().has_value());  // a move under way does not count
  three.enter(10);
  const auto leaves = three.now();
  REQUIRE(leaves.has_value());
  CHECK(members_of(*leaves) == "12");
  CHECK(leaves->cause == "3 leaves");
}

TEST_CASE("preparing: a leaver whose copies exist elsewhere goes at once") {
  ThreeToChange three({{0, 1, 2}, {1, 2, 0}, {2, 0, 1}});
  three.leave(3, 60'000);
  const auto plan = three.after(kWindow);
  REQUIRE(plan.has_value());
  CHECK(members_of(*plan) == "12");
}

// One lease before the end of its notice a single copy elsewhere is enough.
TEST_CASE("preparing: a short notice waits for no window, and its end for no second copy") {
  ThreeToChange three;
  three.leave(3, three.config.elastic.lease_ms + kWindow - 1);
  REQUIRE(three.now().has_value());
  CHECK(members_of(*three.now()) == "123d");
  const auto plan = three.after(kWindow);
  REQUIRE(plan.has_value());
  CHECK(members_of(*plan) == "12");
}

TEST_CASE("preparing: notices of two and of eleven seconds move state first, and end in time") {
  for (const std::uint64_t ms : {2'000, 11'000}) {
    CAPTURE(ms);
    ThreeToChange three;
    three.leave(3, ms);
    const auto drains = three.after(kWindow);
    REQUIRE(drains.has_value());
    CHECK(members_of(*drains) == "123d");
    const auto goes = three.after(ms - three.config.elastic.lease_ms - kWindow + 1);
    REQUIRE(goes.has_value());
    CHECK(members_of(*goes) == "12");
  }
}

TEST_CASE("preparing: a leaver that has the only copy is not left out") {
  ThreeToChange three({{0, 1}, {1, 0}, {2}});
  three.leave(3, three.config.elastic.lease_ms);
  REQUIRE(three.after(kWindow).has_value());
  CHECK(members_of(*three.now()) == "123d");
  three.run(6);
  CHECK_FALSE(three.now().has_value());
}

TEST_CASE("preparing: where all leave, all go on until their notice ends") {
  ThreeToChange three;
  for (const std::uint64_t n : {1, 2, 3}) three.leave(n, kWindow);
  const auto plan = three.after(kWindow);
  REQUIRE(plan.has_value());
  CHECK(members_of(*plan) == "1d2d3d");
}

// Goal: what a role is for is not given up by a leave. It goes on until another one is there, or its notice ends.
TEST_CASE("preparing: a leaver without whom nobody would compute, or hold, waits for another") {
  const std::vector<std::vector<Rank>> at_both{{0, 1}, {1, 0}, {0, 1}};
  ThreeToChange computes(at_both, WorkerRole::kHold, WorkerRole::kCompute);
  computes.leave(3, 60'000);
  REQUIRE(computes.after(kWindow).has_value());
  CHECK(members_of(*computes.now()) == "123d");
  computes.run(6);
  CHECK_FALSE(computes.now().has_value());
  // Joins and leaves of other workers are planned meanwhile.
  computes.join(4, WorkerRole::kHold);
  REQUIRE(computes.after(kWindow).has_value());
  CHECK(members_of(*computes.now()).find("4j") != std::string::npos);
  CHECK(members_of(*computes.now()).find("3d") != std::string::npos);
  computes.leave(2, 60'000);
  REQUIRE(computes.after(kWindow).has_value());
  CHECK(members_of(*computes.now()).find("3d") != std::string::npos);
  computes.join(5, WorkerRole::kCompute);
  const auto plan = computes.after(kWindow);
  REQUIRE(plan.has_value());
  CHECK(members_of(*plan).find('3') == std::string::npos);
  CHECK(members_of(*plan).find("5j") != std::string::npos);
  const auto fifth =
      std::ranges::find(plan->members, Nonce(5), [](const Member& m) { return m.who.nonce; });
  const auto rank = Rank(static_cast<Rank::Value>(fifth - plan->members.begin()));
  CHECK(plan->shares == std::vector<Rank>(6, rank));

  ThreeToChange holds({{2}, {2}, {2}}, WorkerRole::kCompute, WorkerRole::kBoth);
  holds.leave(3, 60'000);
  const auto stays = holds.after(kWindow);
  CHECK((!stays || members_of(*stays) == "123d"));
}

// ---- Moves ------------------------------------------------------------------------------------

TEST_CASE("preparing: when the moves are done, one more plan promotes and trims, and no further") {
  ThreeToChange three;
  three.join(4);
  REQUIRE(three.after(kWindow).has_value());
  three.run(6);
  CHECK_FALSE(three.now().has_value());
  three.enter(10);
  const auto promotes = three.now();
  REQUIRE(promotes.has_value());
  CHECK(promotes->cause == "moves done");
  CHECK(promotes->moves.empty());
  const Rank joined =
      static_cast<Rank>(std::find_if(promotes->members.begin(), promotes->members.end(),
                                     [](const Member& m) { return m.who.nonce == 4; }) -
                        promotes->members.begin());
  CHECK(std::any_of(promotes->holders.begin(), promotes->holders.end(), [&](const auto& holders) {
    return std::count(holders.begin(), holders.end(), joined) != 0;
  }));
  three.run(11);
  CHECK_FALSE(three.now().has_value());
}

// ---- Shares -----------------------------------------------------------------------------------

TEST_CASE("preparing: in its first step a joiner counts as the median of the others") {
  ThreeToChange three;
  for (const auto& [n, ns] : {std::pair{1, 100}, {2, 100}, {3, 400}}) {
    Heartbeat beat{kFirst, 5, {}};
    beat.micro_batch_ns = static_cast<std::uint64_t>(ns);
    three.say(static_cast<std::uint64_t>(n), beat);
  }
  three.config.micro_batches = 13;
  three.join(4);
  const auto plan = three.after(kWindow);
  REQUIRE(plan.has_value());
  REQUIRE(plan->shares.size() == 13);
  for (Rank r = 0; r < plan->members.size(); ++r) {
    const auto share = std::count(plan->shares.begin(), plan->shares.end(), r);
    CHECK(share == (plan->members[r].who.nonce == 3 ? 1 : 4));
  }
}

}  // namespace
}  // namespace starling::elastic
