// A key that two lives use, by itself: life n has nonce n, all have the key "w". The warnings
// about such a key are shown with a whole leader in leader_keys_test.cpp.

#include "elastic/membership/key_claims.h"

#include <doctest/doctest.h>

#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

using Answer = KeyClaims::Answer;

// Life 1 has joined, at 1 ms.
struct OneKey {
  OneKey() {
    group.apply(JobStarted{});
    join(1);
  }
  void join(std::uint64_t n) {
    Joined joined;
    joined.join.who = {0, Nonce(n)};
    joined.join.name = "w";
    REQUIRE(group.apply(joined));
    roster.joined({n, Nonce(n)});
  }
  void at(std::uint64_t now_ms) { roster.look(now_ms); }
  void hear(std::uint64_t n, std::uint64_t now_ms) {
    at(now_ms);
    roster.heard({n, Nonce(n)});
    claims.heard({n, Nonce(n)});
  }
  Answer ask(std::uint64_t n, const std::string& key = "w") {
    const KeyClaims::Ruling ruling = claims.ask({0, Nonce(n)}, key);
    claims.check_invariants();
    CHECK((ruling.user == nullptr) == (ruling.answer == Answer::kFree));
    return ruling.answer;
  }

  const LeaderConfig config;
  Group group;
  Roster roster{config, group, 1};
  KeyClaims claims{kLease, group, roster};
};

TEST_CASE("claims: a key that nobody else has is free") {
  OneKey one;
  CHECK(one.ask(2, "another") == Answer::kFree);
  CHECK(one.ask(1) == Answer::kFree);  // its own
}

TEST_CASE("claims: the key of a life that is heard after the question is in use") {
  OneKey one;
  CHECK(one.ask(2) == Answer::kAskAgain);
  one.hear(1, 600);
  const KeyClaims::Ruling ruling = one.claims.ask({0, 2}, "w");
  CHECK(ruling.answer == Answer::kInUse);
  REQUIRE(ruling.user != nullptr);
  CHECK(ruling.user->who.nonce == 1);
}

// What was under way when the new life asked may be the last word of the old one.
TEST_CASE("claims: a word within half a lease of the question proves nothing") {
  OneKey one;
  CHECK(one.ask(2) == Answer::kAskAgain);
  one.hear(1, 400);
  CHECK(one.ask(2) == Answer::kAskAgain);
  one.at(1002);  // silent for less than a lease
  CHECK(one.ask(2) == Answer::kAskAgain);
  one.at(1500);
  CHECK(one.ask(2) == Answer::kFree);
}

TEST_CASE("claims: a life that is refused may ask again, and is waited for as at first") {
  OneKey one;
  CHECK(one.ask(2) == Answer::kAskAgain);
  one.hear(1, 600);
  CHECK(one.ask(2) == Answer::kInUse);
  CHECK(one.ask(2) == Answer::kAskAgain);
  one.at(1700);
  CHECK(one.ask(2) == Answer::kFree);
}

TEST_CASE("claims: a dead life has no key") {
  OneKey one;
  CHECK(one.ask(2) == Answer::kAskAgain);
  one.group.apply(Lost{{1, 1}, /*certain=*/true});
  CHECK(one.ask(2) == Answer::kFree);
}

TEST_CASE("claims: a life that was left out of a plan has no key") {
  OneKey one;
  one.join(2);
  Plan plan;
  plan.id = {1, 1};
  for (const std::uint64_t n : {1, 2}) plan.members.emplace_back().who = {n, Nonce(n)};
  REQUIRE(one.group.apply(plan));
  one.roster.follow(plan);
  CHECK(one.ask(3) == Answer::kAskAgain);
  Plan without = plan;
  without.id = {1, 2};
  without.predecessor = plan.id;
  without.kind = PlanKind::kForced;
  without.members.clear();
  REQUIRE(one.group.apply(without));
  one.roster.follow(without);
  CHECK(one.ask(3) == Answer::kFree);
}

// The question is about one life: what was heard of the one before it does not count against the
// next.
TEST_CASE("claims: where another life takes the key, the question begins anew") {
  OneKey one;
  CHECK(one.ask(3) == Answer::kAskAgain);
  one.hear(1, 600);
  one.group.apply(Lost{{1, 1}, /*certain=*/true});
  one.join(2);
  CHECK(one.ask(3) == Answer::kAskAgain);
  one.hear(2, 1200);
  CHECK(one.ask(3) == Answer::kInUse);
}

TEST_CASE("claims: however many lives ask, few are remembered") {
  OneKey one;
  for (std::uint64_t n = 2; n < 2 + 3 * KeyClaims::kMax; ++n)
    CHECK(one.ask(n) == Answer::kAskAgain);
}

}  // namespace
}  // namespace starling::elastic
