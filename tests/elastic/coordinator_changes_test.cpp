// Which coordinators may take part in the group, and which addresses the group tells other processes.

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/wire/codec.h"
#include "elastic/membership/coordinator.h"

namespace starling::elastic {
namespace {

// The only coordinator of a group, which leads; its disk answers at once.
struct Leading {
  Leading() {
    CoordinatorConfig config;
    config.raft.election_ms = 150;
    config.leader.job_hash = config.job.job_hash = 7;
    coordinator.emplace(std::move(config), HardState{}, std::vector<RaftEntry>{});
    run(1000);
    REQUIRE(coordinator->leads());
  }
  void run(std::uint64_t ms) {
    for (const auto end = now + ms; now < end; now += 10) on(coordinator_event::Tick{now});
  }
  void on(const CoordinatorEvent& event) {
    for (auto& command : coordinator->on(event)) {
      if (auto* said = std::get_if<coordinator_command::SendWorker>(&command)) {
        if (auto* answer = std::get_if<ChangeAnswered>(&said->body)) answers.push_back(*answer);
        if (auto* told = std::get_if<Seats>(&said->body)) seats.push_back(*told);
      }
      if (auto* dial = std::get_if<coordinator_command::Dial>(&command)) dialled = dial->seats;
      if (std::holds_alternative<coordinator_command::Persist>(command))
        on(coordinator_event::Persisted{});
    }
  }
  // Asks as place `place`, and returns the answer.
  ChangeAnswered ask(std::uint32_t place, ChangeAsked asked) {
    answers.clear();
    on(coordinator_event::ChangeArrived{{0, Nonce(100 + place)}, place, std::move(asked)});
    return answers.empty() ? ChangeAnswered{} : answers.back();
  }
  static ChangeAsked to_add(std::uint32_t place, std::uint64_t life,
                            std::string address = "tcp://10.0.0.4:7000") {
    ChangeAsked asked;
    asked.add = place;
    asked.address = std::move(address);
    asked.life = Nonce(life);
    asked.job_hash = 7;
    return asked;
  }

