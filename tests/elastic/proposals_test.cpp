// What a leader of term 3 has proposed and Raft has not committed yet.

#include "elastic/membership/proposals.h"

#include <doctest/doctest.h>

namespace starling::elastic {
namespace {

constexpr Incarnation kWho{4, 77}, kOther{5, 78};

Plan plan_of(std::uint64_t term) {
  Plan plan;
  plan.id = {term, 1};
  return plan;
}
Joined join_of(const Incarnation& who) {
  Joined joined;
  joined.join.who = who;
  joined.join.name = "w";
  return joined;
}

TEST_CASE("proposals: R10, while one about epochs is under way nothing else is decided") {
  for (const Entry& entry : {Entry{plan_of(3)}, Entry{Restarted{}}, Entry{Damaged{}}}) {
    Proposals proposals(3);
    CHECK_FALSE(proposals.deciding());
    proposals.proposed(entry);
    CHECK(proposals.deciding());
    proposals.applied(Joined{});
    CHECK(proposals.deciding());
    proposals.applied(entry);
    CHECK_FALSE(proposals.deciding());
  }
}

// A leader before this one may have left one in the log.
TEST_CASE("proposals: R10, a plan of another term does not end the wait for this one's") {
  Proposals proposals(3);
  proposals.proposed(plan_of(3));
  proposals.applied(plan_of(2));
  CHECK(proposals.plan());
  proposals.applied(plan_of(3));
  CHECK_FALSE(proposals.plan());
}

TEST_CASE("proposals: after the end of the job nothing is decided any more") {
  Proposals proposals(3);
  proposals.proposed(JobEnded{});
  proposals.applied(JobEnded{});
  CHECK(proposals.end());
  CHECK(proposals.deciding());
}

TEST_CASE("proposals: joins, leaves and losses are each under way until they are committed") {
  Proposals proposals(3);
  proposals.proposed(join_of(kWho));
  REQUIRE(proposals.joining(kWho) != nullptr);
  CHECK(*proposals.joining(kWho) == "w");
  CHECK(proposals.joining(kOther) == nullptr);
  CHECK_FALSE(proposals.deciding());
  proposals.applied(join_of(kOther));
  CHECK(proposals.joining(kWho) != nullptr);
  proposals.applied(join_of(kWho));
  CHECK(proposals.joining(kWho) == nullptr);

  proposals.proposed(LeaveAnnounced{kWho});
  proposals.proposed(Lost{kOther, /*certain=*/true});
  CHECK(proposals.leaving(kWho));
  CHECK_FALSE(proposals.leaving(kOther));
  CHECK(proposals.losing(kOther));
  CHECK_FALSE(proposals.losing(kWho));
  proposals.applied(LeaveAnnounced{kWho});
  proposals.applied(Lost{kOther, /*certain=*/true});
  CHECK_FALSE(proposals.leaving(kWho));
  CHECK_FALSE(proposals.losing(kOther));
}

}  // namespace
}  // namespace starling::elastic
