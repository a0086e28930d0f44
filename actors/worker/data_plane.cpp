// This file is long because each order and event has its lines here: one thread owns all of that.

#include "actors/worker/data_plane.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "actors/guard/status.h"
#include "actors/worker/data_plane_queue.h"
#include "actors/worker/epoch_io.h"
#include "actors/worker/leaving.h"
#include "core/base/check.h"
#include "core/base/exception.h"
#include "core/base/exit.h"

namespace starling::actors {

using namespace elastic::worker_command;
namespace event = elastic::worker_event;
namespace epoch_event = collectives::epoch_event;

namespace {

constexpr std::chrono::seconds kEnds{5};  // what a thread's present work may take at its end
// The leader misses a worker that is silent to all after one lease. A connection
// waits longer, so that it reports only a silence that the leader cannot see.
constexpr int kSilenceLeases = 3;

}  // namespace

// Owner and thread share it, so that a thread that hangs keeps its memory.
class DataPlane::Impl {
 public:
  Impl(DataPlaneOptions options, collectives::Listener& listener, OnDataPlaneEvent say, Log log)
      : options_(std::move(options)),
        layout_(*options_.setup->layout),
        listener_(listener),
        say_(std::move(say)),
        log_(std::move(log)),
        memory_(options_.setup, options_.name),
        clock_(options_.times),
        transport_support_(options_.transport),
        ear_(std::make_shared<TransportReports>(
            [this](TransportReport said) { queue_.post(std::move(said)); })),
        leaving_([this](const EpochId& over, Rank to, Bytes word) {
          const auto it = epochs_.find(over);
          if (it != epochs_.end() && !it->second->given_up)
            send_word(*it->second, to, std::move(word));
        }) {
    memory_.workbench().tell([this](PartId) { queue_.post(data_plane_order::PartAdded{}); });
  }

  ~Impl() { ear_->close(); }

  // ---- Threads: any ---------------------------------------------------------------------------
  DataPlaneQueue& queue() { return queue_; }
  WorkerMemory& memory() { return memory_; }
  bool wait_for_end() {
    std::unique_lock lock(mutex_);
    return ended_changed_.wait_for(lock, kEnds, [this] { return ended_; });
  }

  // ---- The thread -----------------------------------------------------------------------------
  void run() {
    while (auto work = queue_.next()) {
      if (!halted_) try_to_do(*work);
      work.reset();
      if (halted_) close_all();
      if (!queue_.done()) continue;
      for (const auto& [epoch, io] : epochs_) io->mesh->read_on();
    }
    close_all();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ended_changed_.notify_all();
  }

 private:
  void try_to_do(DataPlaneQueue::Work& work);
  void carry_out(DataPlaneOrder& order) {
    std::visit([this](auto& o) { execute(o); }, order);
  }
  void carry_out(MeshEvent& e);
  void carry_out(TransportReport& e) {
    if (e.kind == TransportReport::Kind::kLeft) return leaving_.left(e);
    if (const auto it = epochs_.find(e.epoch); it != epochs_.end() && it->second->transport)
      it->second->transport->on_said(std::move(e));
  }

  void tell(elastic::WorkerEvent e) { say_(std::move(e)); }
  void at(WorkPhase phase) {
    if (options_.phase) *options_.phase = phase;
  }
  // Ends this life: from now on nothing is sent, and nothing is done.
  void cannot_begin(const Error& error);
  void halt(int status, std::string reason);
  void damaged(const Damage& damage);
  std::string of_segment(const char* what, SegmentId segment) const;  // for people
  EpochIo& io_of(const EpochId& epoch) { return *epochs_.at(epoch); }