  std::optional<Coordinator> coordinator;
  std::vector<ChangeAnswered> answers;
  std::vector<Seats> seats;
  Seats dialled;
  std::uint64_t now = 0;
};

}  // namespace

// Goal: nobody takes part before the log says whose the place is.
TEST_CASE("coordinator: a place is given to the first life that asks, for good") {
  Leading one;
  CHECK(one.ask(1, Leading::to_add(1, 50)).state == ChangeState::kUnderWay);
  CHECK(!one.coordinator->raft().members().learner);
  CHECK(one.ask(1, Leading::to_add(1, 50)).state == ChangeState::kMayBegin);
  CHECK(one.coordinator->raft().members().learner == 1);
  CHECK(one.dialled.seats == std::vector<Seat>{{1, "tcp://10.0.0.4:7000"}});
  // Another life, of an emptied folder or of a second process, never gets it.
  const auto other = one.ask(1, Leading::to_add(1, 51));
  CHECK(other.state == ChangeState::kRefused);
  CHECK(other.reason.find("a place is given out once") != std::string::npos);
  // The same life may come to another address.
  one.ask(1, Leading::to_add(1, 50, "tcp://10.0.0.5:7000"));
  CHECK(one.dialled.seats == std::vector<Seat>{{1, "tcp://10.0.0.5:7000"}});
  CHECK(one.ask(1, Leading::to_add(1, 50)).state == ChangeState::kMayBegin);
}

TEST_CASE("coordinator: a place that was given up is not given out again") {
  Leading one;
  one.ask(1, Leading::to_add(1, 50));
  one.ask(1, Leading::to_add(1, 50));
  ChangeAsked gives_up;
  gives_up.remove = 1;
  CHECK(one.ask(0, gives_up).state != ChangeState::kRefused);
  CHECK(one.ask(0, gives_up).state == ChangeState::kDone);
  CHECK(one.ask(1, Leading::to_add(1, 50)).state == ChangeState::kRefused);
}

// Goal: the group refuses a newcomer that could not use the log before its place is given out.
TEST_CASE("coordinator: one with another job file is refused, and nothing is given") {
  Leading one;
  ChangeAsked other = Leading::to_add(1, 50);
  other.job_hash = 8;
  const auto refused = one.ask(1, other);
  CHECK(refused.state == ChangeState::kRefused);
  CHECK(refused.reason.find("the job file of coordinator-1 is another one") == 0);
  CHECK(one.coordinator->group().seats().empty());
  CHECK(one.ask(1, Leading::to_add(1, 51)).state == ChangeState::kUnderWay);
}

// Goal: of two that begin at once none uses up the place of the other.
TEST_CASE("coordinator: a later place waits for one before it that asks as well") {
  for (const bool later_first : {true, false}) {
    CAPTURE(later_first);
    Leading one;
    for (const std::uint32_t place : {later_first ? 2u : 1u, later_first ? 1u : 2u})
      one.ask(place, Leading::to_add(place, 50 + place));
    const auto waits = one.ask(2, Leading::to_add(2, 52));
    CHECK(waits.state == ChangeState::kUnderWay);
    CHECK(waits.reason == "coordinator-1 comes first");
    CHECK(one.ask(1, Leading::to_add(1, 51)).state == ChangeState::kMayBegin);
    CHECK(one.ask(2, Leading::to_add(2, 52)).state != ChangeState::kRefused);
  }
  // One that asks no more keeps nobody waiting; then its place is passed over, and it hears so.
  Leading one;
  one.ask(1, Leading::to_add(1, 51));
  one.run(5000);
  one.ask(2, Leading::to_add(2, 52));
  CHECK(one.ask(2, Leading::to_add(2, 52)).state == ChangeState::kMayBegin);
  const auto late = one.ask(1, Leading::to_add(1, 51));
  CHECK(late.state == ChangeState::kRefused);
  CHECK(late.reason.find("or one that comes after it has") != std::string::npos);
}

TEST_CASE("coordinator: what makes no sense is refused or not answered") {
  Leading one;
  CHECK(one.ask(0, Leading::to_add(0, 50)).reason.find("is started without --add") !=
        std::string::npos);
  ChangeAsked only;
  only.remove = 0;
  CHECK(one.ask(0, only).reason == "coordinator-0 is the only coordinator of the group");
  ChangeAsked nobody;
  nobody.remove = 5;
  CHECK(one.ask(0, nobody).reason == "coordinator-5 is not in the group");
  one.ask(2, Leading::to_add(1, 50));  // a place that is not the sender's
  CHECK(one.answers.empty());
  one.ask(1, Leading::to_add(1, 0));
  CHECK(one.answers.empty());
}

// Goal: a process that knows the first addresses alone learns the others, also of a member that is out and has not
// heard so.
TEST_CASE("coordinator: where members are is told when the group changes") {
  Leading one;
  CHECK(one.dialled.seats.empty());
  one.ask(1, Leading::to_add(1, 50));
  one.ask(1, Leading::to_add(1, 50));
  CHECK(one.dialled.seats == std::vector<Seat>{{1, "tcp://10.0.0.4:7000"}});
  ChangeAsked gives_up;
  gives_up.remove = 1;
  one.ask(0, gives_up);
  one.ask(2, Leading::to_add(2, 52, "tcp://10.0.0.6:7000"));
  CHECK(one.dialled.seats ==
        std::vector<Seat>{{1, "tcp://10.0.0.4:7000"}, {2, "tcp://10.0.0.6:7000"}});
}

// Goal: an address in the log of a member that begins again counts while the group has decided none, and no longer.
TEST_CASE("coordinator: a member that moved is reached where the group says last") {
  const std::string old = "tcp://10.0.0.4:7000", now = "tcp://10.0.0.5:7000";
  const auto at = [](std::uint64_t index, const std::string& address) {
    return RaftEntry{index, 1, encode_entry(CoordinatorAt{3, address, Nonce(50)}), {}};
  };
  CoordinatorConfig config;
  config.raft.self = 1;
  config.raft.size = 2;
  config.leader.job_hash = config.job.job_hash = 7;
  HardState kept;
  kept.term = 1;
  Coordinator follower(config, kept, {at(1, old)});
  Seats dialled;
  const auto on = [&](auto&& self, const CoordinatorEvent& event) -> void {
    for (auto& command : follower.on(event)) {
      if (auto* dial = std::get_if<coordinator_command::Dial>(&command)) dialled = dial->seats;
      if (std::holds_alternative<coordinator_command::Persist>(command))
        self(self, coordinator_event::Persisted{});
    }
  };
  const auto append = [&](std::uint64_t before, std::uint64_t commit,
                          std::vector<RaftEntry> entries) {
    RaftMessage message;
    message.to = 1;
    message.term = 1;
    message.last_index = before;
    message.last_term = before == 0 ? 0 : 1;
    message.commit = commit;
    message.entries = std::move(entries);
    on(on, coordinator_event::RaftArrived{0, message});
  };
  on(on, coordinator_event::Tick{10});
  CHECK(dialled.seats == std::vector<Seat>{{3, old}});
  append(1, 1, {at(2, now)});
  CHECK(dialled.seats == std::vector<Seat>{{3, old}});
  append(2, 2, {});
  CHECK(dialled.seats == std::vector<Seat>{{3, now}});
}

// Goal: a coordinator that gets the group's state knows the places that were given out.
TEST_CASE("group: places of coordinators are in its state") {
  Group group;
  const CoordinatorAt seat{3, "tcp://10.0.0.4:7000", Nonce(50)};
  CHECK(group.apply(seat));
  CHECK(!group.apply(seat));
  CHECK(!group.apply(CoordinatorAt{3, "tcp://10.0.0.6:7000", Nonce(51)}));
  CHECK(!group.apply(CoordinatorAt{64, "tcp://10.0.0.6:7000", Nonce(51)}));
  const auto decoded = decode_group(encode_group(group.state()));
  REQUIRE(decoded);
  Group other;
  other.restore(decoded.value());
  CHECK(other.seats().at(3) == seat);
  CHECK(other.seats().size() == 1);
}

}  // namespace starling::elastic
