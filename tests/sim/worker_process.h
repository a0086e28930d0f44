#pragma once
// One life of a worker in the simulated world: the machines under test (elastic::Worker, and the
// executor of its orders with each epoch's frames and device transport), and between them what
// threads and actors do in production.
//
// Everything that reaches the process goes through its inbox, in order; a paused process leaves it
// there.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/worker/epoch_transport.h"
#include "actors/worker/executor.h"
#include "elastic/protocol/worker.h"
#include "tests/sim/frames.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"
#include "tests/sim/store.h"
#include "tests/sim/worker_memory.h"

namespace starling::sim {

class World;

class WorkerProcess;

// One epoch's connections, and what goes over them.
struct Link : collectives::FrameSender {
  Link(WorkerProcess& process, const elastic::worker_command::Connect& c);
  Link(const Link&) = delete;

  WorkerProcess& process;
  std::shared_ptr<const Plan> plan;
  Rank up = 0;  // connections that stand
  bool connected = false;
  std::uint32_t ready_attempt = 0;  // whose device transport was told to be ready; 0: none
  bool stopping = false;            // Stop was asked, Stopped not yet answered
  bool left = false;                // LEFT was sent: nothing that arrives here counts any more (R1)
  std::vector<bool> peer_left;      // by rank
  std::unique_ptr<actors::EpochTransport> transport;  // before the frames, which borrow from it
  actors::OpenEpoch open;

  // collectives::FrameSender
  Rank self() const override { return open.frames.self(); }
  std::uint32_t world() const override { return static_cast<std::uint32_t>(plan->members.size()); }
  void send(Rank to, FrameHeader header, collectives::Payload payload) override;
};

class WorkerProcess : private actors::ExecutorOwner {
 public:
  WorkerProcess(World& world, std::uint32_t slot, Nonce nonce);
  ~WorkerProcess() override;

  void start();
  // Runs now, or when the process wakes up; never after its death.
  void submit(std::function<void()> action);
  void handle(const elastic::WorkerEvent& event);
  void receive(const Message& message, Nonce to_nonce);

  // The bulk network's calls.
  void on_up(const EpochId& epoch);
  void on_end_of_file(const EpochId& epoch, Nonce peer_nonce);
  void on_unreached(const EpochId& epoch, Nonce peer_nonce);
  void on_silent(const EpochId& epoch, Nonce peer_nonce);
  void on_frame(const EpochId& epoch, Nonce from_nonce, const BulkFrame& frame);

  // The library finds that attempt's device transport broken here.
  void lose_transport(const EpochId& epoch, std::uint32_t attempt);
  // Does it when a compare of the working parameters has taken its time.
  void takes_compare(std::function<void()> then);

  void pause(Micros duration);
  // Nothing is computed or loaded until then; what is begun does not end. All else goes on.
  void hang(Micros duration);
  // For how long it has been so; 0 if it has not been so for longer than `lately`.
  Micros hung_for(Micros lately = 0) const;
  void kill(const char* why);
  // A bit of its working parameters changes.
  void flip(SegmentId segment);
  bool flipped() const { return flipped_; }  // once in this life
  Micros compare_takes = 0;                  // longer than the weather says; set by scripts

  std::uint32_t slot() const { return slot_; }
  std::uint32_t place() const;  // in the network
  Nonce nonce() const { return who_.nonce; }
  WorkerRole role() const { return role_; }
  const Incarnation& who() const { return who_; }
  bool alive() const { return alive_; }
  const elastic::Worker& machine() const { return machine_; }
  const Store& store() const { return store_; }
  Store& store() { return store_; }
  World& world() { return world_; }
  const std::map<EpochId, Link>& links() const { return links_; }
  WorkerMemory& memory() { return memory_; }
  bool computing() const { return computing_.has_value(); }
  std::optional<Micros> notice_end;  // set by the world
  bool admin_asked = false;          // that it leaves; set by the world