  void execute(const data_plane_order::Initialise& o);
  void execute(const data_plane_order::TakeLoaded& o);
  void execute(data_plane_order::GiveBack& o) { memory_.give_back(std::move(o.states)); }
  void execute(const data_plane_order::ComputingBegun& o) { clock_.begin(o.version, o.world); }
  void execute(const data_plane_order::ComputingEnded& o) { clock_.computed(o.version, o.took); }
  void execute(const Hold& o) {
    if (auto held = memory_.hold(o.segments, o.fresh); !held) cannot_begin(held.error());
  }
  void execute(const Connect& o);
  void execute(const SetVersion& o);
  void execute(const SayReady& o);
  void execute(const elastic::worker_command::Leave& o);
  void execute(const Stop& o);
  void execute(const OpenStep& o);
  void execute(const StartReduce& o);
  void execute(const data_plane_order::PartAdded& o);
  void execute(const EndShare& o);
  void execute(const Compare& o);
  void execute(const SendMove& o);
  void execute(const ComputeNorm& o);
  void execute(const SendVote& o);
  void execute(const Apply& o);
  void execute(const ClearAccumulators&);
  void execute(const DropTotals&) { memory_.drop_totals(); }
  void execute(const StartGather& o);
  void execute(const ComputeDigest& o);
  void execute(const WriteCheckpoint& o);

  // Takes the events in order, until one of them gives the epoch up (R1).
  void take(EpochIo& io, collectives::EpochEvents events);
  void take(EpochIo& io, const epoch_event::Reduced& e);
  void take(EpochIo& io, epoch_event::GatherBegun& e);
  void take(EpochIo& io, const epoch_event::Gathered& e);
  void take(EpochIo& io, const epoch_event::CopyDiffers& e);
  void take(EpochIo& io, const epoch_event::MoveArrived& e);
  void take(EpochIo& io, epoch_event::LedgerArrived& e);
  void take(EpochIo& io, epoch_event::VoteArrived& e);
  void take(EpochIo& io, const epoch_event::PeerReady& e);
  void take(EpochIo& io, const epoch_event::Wrong& e);
  // Returns nothing if this life is over.
  std::optional<WorkerMemory::Measured> measure(Version version, const Measure& owned);
  void give_up(EpochIo& io, Rank peer, const std::string& why, LinkFault fault = LinkFault::kEnded);
  bool contribute(EpochIo& io, Version version);
  std::unique_ptr<EpochTransport> make_transport(EpochIo& io, const Plan& plan, Rank self);
  static void send_word(EpochIo& io, Rank to, Bytes word);
  void close(const EpochId& epoch);
  void close_all() {
    while (!epochs_.empty()) close(epochs_.begin()->first);
    leaving_.open_all();
  }

  const DataPlaneOptions options_;
  const Layout& layout_;
  collectives::Listener& listener_;
  const OnDataPlaneEvent say_;
  const Log log_;

  DataPlaneQueue queue_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;  // guarded by mutex_

