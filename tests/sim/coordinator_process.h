#pragma once
// One coordinator of the simulated world: the machine under test and its disk. A crash loses what
// was not yet synced, and all memory.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "elastic/membership/coordinator.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"

namespace starling::sim {

class World;

class CoordinatorProcess {
 public:
  CoordinatorProcess(World& world, std::uint32_t index);

  void start();  // with what the disk holds
  void crash();
  void wipe();         // its folder, while it is down
  bool whole() const;  // what its disk says: it has its log, or has been repaired
  void pause(Micros duration);
  void submit(std::function<void()> action);
  void handle(const elastic::CoordinatorEvent& event);

  std::uint32_t index() const { return index_; }
  bool alive() const { return machine_.has_value(); }
  bool leads() const { return alive() && machine_->leads(); }
  const elastic::Coordinator& machine() const { return *machine_; }
  // What the disk holds; scripts may write it before start().
  elastic::HardState disk_state;
  elastic::RaftSnapshot disk_snapshot;
  std::vector<RaftEntry> disk_log;  // from index 1: what the snapshot stands for stays here
  Version disk_told = 0;            // as its file of events says

 private:
  void drain_inbox();
  void carry_out(elastic::CoordinatorCommand& command);
  void write(const elastic::coordinator_command::Persist& persist);
  void store(const elastic::coordinator_command::StoreCheckpoint& store);
  void tick();

  World& world_;
  const std::uint32_t index_;
  Random random_;
  std::optional<elastic::Coordinator> machine_;
  std::uint64_t life_ = 0;
  Micros paused_until_ = 0;
  std::deque<std::function<void()>> inbox_;
  std::optional<elastic::coordinator_command::Persist> writing_;
};

}  // namespace starling::sim