 private:
  void drain_inbox();
  void run_commands(const elastic::WorkerCommands& commands);
  elastic::WorkerCommands as_planted(const elastic::WorkerCommands& commands);
  void run(const elastic::worker_command::ToCoordinators& c);
  void run(const elastic::worker_command::Initialise& c);
  void run(const elastic::worker_command::Hold& c);
  void run(const elastic::worker_command::Connect& c);
  void run(const elastic::worker_command::SetVersion& c) { executor_.execute(c); }
  void run(const elastic::worker_command::SayReady& c);
  void run(const elastic::worker_command::Leave& c);
  void run(const elastic::worker_command::Stop& c);
  void run(const elastic::worker_command::Compute& c);
  void run(const elastic::worker_command::Compare& c) { executor_.execute(c); }
  void run(const elastic::worker_command::OpenStep& c);
  void run(const elastic::worker_command::StartReduce& c);
  void run(const elastic::worker_command::SendMove& c);
  void run(const elastic::worker_command::EndShare& c);
  void run(const elastic::worker_command::ComputeNorm& c) { executor_.execute(c); }
  void run(const elastic::worker_command::SendVote& c);
  void run(const elastic::worker_command::Apply& c);
  void run(const elastic::worker_command::ClearAccumulators& c);
  void run(const elastic::worker_command::DropTotals& c) { executor_.execute(c); }
  void run(const elastic::worker_command::StartGather& c);
  void run(const elastic::worker_command::ComputeDigest& c) { executor_.execute(c); }
  void run(const elastic::worker_command::WriteCheckpoint& c);
  void run(const elastic::worker_command::Evaluate& c);
  void run(const elastic::worker_command::Exit& c);

  void later(Micros delay, elastic::WorkerEvent event);
  void tick();
  void compute_next();
  Micros micro_batch_time();
  void forget_work();
  void when_not_hung(std::function<void()> action);
  // The micro-batch in progress reads the parts that are there, and computes once it has all.
  void read_parts();
  void compute_parts();
  // After so long, unless the micro-batch in progress was aborted.
  void later_in_pass(Micros when, std::function<void()> action);
  void add_parts(PartId from);
  void finish_micro_batch();
  void finish_again();
  // actors::ExecutorOwner
  void tell(elastic::WorkerEvent event) override;
  void halted(int status, const std::string& reason) override;
  void gave_up(actors::OpenEpoch& epoch, Rank peer, const std::string& why) override;
  void load(const elastic::worker_command::Initialise& c);
  Link* link(const EpochId& epoch);
  std::unique_ptr<actors::EpochTransport> make_transport(const EpochId& epoch);
  void on_transport(actors::TransportReport report);
  void broke(const EpochId& epoch, Nonce peer_nonce, LinkFault fault);
  void arrive(Link& link, Rank from, const EpochId& sent_in, Frame frame);
  void redirect(const BulkFrame& frame, Nonce from_nonce);
  void end_life(bool guard_reports, Micros end_of_file);

  World& world_;
  const std::uint32_t slot_;
  const WorkerRole role_;
  Incarnation who_;
  Random random_, compare_dice_;
  bool flipped_ = false;
  elastic::Worker machine_;
  Store store_;
  WorkerMemory memory_;
  actors::Executor executor_;
  actors::TransportSupport transport_support_;
  std::map<EpochId, Link> links_;
  std::optional<elastic::WorkerCommand> held_back_;  // by a planted fault
  std::optional<Version> ending_share_;              // of a share whose rows wait for the compare
  bool alive_ = true;
  Micros paused_until_ = 0;
  Micros hung_since_ = 0, hung_until_ = 0;
  std::deque<std::function<void()>> inbox_;
  std::deque<elastic::WorkerEvent> events_;  // caused by commands that are being carried out
  bool handling_ = false;
  // The compute thread.
  std::uint64_t slowness_ = 1;  // until slowness_end_
  Micros slowness_end_ = 0;
  Version queue_version_ = 0;
  LossScale queue_scale_{};
  std::deque<MicroBatch> queue_, again_;
  Version again_version_ = 0;
  struct Computing {
    Version version = 0;
    LossScale scale{};
    MicroBatch m = 0;
    bool again = false;  // for its contribution alone
    Micros took = 0;
    // The forward pass: what it has read, of the first parts, and the part at which it takes a
    // while, if there is one.
    std::vector<SegmentParams> read;
    PartId parts_read = 0;
    std::optional<PartId> rests_at;
    bool resting = false;
    // The backward pass.
    std::uint64_t params = 0;  // hash of what was read
    Contribution contribution;
    PartId parts_left = 0;  // that are not added yet: the first ones
  };
  std::optional<Computing> computing_;
  // Counts passes, those that were aborted too. What a pass has left to do when a hang is over does
  // nothing if that pass has ended meanwhile.
  std::uint64_t pass_ = 0;
};

}  // namespace starling::sim