  // These belong to the thread:
  WorkerMemory memory_;
  StepClock clock_;
  // transport_support_ waits, at its end, for the library's work on memory_; the transports in
  // epochs_ go before it.
  const TransportSupport transport_support_;
  std::map<EpochId, std::unique_ptr<EpochIo>> epochs_;
  const std::shared_ptr<TransportReports> ear_;
  Leaving leaving_;
  bool halted_ = false;
};

// ---- Orders -----------------------------------------------------------------------------------

void DataPlane::Impl::try_to_do(DataPlaneQueue::Work& work) {
  try {
    std::visit([this](auto& w) { carry_out(w); }, work);
  } catch (...) {
    const Error error = error_of_exception("training");
    halt(error.code() == Code::kUnavailable ? kExitAlone : kExitInternal, error.text());
  }
}

// The running order may still use an epoch. Give up and silence
// all epochs now; the thread closes them when the order returns.
void DataPlane::Impl::halt(int status, std::string reason) {
  halted_ = true;
  for (const auto& [epoch, io] : epochs_) {
    io->given_up = true;
    leaving_.over(epoch);
    if (io->transport) io->transport->give_up();
    io->mesh->stop();
  }
  tell(event::Failed{status, std::move(reason)});
}

// This worker cannot get the first parameters.
void DataPlane::Impl::cannot_begin(const Error& error) {
  halt(error.code() == Code::kBadInput ? kExitBadInput : kExitAlone, error.text());
}

// The copies of other workers are whole: a new life is given theirs.
void DataPlane::Impl::damaged(const Damage& damage) {
  halt(kDamagedStatus, of_segment(damage.what, damage.segment) + " changed in memory");
}

std::string DataPlane::Impl::of_segment(const char* what, SegmentId segment) const {
  const auto& tensor = layout_.tensors()[layout_.tensor_of(layout_.first_block(segment))].spec;
  return options_.name + ": " + what + " of segment " + std::to_string(segment) + " (" +
         tensor.name + ")";
}

void DataPlane::Impl::execute(const data_plane_order::Initialise& o) {
  if (auto made = memory_.initialise(o.segments); !made) return cannot_begin(made.error());
  tell(event::Initialised{o.epoch});
}

void DataPlane::Impl::execute(const data_plane_order::TakeLoaded& o) {
  const LoadDone& loaded = o.loaded;
  if (!epochs_.count(loaded.epoch)) return;  // the plan of that epoch is over
  if (auto taken = memory_.take_loaded(*loaded.states, loaded.version); !taken)
    return tell(event::NotInitialised{loaded.epoch, taken.error().text(), false});
  tell(event::Initialised{loaded.epoch, loaded.record});
}

void DataPlane::Impl::execute(const Apply& o) {
  if (const auto damage = memory_.apply(o.record, clock_)) return damaged(*damage);
  clock_.mark(StepMark::kApplied);
}

void DataPlane::Impl::execute(const ClearAccumulators&) {
  at(WorkPhase::kApply);
  clock_.mark(StepMark::kPassed);
  memory_.clear_accumulators();
}

std::optional<WorkerMemory::Measured> DataPlane::Impl::measure(Version version,
                                                               const Measure& owned) {
  auto measured = memory_.measure(owned.segments, version, owned.digest, clock_);
  if (!measured.damage) return measured;
  damaged(*measured.damage);
  return std::nullopt;
}

void DataPlane::Impl::execute(const ComputeNorm& o) {
  const auto measured = measure(o.version, o.owned);
  if (!measured) return;
  // The total was the sum of its parts when it was accepted, so it has changed in memory.
  if (measured->wrong_total) return damaged({"the total", *measured->wrong_total});
  tell(event::Reduced{o.epoch, o.version, measured->norm, measured->digest});
}

void DataPlane::Impl::execute(const ComputeDigest& o) {
  at(WorkPhase::kEnd);
  if (const auto damage = memory_.check_state(o.segments)) return damaged(*damage);
  if (const auto damage = memory_.check_parameters(o.version)) return damaged(*damage);
  tell(event::DigestReady{o.epoch, o.version, memory_.state_part(o.segments),
                          memory_.parameters_part(o.segments)});
}

// The state has label `version` between Apply and the next one: a plain copy is consistent.
void DataPlane::Impl::execute(const WriteCheckpoint& o) {
  if (const auto damage = memory_.stage(o.segments, o.version)) return damaged(*damage);
  // No other life writes a file of this name, so a worker that was left out disturbs none.
  ShardOrder order{o.version, o.record, {}, memory_.take_staged()};
  order.file = "shard-" + to_string(o.epoch) + "-" + to_string(options_.who) + ".safetensors";
  say_(std::move(order));
}

// ---- Epochs -----------------------------------------------------------------------------------

void DataPlane::Impl::execute(const Connect& o) {
  auto io = std::make_unique<EpochIo>();
  collectives::MeshOptions mesh = mesh_of(*o.plan, o.self);
  mesh.job = options_.job_id;
  mesh.connect_timeout = options_.connect_timeout;
  mesh.silence = kSilenceLeases * std::chrono::milliseconds(options_.setup->job.lease_ms);
  mesh.seal = options_.setup->job.seal;
  mesh.may_read = [this] { return queue_.may_read(); };
  const EpochId epoch = o.plan->id;
  auto events = events_of(epoch, [this](MeshEvent e) { queue_.post(std::move(e)); });
  io->mesh = std::make_unique<collectives::Mesh>(std::move(mesh), std::move(events), listener_);
  io->frames.emplace(
      collectives::EpochOptions{
          .plan = o.plan,
          .self = o.self,
          .joiner = o.joiner,
          .version = o.version,
          .memory = options_.setup->device->host_memory() ? nullptr : &memory_},
      layout_, static_cast<collectives::GatherSource&>(memory_), *io->mesh);
  if (o.plan->members.size() > 1) io->transport = make_transport(*io, *o.plan, o.self);
  memory_.prepare(*o.plan, o.self);
  log_.info("connecting",
            {{"epoch", to_string(epoch)}, {"rank", o.self}, {"world", o.plan->members.size()}});
  collectives::Mesh& started = *io->mesh;
  epochs_[epoch] = std::move(io);
  started.start();
}

std::unique_ptr<EpochTransport> DataPlane::Impl::make_transport(EpochIo& io, const Plan& plan,
                                                                Rank self) {
  TransportCalls use;
  use.send = [&io](Rank to, Bytes word) { send_word(io, to, std::move(word)); };
  use.made = [this, &io](std::uint32_t attempt, std::shared_ptr<collectives::Gate> gate) {
    leaving_.made(io.frames->plan(), attempt, std::move(gate));
  };
  use.others_left = [this, &io](Rank from, const collectives::TransportLeft& word) {
    leaving_.others_left(io.frames->plan().members[from].who, word);
  };
  use.ready = [this, &io](collectives::DeviceTransport& transport, std::uint32_t attempt) {
    io.frames->use(transport, attempt);
    tell(event::TransportReady{io.frames->plan().id, attempt});
  };
  use.lost = [this, &io](std::uint32_t attempt, const Error& why) {
    tell(event::TransportLost{io.frames->plan().id, attempt});
    take(io, io.frames->lose_transport(attempt, Error(why.code(), why.text())));
  };
  use.round = [this, &io](std::uint32_t attempt, Result<> ended) {
    take(io, io.frames->on_round(attempt, std::move(ended)));
  };
  use.told = [this, &io](bool on_device, const std::string& why) {
    const EpochId epoch = io.frames->plan().id;
    log_.info("path", {{"epoch", to_string(epoch)}, {"direct", on_device}, {"why", why}});
    tell(event::TransportChosen{epoch, on_device, why});
  };
  TransportLimits limits;
  limits.leave_ms = static_cast<std::uint32_t>(2 * options_.setup->job.lease_ms);
  if (transport_support_.library)
    limits.staging_bytes =
        collectives::staging_bytes(layout_, plan.holders, io.frames->world(), self);
  return std::make_unique<EpochTransport>(
      transport_support_, *options_.setup->device, plan, self, limits, std::move(use),
      [ear = ear_](TransportReport said) { ear->say(std::move(said)); });
}

void DataPlane::Impl::send_word(EpochIo& io, Rank to, Bytes word) {
  FrameHeader header;
  header.kind = FrameKind::kTransport;
  io.mesh->send(to, header, collectives::Payload(share(std::move(word))));
}

void DataPlane::Impl::execute(const Stop& o) {
  at(WorkPhase::kChange);
  close(o.epoch);
  tell(event::Stopped{o.epoch});
}

// R9: when close() returns, nothing of that epoch is sent or received any more.
void DataPlane::Impl::close(const EpochId& epoch) {
  const auto it = epochs_.find(epoch);
  if (it == epochs_.end()) return;
  leaving_.over(epoch);
  it->second->mesh->stop();
  epochs_.erase(it);
}

void DataPlane::Impl::execute(const elastic::worker_command::Leave& o) {
  const auto it = epochs_.find(o.epoch);
  if (it == epochs_.end()) return;
  leaving_.over(o.epoch);
  it->second->mesh->leave();
  // All members have voted, so no round is under way.
  if (it->second->transport) it->second->transport->give_up();
}

void DataPlane::Impl::execute(const SayReady& o) {
  io_of(o.epoch).frames->send_ready();
}

void DataPlane::Impl::execute(const SetVersion& o) {
  EpochIo& io = io_of(o.epoch);
  take(io, io.frames->set_version(o.version));
}

// ---- A step -----------------------------------------------------------------------------------

void DataPlane::Impl::execute(const OpenStep& o) {
  EpochIo& io = io_of(o.epoch);
  io.sent.reset();
  io.frames->open_step(o.holders, o.attempt);
}

void DataPlane::Impl::execute(const StartReduce& o) {
  EpochIo& io = io_of(o.epoch);
  io.sent.emplace(layout_.buckets());
  io.owned = o.owned;
  const collectives::Sums sums = memory_.begin_reduce(o.micro_batches);
  io.mesh->hold();
  take(io, io.frames->begin_reduce(o.version, sums, memory_.complete_lanes(o.version)));
  if (contribute(io, o.version)) io.mesh->flush();
}

void DataPlane::Impl::execute(const data_plane_order::PartAdded&) {
  for (auto& [epoch, io] : epochs_)
    if (io->sent && !contribute(*io, io->frames->version())) return;
}

// Sends the buckets of the own sums that are final and not sent yet.
// False: the sums differ from what was added, and this life is over.
bool DataPlane::Impl::contribute(EpochIo& io, Version version) {
  for (std::uint32_t b = 0; b < layout_.buckets() && !io.given_up; ++b) {
    const SegmentRange segments = layout_.bucket(b);
    if ((*io.sent)[b] || !memory_.added(segments)) continue;
    if (const auto damage = memory_.check_sums(segments, version, io.frames->on_device())) {
      damaged(*damage);
      return false;
    }
    (*io.sent)[b] = true;
    take(io, io.frames->contribute(b));
  }
  return true;
}

void DataPlane::Impl::execute(const EndShare& o) {
  EpochIo& io = io_of(o.epoch);
  at(WorkPhase::kReduce);
  clock_.mark(StepMark::kComputed);
  // Sums travel during the compare; without the rows no owner has all that a vote needs.
  io.mesh->hold();
  if (!contribute(io, o.version)) return;
  io.mesh->flush();
  if (const auto damage = memory_.check_parameters(o.version)) return damaged(*damage);
  clock_.mark(StepMark::kChecked);
  io.mesh->hold();
  if (!o.rows.empty()) io.frames->send_ledger(o.version, o.rows);
  if (!io.given_up) {
    STARLING_CHECK(std::ranges::find(*io.sent, false) == io.sent->end());
    take(io, io.frames->end_share(memory_.side_entries()));
  }
  io.mesh->flush();
}

void DataPlane::Impl::execute(const Compare& o) {
  if (const auto damage = memory_.check_parameters(o.version)) return damaged(*damage);
  tell(event::Compared{o.epoch, o.version});
}

void DataPlane::Impl::execute(const SendVote& o) {
  at(WorkPhase::kVote);
  io_of(o.epoch).frames->send_vote(o.vote);
}

void DataPlane::Impl::execute(const StartGather& o) {
  EpochIo& io = io_of(o.epoch);
  at(WorkPhase::kGather);
  clock_.mark(StepMark::kTold);
  if (const auto damage = memory_.begin_gather(o.version)) return damaged(*damage);
  take(io, io.frames->gather(o.version, o.holders, o.record));
}

void DataPlane::Impl::execute(const SendMove& o) {
  if (const auto damage = memory_.check_state(kernels::segment_ids(o.segments)))
    return damaged(*damage);
  io_of(o.epoch).frames->send_move(o.target, o.version, o.record, o.segments,
                                   share(memory_.state_bytes(o.segments)));
}

// ---- Frames and events of epochs --------------------------------------------------------------

void DataPlane::Impl::carry_out(MeshEvent& e) {
  const auto it = epochs_.find(e.epoch);
  if (it == epochs_.end()) return;  // R1: that epoch was stopped
  EpochIo& io = *it->second;
  switch (e.kind) {
    case MeshEvent::Kind::kConnected:
      tell(event::Connected{e.epoch});
      leaving_.stands(io.frames->plan(), io.frames->self());
      if (io.transport) io.transport->begin();
      return;
    case MeshEvent::Kind::kFrame:
      if (io.given_up) return;
      if (e.frame.header.kind == FrameKind::kTransport) {
        if (auto heard = io.transport->on_word(e.peer, *e.frame.payload); !heard)
          give_up(io, e.peer, heard.error().text());
        return;
      }
      return take(io, io.frames->on_frame(e.peer, std::move(e.frame)));
    case MeshEvent::Kind::kBroken:
      return give_up(io, e.peer, e.why, e.fault);
    case MeshEvent::Kind::kDrained:
      return close(e.epoch);
  }
}

void DataPlane::Impl::take(EpochIo& io, collectives::EpochEvents events) {
  for (auto& e : events) {
    if (io.given_up) return;
    std::visit([&](auto& one) { take(io, one); }, e);
  }
}

void DataPlane::Impl::take(EpochIo& io, const epoch_event::Reduced& e) {
  if (auto taken = memory_.take_side_entries(); !taken)
    return give_up(io, io.frames->self(), taken.error().text());
  clock_.mark(StepMark::kReduced);
  const auto measured = measure(e.version, io.owned);
  if (!measured) return;
  // This life goes on: the sums are whole at their makers (R2), and are added up anew.
  if (const auto wrong = measured->wrong_total)
    return give_up(
        io, io.frames->on_device() ? kNoRank : (*io.frames->holders())[*wrong].front(),
        "the total of segment " + std::to_string(*wrong) + " is not the sum of its parts");
  tell(event::Reduced{io.frames->plan().id, e.version, measured->norm, measured->digest});
}

void DataPlane::Impl::take(EpochIo& io, epoch_event::GatherBegun& e) {
  tell(event::GatherBegun{io.frames->plan().id, e.version, e.record});
}

void DataPlane::Impl::take(EpochIo& io, const epoch_event::Gathered& e) {
  clock_.end(io.mesh->sent_bytes());
  at(WorkPhase::kCompute);  // compute had begun already, except at the last version
  tell(event::Gathered{io.frames->plan().id, e.version});
}

// The owner's copy is the one that all others have, so this worker ends whichever copy is wrong.
void DataPlane::Impl::take(EpochIo&, const epoch_event::CopyDiffers& e) {
  halt(kDamagedStatus, of_segment("the copy", e.segment) + " is not as its owner's");
}

void DataPlane::Impl::take(EpochIo& io, const epoch_event::MoveArrived& e) {
  if (auto taken = memory_.take_move(e.segments, e.version, e.states); !taken)
    return give_up(io, e.from, taken.error().text());
  tell(event::MovedIn{io.frames->plan().id, e.version, e.segments});
}

void DataPlane::Impl::take(EpochIo& io, epoch_event::LedgerArrived& e) {
  tell(event::LedgerArrived{io.frames->plan().id, e.from, e.version, std::move(e.rows)});
}

void DataPlane::Impl::take(EpochIo& io, epoch_event::VoteArrived& e) {
  tell(event::VoteArrived{io.frames->plan().id, e.from, std::move(e.vote)});
}

void DataPlane::Impl::take(EpochIo& io, const epoch_event::PeerReady& e) {
  tell(event::PeerReady{io.frames->plan().id, e.from});
}

void DataPlane::Impl::take(EpochIo& io, const epoch_event::Wrong& e) {
  give_up(io, e.peer, e.error.text());
}

void DataPlane::Impl::give_up(EpochIo& io, Rank peer, const std::string& why, LinkFault fault) {
  io.given_up = true;
  leaving_.over(io.frames->plan().id);
  if (io.transport) io.transport->give_up();
  const EpochId epoch = io.frames->plan().id;
  log_.info("epoch broken", {{"epoch", to_string(epoch)}, {"peer", peer}, {"cause", why}});
  tell(event::Broken{epoch, peer, fault});
}

// ---- The owner's side -------------------------------------------------------------------------

DataPlane::DataPlane(DataPlaneOptions options, collectives::Listener& listener,
                     OnDataPlaneEvent say, Log log)
    : impl_(std::make_shared<Impl>(std::move(options), listener, std::move(say), std::move(log))),
      thread_([impl = impl_] { impl->run(); }) {}

DataPlane::~DataPlane() {
  stop();
}

bool DataPlane::stop() {
  if (!thread_.joinable()) return ended_;
  impl_->queue().stop();
  ended_ = impl_->wait_for_end();
  if (ended_)
    thread_.join();
  else
    thread_.detach();
  return ended_;
}

void DataPlane::post(DataPlaneOrder order) {
  impl_->queue().post(std::move(order));
}

std::uint32_t DataPlane::waiting() const {
  return impl_->queue().waiting();
}

std::uint64_t DataPlane::progress() const {
  return impl_->memory().progress();
}

std::shared_ptr<Workbench> DataPlane::workbench() const {
  return {impl_, &impl_->memory().workbench()};
}

WorkerMemory& DataPlane::memory() {
  return impl_->memory();
}

}  // namespace starling::actors
