#pragma once
// One coordinator: its member of the Raft group, the replicated membership state, and, while it
// leads, the leader that forms epochs. Pure: events in, commands out, in the order in which they
// are to be carried out.
//
// Threads: none; belongs to whoever calls on().

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/membership/leader.h"
#include "elastic/raft/raft.h"

namespace starling::elastic {

namespace coordinator_event {
struct Tick {  // often enough: every 10 ms or so, and when the process starts
  std::uint64_t now_ms = 0;
};
struct RaftArrived {  // `from` was authenticated; message.from must equal it
  std::uint32_t from = 0;
  RaftMessage message;
};
struct WorkerSaid {  // a worker or its guard; the name is that of its key
  Incarnation from;
  std::string name;
  Message body;
};
struct Persisted {};  // everything that Persist asked for is synced
struct Stored {       // answer to StoreCheckpoint; an empty error: it is there
  Version version = 0;
  std::string error;
};
}  // namespace coordinator_event

using CoordinatorEvent = std::variant<coordinator_event::Tick, coordinator_event::RaftArrived,
                                      coordinator_event::WorkerSaid, coordinator_event::Persisted,
                                      coordinator_event::Stored>;

namespace coordinator_command {
struct Persist {  // write and sync before any later command; then answer Persisted
  std::optional<HardState> hard_state;
  std::vector<RaftEntry> append;  // an index that exists already: truncate from there first
};
struct SendRaft {
  RaftMessage message;
};
struct SendWorker {  // best effort; everything that matters is sent again
  Incarnation to;
  Message body;
};
using StoreCheckpoint = leader_command::Store;  // must not hold up anything else; -> Stored
using TidyCheckpoints = leader_command::Tidy;
}  // namespace coordinator_command

using CoordinatorCommand =
    std::variant<coordinator_command::Persist, coordinator_command::SendRaft,
                 coordinator_command::SendWorker, coordinator_command::StoreCheckpoint,
                 coordinator_command::TidyCheckpoints, Observation>;
using CoordinatorCommands = std::vector<CoordinatorCommand>;

struct CoordinatorConfig {
  RaftConfig raft;
  LeaderConfig leader;
  JobStarted job;
  EpochKey secret{};  // random, of this process: epoch keys are derived from it
};

class Coordinator {
 public:
  Coordinator(CoordinatorConfig config, HardState hard_state, std::vector<RaftEntry> log);
  ~Coordinator();

  CoordinatorCommands on(const CoordinatorEvent& event);

  const Group& group() const { return group_; }
  const Raft& raft() const { return raft_; }
  bool leads() const { return leader_ != nullptr; }

 private:
  void on_event(const coordinator_event::Tick& e);
  void on_event(const coordinator_event::RaftArrived& e);
  void on_event(const coordinator_event::WorkerSaid& e);
  void on_event(const coordinator_event::Persisted& e);
  void on_event(const coordinator_event::Stored& e);
  void tell(const Entry& entry);

  void drain();  // carries Raft's duties out as far as they go without the disk
  void finish_ready();
  void apply(const RaftEntry& entry);
  void review_leadership();
  void take(LeaderCommands commands);
  void propose(Entry entry);

  CoordinatorConfig config_;
  Raft raft_;
  Group group_;
  std::unique_ptr<Leader> leader_;  // set while it leads and an entry of its term is applied (R10)
  std::uint64_t job_proposed_ = 0;  // in this term
  std::optional<Ready> waiting_;    // for Persisted
  std::uint64_t now_ms_ = 0;
  CoordinatorCommands commands_;  // of the event being handled
};

}  // namespace starling::elastic
