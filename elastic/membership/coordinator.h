#pragma once
// Coordinator is one coordinator: its member of the Raft group, the replicated membership state,
// and, while it leads, the leader that forms epochs. Pure: events in, commands out, in the order in
// which they are to be carried out.
//
// Threads: none; belongs to the caller of on().

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/observe/event.h"
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
// From the holder of the key of a coordinator's place, in the group or not.
struct ChangeArrived {
  Incarnation from;
  std::uint32_t place = 0;
  ChangeAsked asked;
};
using AdminArrived = leader_event::AdminArrived;
struct HandOver {};       // another one is to lead, if this one does: it is about to end
struct Persisted {};      // everything that Persist asked for is synced
struct AskCheckpoint {};  // a last one, before the run is ended
using EndRun = leader_event::EndRun;
using Revoked = leader_event::Revoked;
struct Stored {  // answer to StoreCheckpoint; an empty error: it is there
  Version version = 0;
  std::string error;
};
}  // namespace coordinator_event

using CoordinatorEvent = std::variant<
    coordinator_event::Tick, coordinator_event::RaftArrived, coordinator_event::WorkerSaid,
    coordinator_event::Persisted, coordinator_event::Stored, coordinator_event::AskCheckpoint,
    coordinator_event::EndRun, coordinator_event::Revoked, coordinator_event::ChangeArrived,
    coordinator_event::AdminArrived, coordinator_event::HandOver>;

namespace coordinator_command {
// Write and sync, then answer Persisted. Messages that depend on it come only after that answer;
// everything else may go on meanwhile, however long the disk takes. There is one at a time.
struct Persist {
  std::optional<HardState> hard_state;
  std::optional<RaftSnapshot> snapshot;  // it and `append` replace all that was saved, as one
  std::vector<RaftEntry> append;         // an index that exists already: truncate from there first
};
struct Fail {  // this coordinator cannot go on: print why and end; it answers no message any more
  std::string reason;
  bool taken_out = false;  // of the group, as somebody asked for
};
struct Dial {  // coordinators are reached there from now on; others want to know
  Seats seats;
};
struct SendRaft {
  RaftMessage message;
};
struct SendWorker {  // best effort; everything that matters is sent again
  Incarnation to;
  Message body;
};
// The log is that of another job: end this process, which does and says nothing from here on.
struct RefuseJob {
  std::uint64_t of_log = 0, of_file = 0;  // hashes
};
struct Tell {  // people and files
  Event event;
  bool of_log = false;  // by one that does not lead, from its log: it measured nothing
};
using StoreCheckpoint = leader_command::Store;  // must not hold up anything else; -> Stored
using TidyCheckpoints = leader_command::Tidy;
}  // namespace coordinator_command

using CoordinatorCommand =
    std::variant<coordinator_command::Persist, coordinator_command::SendRaft,
                 coordinator_command::SendWorker, coordinator_command::StoreCheckpoint,
                 coordinator_command::TidyCheckpoints, coordinator_command::Fail,
                 coordinator_command::RefuseJob, coordinator_command::Tell,
                 coordinator_command::Dial>;
using CoordinatorCommands = std::vector<CoordinatorCommand>;

// The name of the key of a place: "coordinator-3".
std::string coordinator_name(std::uint32_t place);

struct CoordinatorConfig {
  RaftConfig raft;
  LeaderConfig leader;
  JobStarted job;
  EpochKey secret{};  // random, of this process: epoch keys are derived from it
  Version told = 0;   // no step from this version on was told by a process before this one
  // A snapshot follows when more entries than this were applied since the last one: a restart reads
  // no more than a few times as much.
  std::size_t log_entries_max = 1024;
  std::size_t log_bytes_max = 256 * 1024;
  std::size_t waiting_bytes_max = 64 * 1024 * 1024;  // of proposals that Raft does not take yet
};

class Coordinator {
 public:
  // The arguments are as saved, see Raft; the snapshot's data must decode (core/wire/codec.h).
  Coordinator(CoordinatorConfig config, HardState hard_state, std::vector<RaftEntry> log,
              RaftSnapshot snapshot = {});
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
  bool has_rate(const AdminAsked& asked) const;
  void note_step(const Incarnation& from, const Progress& progress);
  void note_asker(const Incarnation& from, const std::string& name, const Join& question);
  void on_event(const coordinator_event::AskCheckpoint& e);
  void on_event(const coordinator_event::EndRun& e);
  void on_event(const coordinator_event::Revoked& e);
  void on_event(const coordinator_event::ChangeArrived& e);
  void on_event(const coordinator_event::AdminArrived& e);
  void on_event(const coordinator_event::HandOver&) { raft_.hand_over(); }
  Seats seats() const;
  std::optional<std::uint32_t> comes_first(std::uint32_t place) const;
  void dial();
  void review_members();
  void tell(Event event) { commands_.push_back(coordinator_command::Tell{std::move(event)}); }
  void tell_all(const Entry& entry);
  event::Ended ended_event(const JobEnded& end) const;

  bool of_other_job();
  void drain();  // carries Raft's duties out as far as they go without the disk
  void finish_ready();
  void apply(const RaftEntry& entry);
  bool restore(const RaftSnapshot& snapshot);
  void tell_restored(std::vector<Checkpoint> known);
  void compact_if_long();
  void review_recall();
  void review_quorum();
  void warn(std::string text);
  void review_leadership();
  void take(LeaderCommands commands);
  void propose(Entry entry);

  CoordinatorConfig config_;
  Raft raft_;
  Group group_;
  std::unique_ptr<Leader> leader_;  // set while it leads and an entry of its term is applied (R10)
  std::uint64_t job_proposed_ = 0;  // in this term
  bool refused_ = false;            // the log is that of another job
  std::optional<Ready> waiting_;    // for Persisted
  std::deque<Bytes> unproposed_;    // Raft had too much uncommitted; made again, in order
  std::size_t unproposed_bytes_ = 0;
  std::size_t applied_ = 0, applied_bytes_ = 0;  // since the last snapshot
  bool restored_ = false;                        // nothing of the snapshot is told yet
  bool failed_ = false;
  bool checkpoint_asked_ = false;
  std::optional<coordinator_event::EndRun> end_asked_;  // also of a later leader
  std::uint64_t now_ms_ = 0;
  std::uint64_t recall_told_ms_ = 0;  // 0: not yet
  std::uint64_t no_log_ms_ = 0;       // since when no member has a log; 0: one may have it
  bool was_whole_ = true;
  std::uint64_t no_leader_ms_ = 0;  // since when none is known; 0: one is
  Version told_ = 0;                // no step from this version on was told here
  bool told_no_leader_ = false;
  std::map<std::uint32_t, std::string> heard_at_;    // addresses of places, whether decided or not
  std::map<std::uint32_t, std::uint64_t> asked_ms_;  // when a place last asked to take part
  std::uint64_t heard_to_ = 0;  // index of the last entry that the log had when this one began
  bool dialled_ = false;        // what the log had at the start
  std::vector<std::uint32_t> told_voters_;  // the last that were told
  std::deque<Nonce> askers_;                // told to prepare while it led, the newest last
  CoordinatorCommands commands_;            // of the event being handled
};

}  // namespace starling::elastic
