#pragma once
// One life of a worker in the simulated world: the machines under test (elastic::Worker, and for
// each epoch's frames collectives::Epoch), and between them what an actor does in production: carry
// out commands, answer with events.
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

#include "collectives/epoch.h"
#include "elastic/protocol/worker.h"
#include "tests/sim/frames.h"
#include "tests/sim/random.h"
#include "tests/sim/settings.h"
#include "tests/sim/store.h"

namespace starling::sim {

class World;

class WorkerProcess;

// One epoch's connections, and its frames on them.
struct Link : collectives::FrameSender, collectives::GatherSource, collectives::DeviceMemory {
  Link(WorkerProcess& process, const elastic::worker_command::Connect& c);
  Link(const Link&) = delete;

  WorkerProcess& process;
  std::shared_ptr<const Plan> plan;
  Rank up = 0;  // connections that stand
  bool connected = false;
  std::uint32_t attempt = 0;     // to make the device transport; 0: none yet
  bool transport_ready = false;  // that attempt's
  std::unique_ptr<collectives::DeviceTransport> transport;  // before the frames, which borrow it
  bool stopping = false;         // Stop was asked, Stopped not yet answered
  bool left = false;             // LEFT was sent: nothing that arrives here counts any more (R1)
  std::vector<bool> peer_left;   // by rank
  collectives::Holders holders;  // of the open step
  // While a step is reduced: micro-batches that the own sums are to have, and by bucket whether
  // they were sent.
  std::uint32_t share = 0;
  std::vector<bool> sent;
  elastic::worker_command::Measure owned;
  collectives::Epoch frames;

  // collectives::FrameSender
  Rank self() const override { return frames.self(); }
  std::uint32_t world() const override { return static_cast<std::uint32_t>(plan->members.size()); }
  void send(Rank to, FrameHeader header, collectives::Payload payload) override;
  // collectives::GatherSource
  void publish(Version version, SegmentRange segments) override;
  Bytes params(SegmentRange segments) override;
  std::vector<std::uint64_t> checksums(SegmentRange segments) override;
  Result<> set_params(Version version, SegmentRange segments, ByteView bytes) override;
  // collectives::DeviceMemory
  std::byte* sums(SegmentRange segments) override;
  std::byte* totals(SegmentRange segments) override;
  void add(SegmentRange segments, std::span<const std::byte* const> received) override;
  void take_totals(SegmentRange segments, const std::byte* staged) override;
  std::size_t parameter_bytes(SegmentRange segments) const override;
  std::byte* parameters(SegmentRange segments) override;
  Bytes proofs(SegmentRange segments) override;
  Result<> take_parameters(Version version, SegmentRange segments, const std::byte* staged,
                           ByteView proofs) override;
};

class WorkerProcess {
 public:
  WorkerProcess(World& world, std::uint32_t slot, Nonce nonce);
  ~WorkerProcess();

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

  // That attempt at the epoch's device transport is of no use any more; the next one begins.
  void lose_transport(const EpochId& epoch, std::uint32_t attempt);

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
  const Incarnation& who() const { return who_; }
  bool alive() const { return alive_; }
  const elastic::Worker& machine() const { return machine_; }
  const Store& store() const { return store_; }
  Store& store() { return store_; }
  World& world() { return world_; }
  const std::map<EpochId, Link>& links() const { return links_; }
  bool computing() const { return computing_.has_value(); }
  std::optional<Micros> notice_end;  // set by the world

 private:
  void drain_inbox();
  void run_commands(const elastic::WorkerCommands& commands);
  void run(const elastic::worker_command::ToCoordinators& c);
  void run(const elastic::worker_command::Initialise& c);
  void run(const elastic::worker_command::Hold& c);
  void run(const elastic::worker_command::Connect& c);
  void run(const elastic::worker_command::SetVersion& c);
  void run(const elastic::worker_command::SayReady& c);
  void run(const elastic::worker_command::Leave& c);
  void run(const elastic::worker_command::Stop& c);
  void run(const elastic::worker_command::Compute& c);
  void run(const elastic::worker_command::Compare& c);
  void run(const elastic::worker_command::OpenStep& c);
  void run(const elastic::worker_command::StartReduce& c);
  void run(const elastic::worker_command::SendMove& c);
  void run(const elastic::worker_command::EndShare& c);
  void run(const elastic::worker_command::ComputeNorm& c) { measure(c.epoch, c.version, c.owned); }
  void run(const elastic::worker_command::SendVote& c);
  void run(const elastic::worker_command::Apply& c);
  void run(const elastic::worker_command::ClearAccumulators& c);
  void run(const elastic::worker_command::DropTotals& c);
  void run(const elastic::worker_command::StartGather& c);
  void run(const elastic::worker_command::ComputeDigest& c);
  void run(const elastic::worker_command::WriteCheckpoint& c);
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
  void contribute(Link& link);
  void compare(std::function<void()> then);
  void send_rows(Link& link, const elastic::worker_command::EndShare& c);
  // What the vote says of totals that are all there; takes a while.
  void measure(const EpochId& epoch, Version version,
               const elastic::worker_command::Measure& owned);
  void load(const elastic::worker_command::Initialise& c);
  Link* link(const EpochId& epoch);
  void try_transport(Link& link);
  void connect_transport(const EpochId& epoch, std::uint32_t attempt);
  Link* link_of_transport(const EpochId& epoch, std::uint32_t attempt);
  void broke(const EpochId& epoch, Nonce peer_nonce, LinkFault fault);
  void arrive(Link& link, Rank from, const EpochId& sent_in, Frame frame);
  // What came of frames and orders becomes events of the machine, after what is being done.
  void take(Link& link, collectives::EpochEvents events);
  void take(Link& link, const collectives::epoch_event::Reduced& e);
  void take(Link& link, collectives::epoch_event::GatherBegun& e);
  void take(Link& link, const collectives::epoch_event::Gathered& e);
  void take(Link& link, const collectives::epoch_event::CopyDiffers& e);
  void take(Link& link, const collectives::epoch_event::MoveArrived& e);
  void take(Link& link, collectives::epoch_event::LedgerArrived& e);
  void take(Link& link, collectives::epoch_event::VoteArrived& e);
  void take(Link& link, const collectives::epoch_event::PeerReady& e);
  void take(Link& link, const collectives::epoch_event::Wrong& e);
  void redirect(const BulkFrame& frame, Nonce from_nonce);
  void end_life(bool guard_reports, Micros end_of_file);

  World& world_;
  const std::uint32_t slot_;
  Incarnation who_;
  Random random_, compare_dice_;
  bool flipped_ = false;
  Version gathering_ = kNoVersion;  // of the last gather
  elastic::Worker machine_;
  Store store_;
  std::map<EpochId, Link> links_;
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
