#include "actors/worker/data_plane.h"

#include <algorithm>
#include <map>
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
#include "core/base/mutex.h"
#include "core/base/thread_name.h"

namespace starling::actors {

using namespace elastic::worker_command;
namespace event = elastic::worker_event;

namespace {

constexpr std::chrono::seconds kEnds{5};  // what a thread's present work may take at its end
// The leader misses a worker that is silent to all after one lease. A connection
// waits longer, so that it reports only a silence that the leader cannot see.
constexpr int kSilenceLeases = 3;
// Limits a round once all have come to it: at most kRoundBytes and a replica's totals over
// any network that is worth a device transport. Beyond it the epoch ends, and nothing else.
constexpr std::uint32_t kRoundMs = 10'000;

}  // namespace

// Owner and thread share it, so that a thread that hangs keeps its memory.
class DataPlane::Impl : private ExecutorOwner {
 public:
  Impl(DataPlaneOptions options, collectives::Listener& listener, OnDataPlaneEvent say, Log log)
      : options_(std::move(options)),
        layout_(*options_.setup->layout),
        listener_(listener),
        say_(std::move(say)),
        log_(std::move(log)),
        clock_(options_.times),
        memory_(options_.setup, options_.name, clock_),
        executor_(layout_, memory_, *this, options_.name),
        transport_support_(options_.transport),
        ear_(std::make_shared<TransportReports>(
            [this](TransportReport said) { queue_.post(std::move(said)); })),
        leaving_([this](const EpochId& over, Rank to, Bytes word) {
          const auto it = epochs_.find(over);
          if (it != epochs_.end() && !it->second->open->given_up)
            send_word(*it->second, to, std::move(word));
        }) {
    memory_.workbench().tell([this](PartId) { queue_.post(data_plane_order::PartAdded{}); });
  }

  ~Impl() { ear_->close(); }

  // ---- Threads: any ---------------------------------------------------------------------------
  DataPlaneQueue& queue() { return queue_; }
  WorkerMemory& memory() { return memory_; }
  bool wait_for_end() {
    const auto until = std::chrono::steady_clock::now() + kEnds;
    const MutexLock lock(mutex_);
    while (!ended_ && ended_changed_.wait_until(mutex_, until)) continue;
    return ended_;
  }

