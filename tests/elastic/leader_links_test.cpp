// A link that does not stand costs no state: a member is left out for it only if the others can do
// without what it has and what it knows. Method: a leader with r = 0, so that each copy is the only
// one; worker 1 has segments 0 and 1, worker 2 segment 2, worker 3 segment 3.

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/elastic/one_leader.h"
#include "tests/elastic/usual.h"

namespace starling::elastic {
namespace {

struct SoleCopies : OneLeader {
  SoleCopies() : OneLeader({}, /*r=*/0) {}
  // What one says of the question that is open; a bit of `copies` is a segment, the lowest first.
  struct Says {
    std::uint64_t nonce;
    EpochId entered;
    Version version;
    unsigned copies = 0;
    bool pending = false;
    std::vector<std::uint64_t> unreached{};
  };
  void report(const Says& says) {
    Report r;
    r.promise = asked();
    r.entered = says.entered;
    r.version = says.version;
    r.pending = says.pending;
    r.parameters_complete = says.version != kNoVersion;
    r.copies.assign(kSegments, false);
    for (std::uint32_t s = 0; s < kSegments; ++s) r.copies[s] = (says.copies >> s & 1) != 0;
    for (const std::uint64_t n : says.unreached) r.broken.push_back({n, Nonce(n)});
    if (!r.broken.empty()) r.fault = LinkFault::kUnreached;
    say(says.nonce, r);
  }
  // A member stops by itself, and all answer the question that follows.
  void breaks(const std::vector<Says>& all) {
    sent.clear();
    broken = group.plan()->id;
    OneLeader::report(all.front().nonce, group.plan()->id.next(), all.front().entered,
                      all.front().version);
    for (const Says& says : all) report(says);
    commit();
  }
  // The members of the plan that followed, and its base; or the job's end.
  std::string follows() const {
    if (const auto& e = group.end()) return std::to_string(e->exit_code) + " " + e->reason;
    if (group.plan()->id == broken) return "nothing";
    return members_of(*group.plan()) + " from " + std::to_string(group.plan()->base);
  }
  EpochId broken;
};

// Worker 1 was frozen while the connections of a prepared plan were made, at version 0. It alone
// has not voted for step 0: without its word the others, which have, cannot know that no vote
// passed, and would need its copies of the next version.
struct FrozenAtTheStart : SoleCopies {
  FrozenAtTheStart() {
    begin(0);
    REQUIRE(group.plan()->id == kFirst);
    join(4);
    pass_time(kLease / 2);  // the window of joins
    commit();
    REQUIRE(group.plan()->kind == PlanKind::kPrepared);
    REQUIRE(members_of(*group.plan()) == "1243");
    breaks({{1, kFirst, 0, 0b0011},
            {2, kFirst, 0, 0b0100, /*pending=*/true, {1}},
            {3, kFirst, 0, 0b1000, /*pending=*/true, {1}},
            {4, {}, kNoVersion, 0, false, {1}}});
  }
};

TEST_CASE("leader: who alone knows that no vote passed is not left out for its links") {
  FrozenAtTheStart one;
  one.pass_time_hearing({1, 2, 3, 4}, 2 * LeaderConfig{}.elastic.state_timeout_ms);
  one.commit();
  CHECK(one.follows() == "1243 from 0");
  CHECK(one.group.plan()->kind == PlanKind::kFresh);
}

// The next plan is fresh, and who enters it drops what it had voted for.
TEST_CASE("leader: if nobody can connect to it the plan after goes on without it") {
  FrozenAtTheStart one;
  const EpochId second = one.group.plan()->id;
  one.breaks({{2, second, 0, 0b0100, false, {1}},
              {1, second, 0, 0b0011},
              {3, second, 0, 0b1000, false, {1}},
              {4, second, kNoVersion, 0, false, {1}}});
  CHECK(one.follows() == "243 from 0");
}

// The same if none of the others has heard of the next plan when it breaks.
TEST_CASE("leader: who alone knows it stays as long as that is so") {
  FrozenAtTheStart one;
  const EpochId second = one.group.plan()->id;
  one.breaks({{1, second, 0, 0b0011, false, {2, 3, 4}},
              {2, kFirst, 0, 0b0100, /*pending=*/true},
              {3, kFirst, 0, 0b1000, /*pending=*/true},
              {4, {}, kNoVersion}});
  CHECK(one.follows() == "1243 from 0");
}

// Workers 1 and 2 do not reach each other, in plan after plan.
struct Apart : SoleCopies {
  Apart() { begin(5); }
  void breaks_once(bool stood = false, Version version = 5) {
    const EpochId running = group.plan()->id;
    std::vector<Says> all{{1, running, version, 0b0011},
                          {2, running, version, 0b0100},
                          {3, running, version, 0b1000}};
    if (!stood) all[0].unreached = {2};
    breaks(all);
  }
  // As often as it takes, each time after `wait_ms`.
  void breaks_for(std::uint64_t ms, std::uint64_t wait_ms = 5000) {
    for (std::uint64_t passed = 0; passed < ms && !group.end() && !group.restart();
         passed += wait_ms) {
      breaks_once();
      if (!group.end()) pass_time_hearing({1, 2, 3}, wait_ms);
    }
  }
  const std::uint64_t timeout_ms = LeaderConfig{}.elastic.state_timeout_ms;
};

TEST_CASE("leader: of two apart that both have the only copy of something none is left out") {
  Apart one;
  one.breaks_for(one.timeout_ms);
  CHECK(one.follows() == "123 from 5");
  SUBCASE("when they reach each other all go on") {
    one.pass_time_hearing({1, 2, 3}, 2 * one.timeout_ms);
    for (const std::uint64_t n : {1, 2, 3}) one.say(n, Heartbeat{one.group.plan()->id, 6, {}});
    one.breaks_once(/*stood=*/true, 6);
    CHECK(one.follows() == "123 from 6");
    one.breaks_once(/*stood=*/false, 6);
    CHECK(one.follows() == "123 from 6");
  }
  SUBCASE("when they never do the job ends, and says so") {
    one.breaks_for(one.timeout_ms);
    CHECK(
        one.follows() ==
        "4 state lost: 1 and 2 have not connected to each other for 65000 ms, and nobody else has "
        "what each of them has; there is no checkpoint to start from");
  }
}

TEST_CASE("leader: if two stay apart for good the job goes on from a checkpoint") {
  Apart one;
  Published published;
  published.checkpoint.version = Version{4};
  one.apply(published);
  one.breaks_for(2 * one.timeout_ms);
  CHECK_FALSE(one.group.end());
  REQUIRE(one.group.restart().has_value());
  CHECK(one.group.restart()->cause.find("1 and 2 have not connected to each other") == 0);
}

TEST_CASE("leader: people are told of two that stay apart, once") {
  struct Watched : Apart {
    void take(const LeaderCommand& command) override {
      const auto* event = std::get_if<Event>(&command);
      const auto* warning = event ? std::get_if<event::Warning>(event) : nullptr;
      if (warning) warnings.push_back(warning->text);
    }
    std::vector<std::string> warnings;
  } one;
  one.breaks_once();
  CHECK(one.warnings.empty());  // it may have been a moment
  for (int i = 0; i < 3; ++i) one.breaks_once();
  REQUIRE(one.warnings.size() == 1);
  CHECK(one.warnings[0] ==
        "1 and 2 cannot connect to each other, and nobody else has what each of them has");
}

}  // namespace
}  // namespace starling::elastic
