// What a coordinator tells beyond what its leader does.

#include "elastic/membership/coordinator.h"

#include <doctest/doctest.h>

namespace starling::elastic {
namespace {

// A group of one, whose disk answers at once.
struct Alone {
  explicit Alone(HardState state = {}, std::vector<RaftEntry> entries = {}) {
    CoordinatorConfig config;
    config.raft.size = 1;
    config.raft.election_ms = 150;
    config.job.job_hash = config.leader.job_hash = 7;
    coordinator.emplace(std::move(config), std::move(state), std::move(entries));
  }
  void on(const CoordinatorEvent& event) {
    for (auto& command : coordinator->on(event)) {
      if (auto* seen = std::get_if<Observation>(&command)) told.push_back(std::move(*seen));
      if (const auto* persist = std::get_if<coordinator_command::Persist>(&command)) {
        if (persist->hard_state) kept = *persist->hard_state;
        for (const RaftEntry& entry : persist->append) log.push_back(entry);
        on(coordinator_event::Persisted{});
      }
    }
  }
  std::vector<const Observation*> leads() const {
    std::vector<const Observation*> found;
    for (const Observation& seen : told)
      if (seen.kind == Observation::Kind::kLeader) found.push_back(&seen);
    return found;
  }

  std::optional<Coordinator> coordinator;
  std::vector<Observation> told;
  HardState kept;
  std::vector<RaftEntry> log;
};

}  // namespace

// Goal: from outside one can know which process leads, and for how long nobody may.
// Method: two lives of a group of one.
TEST_CASE("coordinator: who begins to lead says so, once a term") {
  Alone first;
  for (std::uint64_t ms = 1; ms < 500; ms += 10) first.on(coordinator_event::Tick{ms});
  REQUIRE(first.leads().size() == 1);
  CHECK(first.leads()[0]->term == 1);
  CHECK(first.leads()[0]->coordinator == 0);
  CHECK(first.leads()[0]->election_ms == 150);

  Alone second(first.kept, first.log);
  CHECK(second.leads().empty());
  for (std::uint64_t ms = 1; ms < 500; ms += 10) second.on(coordinator_event::Tick{ms});
  REQUIRE(second.leads().size() == 1);
  CHECK(second.leads()[0]->term == 2);
}

}  // namespace starling::elastic
