// A key that two workers have: who is let in, and who is told what.

#include <doctest/doctest.h>

#include <string>

#include "tests/elastic/one_leader.h"

namespace starling::elastic {
namespace {

// Life `nonce` says this with the key of `name`.
void say_as(OneLeader& one, std::uint64_t nonce, const std::string& name, Message body) {
  one.on(leader_event::Said{{nonce, Nonce(nonce)}, name, std::move(body)});
}
void ask_as(OneLeader& one, std::uint64_t nonce, const std::string& name) {
  Join join;
  join.who = {0, Nonce(nonce)};
  join.fingerprint = {7, 7};
  join.host = "host-" + std::to_string(nonce);
  say_as(one, nonce, name, join);
}
template <class T>
const T* told(const OneLeader& one, std::uint64_t nonce) {
  const T* found = nullptr;
  for (const auto& sent : one.sent)
    if (const auto* body = std::get_if<T>(&sent.body); body && sent.to.nonce == nonce) found = body;
  return found;
}

// Goal: of two workers with one key the one that was there first goes on, the other is refused, and
// both are told in a line. Method: the first one is heard while the second one asks.
TEST_CASE("leader: a key that two workers have is refused to the second, and told to both") {
  OneLeader one;
  ask_as(one, 1, "worker-0");
  one.commit();
  for (int i = 0; i < 20 && !told<Refused>(one, 2); ++i) {
    one.pass_time(100);
    say_as(one, 1, "worker-0", Heartbeat{});
    ask_as(one, 2, "worker-0");
    CHECK(one.first_proposed<Joined>() == nullptr);
  }
  REQUIRE(told<Refused>(one, 2));
  CHECK(told<Refused>(one, 2)->reason.find("key of worker-0 is in use by the worker at host-1") !=
        std::string::npos);
  REQUIRE(told<LeaderHint>(one, 1));
  CHECK(told<LeaderHint>(one, 1)->note.find("host-2") != std::string::npos);
  CHECK(!told<Refused>(one, 1));
}

// Goal: a worker that went down with its guard is let in again when it is back, and does not have
// to wait for longer than a lease.
TEST_CASE("leader: a life that is not heard any more keeps its key for a lease") {
  OneLeader one;
  ask_as(one, 1, "worker-0");
  one.commit();
  std::uint64_t waited = 0;
  for (; waited < 5 * kLease && one.first_proposed<Joined>() == nullptr; waited += 100) {
    one.pass_time(100);
    ask_as(one, 2, "worker-0");
  }
  CHECK(one.first_proposed<Joined>() != nullptr);
  CHECK(waited <= kLease + 300);
  CHECK(!told<Refused>(one, 2));
}

TEST_CASE("leader: the next life of a worker that is dead, or was left out, waits for nothing") {
  OneLeader one;
  ask_as(one, 1, "worker-0");
  one.commit();
  say_as(one, 9, "worker-0", Death{{1, 1}});
  one.commit();
  ask_as(one, 2, "worker-0");
  CHECK(one.first_proposed<Joined>() != nullptr);
}

// Goal: people read who was shut out, and not who stopped first because of it.
TEST_CASE("leader: a member whose key is revoked is left out, and is the cause") {
  OneLeader one;
  one.begin(5);
  one.on(leader_event::Revoked{{"2", "9"}});
  for (std::uint64_t nonce : {1, 3}) one.report(nonce, one.asked(), one.group.plan()->id, 5);
  const Plan* plan = one.proposed();
  REQUIRE(plan != nullptr);
  CHECK(members_of(*plan) == "13");
  CHECK(plan->cause == "2 revoked");
}

// Method: the report of the member that stops comes before the death of the other, or after it.
TEST_CASE("leader: a member that dies is the cause, and not the one that stops because of it") {
  for (const bool death_first : {false, true}) {
    CAPTURE(death_first);
    OneLeader one;
    one.begin(5);
    const EpochId running = one.group.plan()->id;
    if (death_first) one.die(3);
    one.report(1, EpochId{running.term, running.counter + 1}, running, 5);
    if (!death_first) one.die(3);
    for (std::uint64_t nonce : {1, 2}) one.report(nonce, one.asked(), running, 5);
    const Plan* plan = one.proposed();
    REQUIRE(plan != nullptr);
    CHECK(members_of(*plan) == "12");
    CHECK(plan->cause == "lost 3");
  }
}

TEST_CASE("leader: a key that no member has is revoked without an epoch") {
  OneLeader one;
  one.begin(5);
  one.on(leader_event::Revoked{{"9"}});
  CHECK(one.asked() == EpochId{});
}

}  // namespace
}  // namespace starling::elastic