  // ---- The thread -----------------------------------------------------------------------------
  void run() {
    while (auto work = queue_.next()) {
      if (!executor_.is_halted()) try_to_do(*work);
      work.reset();
      if (executor_.is_halted()) close_all();
      if (!queue_.done()) continue;
      for (const auto& [epoch, io] : epochs_) io->mesh->read_on();
    }
    close_all();
    const MutexLock lock(mutex_);
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

  // ExecutorOwner
  void tell(elastic::WorkerEvent e) override { say_(std::move(e)); }
  void halted(int status, const std::string& reason) override;
  void gave_up(OpenEpoch& epoch, Rank peer, const std::string& why) override;
  void at(WorkPhase phase) override {
    if (options_.phase) *options_.phase = phase;
  }
  void mark(StepMark mark) override { clock_.mark(mark); }
  void gathered(OpenEpoch&) override {
    clock_.end(FrameCounts::in_all(options_.counters->frames.sent));
  }

  // This worker cannot get the first parameters.
  void cannot_begin(const Error& error);

  void execute(const data_plane_order::Initialise& o);
  void execute(const data_plane_order::TakeLoaded& o);
  void execute(data_plane_order::GiveBack& o) { memory_.give_back(std::move(o.states)); }
  void execute(const data_plane_order::ComputingBegun& o) { clock_.begin(o.version, o.world); }
  void execute(const data_plane_order::ComputingEnded& o) { clock_.computed(o.version, o.took); }
  void execute(const Hold& o) {
    if (auto held = memory_.hold(o.segments, o.fresh); !held) cannot_begin(held.error());
  }
  void execute(const Connect& o);
  void execute(const elastic::worker_command::Leave& o);
  void execute(const Stop& o);
  void execute(const data_plane_order::PartAdded&) { executor_.part_added(); }
  void execute(const WriteCheckpoint& o);
  template <class Order>
  void execute(const Order& o) {
    executor_.execute(o);
  }

  std::unique_ptr<EpochTransport> make_transport(EpochIo& io, const Plan& plan, Rank self);
  void prepare_transport(collectives::TransportOptions& options, const Plan& plan, Rank self);
  static void send_word(EpochIo& io, Rank to, Bytes word);
  // R9: when it returns, nothing of that epoch is sent or received any more.
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
  Mutex mutex_;
  CondVar ended_changed_;
  bool ended_ STARLING_GUARDED_BY(mutex_) = false;

  // These belong to the thread:
  StepClock clock_;
  WorkerMemory memory_;
  Executor executor_;
  // transport_support_ waits, at its end, for the library's work on memory_; the transports in
  // epochs_ go before it.
  const TransportSupport transport_support_;
  std::map<EpochId, std::unique_ptr<EpochIo>> epochs_;
  const std::shared_ptr<TransportReports> ear_;
  Leaving leaving_;
};

// ---- Orders -----------------------------------------------------------------------------------

void DataPlane::Impl::try_to_do(DataPlaneQueue::Work& work) {
  try {
    std::visit([this](auto& w) { carry_out(w); }, work);
  } catch (...) {
    const Error error = error_of_exception("training");
    executor_.halt(error.code() == Code::kUnavailable ? kExitAlone : kExitInternal, error.text());
  }
}

// The thread closes the epochs when the running order, which may still use one, returns.
void DataPlane::Impl::halted(int status, const std::string& reason) {
  for (const auto& [epoch, io] : epochs_) {
    leaving_.over(epoch);
    if (io->transport) io->transport->give_up();
    io->mesh->stop();
  }
  tell(event::Failed{status, reason});
}

void DataPlane::Impl::gave_up(OpenEpoch& epoch, Rank peer, const std::string& why) {
  leaving_.over(epoch.id());
  const auto io = epochs_.find(epoch.id());
  STARLING_CHECK(io != epochs_.end());
  if (io->second->transport) io->second->transport->give_up();
  log_.info("epoch broken", {{"epoch", to_string(epoch.id())}, {"peer", peer}, {"cause", why}});
}

void DataPlane::Impl::cannot_begin(const Error& error) {
  executor_.halt(error.code() == Code::kBadInput ? kExitBadInput : kExitAlone, error.text());
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

// The state has label `version` between Apply and the next one: a plain copy is consistent.
void DataPlane::Impl::execute(const WriteCheckpoint& o) {
  if (const auto damage = memory_.stage(o.segments, o.version)) return executor_.damaged(*damage);
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
  mesh.silence = kSilenceLeases * std::chrono::milliseconds(options_.setup->job.elastic.lease_ms);
  mesh.seal = options_.setup->job.elastic.seal;
  mesh.may_read = [this] { return queue_.may_read(); };
  mesh.counts = {options_.counters, &options_.counters->frames};
  const EpochId epoch = o.plan->id;
  auto events = events_of(epoch, [this](MeshEvent e) { queue_.post(std::move(e)); });
  io->mesh = std::make_unique<collectives::Mesh>(std::move(mesh), std::move(events), listener_);
  io->open.emplace(
      collectives::EpochOptions{
          .plan = o.plan,
          .self = o.self,
          .joiner = o.joiner,
          .version = o.version,
          .memory = options_.setup->device->host_memory() ? nullptr : &memory_},
      layout_, memory_, *io->mesh);
  if (o.plan->members.size() > 1) io->transport = make_transport(*io, *o.plan, o.self);
  memory_.prepare(*o.plan, o.self);
  log_.info("connecting",
            {{"epoch", to_string(epoch)}, {"rank", o.self}, {"world", o.plan->members.size()}});
  collectives::Mesh& started = *io->mesh;
  executor_.open(*io->open);
  epochs_[epoch] = std::move(io);
  started.start();
}

std::unique_ptr<EpochTransport> DataPlane::Impl::make_transport(EpochIo& io, const Plan& plan,
                                                                Rank self) {
  TransportCalls use;
  use.send = [&io](Rank to, Bytes word) { send_word(io, to, std::move(word)); };
  use.made = [this, &io](std::uint32_t attempt, std::shared_ptr<collectives::Gate> gate) {
    leaving_.made(io.open->frames.plan(), attempt, std::move(gate));
  };
  use.others_left = [this, &io](Rank from, const collectives::TransportLeft& word) {
    leaving_.others_left(io.open->frames.plan().members[from].who, word);
  };
  use.ready = [this, &io](collectives::DeviceTransport& transport, std::uint32_t attempt) {
    executor_.on_transport_ready(*io.open, transport, attempt);
  };
  use.lost = [this, &io](std::uint32_t attempt, const Error& why) {
    executor_.on_transport_lost(*io.open, attempt, Error(why.code(), why.text()));
  };
  use.round = [this, &io](std::uint32_t attempt, Result<> ended) {
    executor_.on_round(*io.open, attempt, std::move(ended));
  };
  use.told = [this, &io](bool on_device, const std::string& why) {
    const EpochId epoch = io.open->id();
    log_.info("path", {{"epoch", to_string(epoch)}, {"direct", on_device}, {"why", why}});
    tell(event::TransportChosen{epoch, on_device, why});
  };
  use.prepare = [this, &io, self](collectives::TransportOptions& options) {
    prepare_transport(options, io.open->frames.plan(), self);
  };
  use.retry_in = [this, &io](std::uint32_t ms) {
    const EpochId epoch = io.open->id();
    io.retry.begin(std::chrono::milliseconds(ms),
                   [ear = ear_, epoch] { ear->say({.epoch = epoch}); });
  };
  return std::make_unique<EpochTransport>(
      transport_support_, plan, self, std::move(use),
      [ear = ear_](TransportReport said) { ear->say(std::move(said)); });
}

void DataPlane::Impl::prepare_transport(collectives::TransportOptions& options, const Plan& plan,
                                        Rank self) {
  kernels::Device* const device = options_.setup->device.get();
  const auto queue = std::shared_ptr<kernels::Queue>(device->make_queue());
  options.staging_bytes = collectives::staging_bytes(layout_, plan.holders, options.world, self);
  options.round_ms = kRoundMs;
  options.leave_ms = static_cast<std::uint32_t>(2 * options_.setup->job.elastic.lease_ms);
  options.keep_memory = [device] { return device->keep_memory(); };
  options.allocate = [device](std::size_t bytes) {
    auto memory = std::make_shared<kernels::Memory>(device->allocate(bytes));
    std::byte* const at = memory->data();
    return std::shared_ptr<std::byte>(std::move(memory), at);
  };
  options.copy_in = [queue](std::byte* to, ByteView from) {
    queue->copy_in(to, from);
    queue->wait();
  };
  options.copy_out = [queue](std::span<std::uint8_t> to, const std::byte* from) {
    queue->copy_out(to, from);
    queue->wait();
  };
  options.stream = device->make_stream();
  options.enter_thread = [device] { device->enter_thread(); };
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

void DataPlane::Impl::close(const EpochId& epoch) {
  const auto it = epochs_.find(epoch);
  if (it == epochs_.end()) return;
  leaving_.over(epoch);
  executor_.close(epoch);
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

// ---- Frames and events of epochs --------------------------------------------------------------

void DataPlane::Impl::carry_out(MeshEvent& e) {
  const auto it = epochs_.find(e.epoch);
  if (it == epochs_.end()) return;  // R1: that epoch was stopped
  EpochIo& io = *it->second;
  switch (e.kind) {
    case MeshEvent::Kind::kConnected:
      tell(event::Connected{e.epoch});
      leaving_.stands(io.open->frames.plan(), io.open->frames.self());
      if (io.transport) io.transport->begin();
      return;
    case MeshEvent::Kind::kFrame:
      if (io.open->given_up) return;
      if (e.frame.header.kind != FrameKind::kTransport)
        return executor_.on_frame(*io.open, e.peer, std::move(e.frame));
      if (auto heard = io.transport->on_word(e.peer, *e.frame.payload); !heard)
        executor_.give_up(*io.open, e.peer, heard.error().text());
      return;
    case MeshEvent::Kind::kBroken:
      return executor_.give_up(*io.open, e.peer, e.why, e.fault);
    case MeshEvent::Kind::kDrained:
      return close(e.epoch);
  }
}

// ---- The owner's side -------------------------------------------------------------------------

DataPlane::DataPlane(DataPlaneOptions options, collectives::Listener& listener,
                     OnDataPlaneEvent say, Log log)
    : impl_(std::make_shared<Impl>(std::move(options), listener, std::move(say), std::move(log))),
      thread_([impl = impl_] {
        name_thread("data-plane");
        impl->run();
      }) {}

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
