// What a coordinator tells beyond what its leader does.

#include "elastic/membership/coordinator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

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
      if (auto* answer = std::get_if<coordinator_command::SendWorker>(&command))
        if (const auto* noted = std::get_if<Noted>(&answer->body))
          notes.emplace_back(noted->version, steps());
      if (auto* seen = std::get_if<Observation>(&command)) told.push_back(std::move(*seen));
      if (const auto* persist = std::get_if<coordinator_command::Persist>(&command)) {
        if (persist->hard_state) kept = *persist->hard_state;
        for (const RaftEntry& entry : persist->append) log.push_back(entry);
        on(coordinator_event::Persisted{});
      }
    }
  }
  std::size_t steps() const {
    return static_cast<std::size_t>(std::count_if(told.begin(), told.end(), [](const auto& seen) {
      return seen.kind == Observation::Kind::kStep;
    }));
  }
  std::vector<const Observation*> leads() const {
    std::vector<const Observation*> found;
    for (const Observation& seen : told)
      if (seen.kind == Observation::Kind::kLeader) found.push_back(&seen);
    return found;
  }

  std::optional<Coordinator> coordinator;
  std::vector<Observation> told;
  std::vector<std::pair<Version, std::size_t>> notes;  // and the steps that were told before
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

// Goal: who is told that a step is noted may forget it.
// Method: a coordinator that does not lead, and one that does.
TEST_CASE("coordinator: a step is noted after observers have it, whoever leads") {
  for (const bool leads : {false, true}) {
    CAPTURE(leads);
    Alone one;
    for (std::uint64_t ms = 1; leads && ms < 500; ms += 10) one.on(coordinator_event::Tick{ms});
    REQUIRE(one.leads().size() == (leads ? 1 : 0));
    Progress progress;
    progress.record.version = 7;
    one.on(coordinator_event::WorkerSaid{{1, 1}, "worker-1", progress});
    CHECK(one.notes == std::vector<std::pair<Version, std::size_t>>{{7, 1}});
  }
}

}  // namespace starling::elastic
