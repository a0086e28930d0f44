#include "actors/worker/engine.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "actors/files.h"
#include "actors/guard/status.h"
#include "actors/sabotage.h"
#include "actors/scheduling.h"
#include "core/base/check.h"

namespace starling::actors {

using namespace elastic::worker_command;
namespace event = elastic::worker_event;

namespace {

// Ten in a lease; a long lease is for machines that are late, and no reason to hear of progress late.
std::uint64_t heartbeat_ms(const Job& job) {
  return std::min<std::uint64_t>(job.lease_ms / 10, 100);
}

elastic::WorkerConfig worker_config(const TrainingSetup& setup) {
  elastic::WorkerConfig config;
  config.micro_batches = setup.job.micro_batches;
  config.steps = setup.job.steps;
  config.segments = setup.layout->segments();
  config.digest_every = setup.job.digest_every;
  config.checkpoint_every = setup.job.checkpoint.every;
  config.heartbeat_ms = std::max<std::uint64_t>(10, heartbeat_ms(setup.job));
  config.coordinator_timeout_ms = setup.job.coordinator_timeout_ms;
  return config;
}

}  // namespace

Engine::Engine(EngineOptions options, collectives::Listener& listener, EngineCalls calls, Log log)
    : options_(std::move(options)),
      layout_(*options_.setup->layout),
      listener_(listener),
      calls_(std::move(calls)),
      log_(std::move(log)),
      worker_(worker_config(*options_.setup)),
      state_(layout_, options_.setup->job),
      accumulators_(layout_, options_.setup->job.micro_batches),
      totals_(layout_, options_.setup->job.micro_batches),
      began_(std::chrono::steady_clock::now()),
      clock_(options_.times),
      passed_(began_),
      breathed_(began_) {}

Engine::~Engine() {
  stop();
}

void Engine::stop() {
  over_ = true;
  while (!epochs_.empty()) close(epochs_.begin()->first);
}

// ---- Events -----------------------------------------------------------------------------------

void Engine::start() {
  feed_time();
  handle(event::Start{options_.join});
}

void Engine::feed_time() {
  const auto now = std::chrono::steady_clock::now() - began_;
  // From 1 on: 0 is the machine's "no time yet".
  handle(event::Tick{1 + static_cast<std::uint64_t>(
                             std::chrono::duration_cast<std::chrono::milliseconds>(now).count())});
}

void Engine::tick() {
  closed_.clear();
  if (loading_) {
    const auto all = static_cast<std::uint32_t>(loading_->segments.size());
    handle(event::Loading{loading_->epoch, all - std::min<std::uint32_t>(all, *loading_->read)});
  }
  feed_time();
}

void Engine::on_message(const Message& message) {
  if (std::holds_alternative<Fenced>(message) && sabotage::ignores_fence(name())) return;
  if (const auto* welcome = std::get_if<Welcome>(&message))
    calls_.set_counter(welcome->who.counter);
  feed_time();
  handle(event::Received{message});
}

void Engine::on_notice(const Notice& notice) {
  feed_time();
  handle(event::NoticeGiven{notice});
}

void Engine::on_data(const Digest& data) {
  handle(event::DataHashed{data});
}

void Engine::on_micro_batch(Version version, const LedgerRow& row, std::chrono::nanoseconds took) {
  clock_.computed(version, took);
  // Whoever does not say how fast it is counts like everybody else.
  const bool told = options_.setup->job.shares == ShareRule::kSpeed;
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(1, took.count()));
  handle(event::MicroBatchDone{version, row, told ? ns : 0});
}

void Engine::on_mesh(MeshEvent e) {
  const auto it = epochs_.find(e.epoch);
  if (it == epochs_.end()) return;  // R1: that epoch was stopped
  breathe();                        // the clock's message waits behind many frames
  switch (e.kind) {
    case MeshEvent::Kind::kConnected:
      pause_.mark(PauseClock::kConnected);
      return handle(event::Connected{e.epoch});
    case MeshEvent::Kind::kFrame:
      return take(*it->second, it->second->frames->on_frame(e.peer, std::move(e.frame)));
    case MeshEvent::Kind::kBroken:
      return give_up(*it->second, e.peer, e.why);
    case MeshEvent::Kind::kDrained:
      return close(e.epoch);
  }
}

void Engine::handle(elastic::WorkerEvent e) {
  events_.push_back(std::move(e));
  if (handling_) return;
  handling_ = true;
  while (!events_.empty() && !over_) {
    const elastic::WorkerEvent next = std::move(events_.front());
    events_.pop_front();
    for (const auto& command : worker_.on(next))
      if (!over_) std::visit([this](const auto& c) { execute(c); }, command);
  }
  handling_ = false;
}

// ---- Control ----------------------------------------------------------------------------------

void Engine::execute(const ToCoordinators& c) {
  if (std::holds_alternative<Heartbeat>(c.body)) breathed_ = std::chrono::steady_clock::now();
  if (const auto* progress = std::get_if<Progress>(&c.body); progress && progress->step_ms == 0) {
    Progress timed = *progress;
    const auto now = std::chrono::steady_clock::now();
    timed.step_ms = std::chrono::duration<double, std::milli>(now - passed_).count();
    timed.pause = pause_.passed(now);
    passed_ = now;
    calls_.to_coordinators(timed, c.turn);
    return handle(event::StepTimed{timed.record.version, timed.step_ms, timed.pause});
  }
  if (std::holds_alternative<Report>(c.body)) pause_.mark(PauseClock::kReported);
  calls_.to_coordinators(c.body, c.turn);
}

void Engine::at(WorkPhase phase) {
  if (options_.phase) *options_.phase = phase;
}

void Engine::breathe() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::milliseconds due(heartbeat_ms(options_.setup->job));
  if (now - breathed_ < due) return;
  breathed_ = now;
  calls_.to_coordinators(worker_.heartbeat(), {});
}

void Engine::execute(const Exit& c) {
  stop();
  calls_.over(c);
}

// The copies of others are whole: a new life is given theirs.
void Engine::end_damaged(const char* what, SegmentId segment) {
  const auto& tensor = layout_.tensors()[layout_.tensor_of(layout_.first_block(segment))].spec;
  std::string reason = options_.join.name + ": " + what + " of segment " + std::to_string(segment) +
                       " (" + tensor.name + ") changed in memory";
  execute(Exit{kDamagedStatus, false, std::move(reason), std::nullopt, false, false});
}

// ---- State ------------------------------------------------------------------------------------

// Once more at a fresh start that follows the loss of a member in the first step: what that step
// has begun goes on, so the working parameters are left alone.
void Engine::execute(const Hold& c) {
  const TrainingSetup& setup = *options_.setup;
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    if (c.segments[s])
      state_.hold(s);
    else if (state_.holds(s))
      state_.drop(s);
    if (c.fresh && c.segments[s] && state_.label(s) == kNoVersion)
      state_.initialise_segment(s, setup.parameters, setup.exponents);
    breathe();
  }
}

void Engine::execute(const Apply& c) {
  constexpr std::size_t kAtOnce = 4;  // segments: checked and applied while they are in the cache
  at(WorkPhase::kApply);
  clock_.mark(StepMark::kPassed);
  totals_.set_pending(c.record.version);
  std::vector<SegmentId> segments;
  for (SegmentId s = 0; s < layout_.segments(); ++s)
    if (state_.holds(s) && state_.label(s) == c.record.version) segments.push_back(s);
  sabotage::flip_total(totals_, layout_, segments, c.record.version, name());
  for (std::size_t i = 0; i < segments.size(); i += kAtOnce) {
    const auto part = std::span(segments).subspan(i, std::min(kAtOnce, segments.size() - i));
    const auto begun = clock_.now();
    for (const SegmentId s : part)
      if (!state_.intact(s)) return end_damaged("the state", s);
    const auto between = clock_.now();
    for (const SegmentId s : part)
      if (!totals_.intact(s)) return end_damaged("the total", s);
    clock_.checked(begun, between);
    state_.apply(totals_, c.record, part);
    breathe();
  }
  totals_.clear();
}

void Engine::execute(const ClearAccumulators&) {
  accumulators_.clear();
  clock_.mark(StepMark::kApplied);
}

void Engine::execute(const DropTotals&) {
  totals_.clear();
}

void Engine::execute(const ComputeNorm& c) {
  sabotage::flip_state(state_, c.segments, c.version, name());
  sabotage::corrupt_replicas(state_, c.segments, c.version, name());
  const Digest part = c.digest ? state_.digest_part(c.segments) : Digest{};
  clock_.mark(StepMark::kDigested);
  const auto norm = state_.partial_norm(totals_, c.segments).words();
  clock_.mark(StepMark::kNormed);
  handle(event::NormReady{c.epoch, c.version, norm, part});
}

void Engine::execute(const ComputeDigest& c) {
  at(WorkPhase::kEnd);
  handle(event::DigestReady{c.epoch, c.version, state_.digest_part(c.segments),
                            state_.parameters_part(c.segments)});
}

Digest Engine::parameters_digest() const {
  std::vector<SegmentId> all(layout_.segments());
  std::iota(all.begin(), all.end(), SegmentId{0});
  return state_.parameters_part(all);
}

void Engine::execute(const Compute& c) {
  at(WorkPhase::kCompute);
  clock_.begin(c.version, worker_.world());
  calls_.compute({c.version, c.micro_batches});
}

// ---- Epochs -----------------------------------------------------------------------------------

void Engine::execute(const Connect& c) {
  const std::size_t members = c.plan->members.size();
  if (auto why = too_many_files(members, "worker", files_of_worker(members)); !why.empty())
    return execute(Exit{2, false, std::move(why), std::nullopt});
  if (c.plan->kind == PlanKind::kForced) pause_.mark(PauseClock::kPlanned);
  auto io = std::make_unique<EpochIo>();
  collectives::MeshOptions mesh;
  mesh.job = options_.job_id;
  mesh.epoch = c.plan->id;
  mesh.key = c.plan->key;
  mesh.self = c.self;
  mesh.connect_timeout = options_.connect_timeout;
  mesh.seal = options_.setup->job.seal;
  for (const Member& m : c.plan->members) mesh.peers.push_back({m.who, m.host, m.port});
  collectives::MeshEvents events;
  const auto post = calls_.post;
  const EpochId epoch = c.plan->id;
  using Kind = MeshEvent::Kind;
  events.on_connected = [post, epoch] { post({epoch, Kind::kConnected, 0, {}, {}}); };
  events.on_frame = [post, epoch](Rank from, Frame frame) {
    post({epoch, Kind::kFrame, from, std::move(frame), {}});
  };
  events.on_broken = [post, epoch](Rank peer, std::string why) {
    post({epoch, Kind::kBroken, peer, {}, std::move(why)});
  };
  events.on_drained = [post, epoch] { post({epoch, Kind::kDrained, 0, {}, {}}); };
  io->mesh = std::make_unique<collectives::Mesh>(std::move(mesh), std::move(events), listener_);
  io->frames.emplace(
      collectives::EpochOptions{
          .plan = c.plan, .self = c.self, .joiner = c.joiner, .version = c.version},
      layout_, static_cast<collectives::GatherSource&>(*this), *io->mesh);
  prepare_memory(*c.plan, c.self);
  log_.info("connecting", {{"epoch", to_string(epoch)}, {"rank", c.self}, {"world", members}});
  collectives::Mesh& started = *io->mesh;
  epochs_[epoch] = std::move(io);
  started.start();
}

void Engine::prepare_memory(const Plan& plan, Rank self) {
  if (is_preparing_) return;  // no harm: it is found when it is written
  std::vector<SegmentId> segments;
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    const auto& holders = plan.holders[s];
    if (!state_.holds(s) && std::find(holders.begin(), holders.end(), self) != holders.end())
      segments.push_back(s);
  }
  for (const Move& move : plan.moves)
    for (SegmentId s = move.segments.first; s < move.segments.first + move.segments.count; ++s)
      if (move.target == self) segments.push_back(s);
  const bool first = !std::exchange(prepared_, true);
  if (segments.empty() && !first) return;
  is_preparing_ = true;
  preparing_ = std::jthread([this, first, segments](const std::stop_token& stop) {
    run_behind();
    if (first) {
      state_.prepare_parameters(stop);
      accumulators_.prepare(stop);
    }
    for (const SegmentId s : segments) {
      totals_.prepare(s, stop);
      state_.prepare(s, stop);
    }
    is_preparing_ = false;
  });
}

void Engine::execute(const Stop& c) {
  at(WorkPhase::kChange);
  pause_.stopped();
  close(c.epoch);
  handle(event::Stopped{c.epoch});
}

// R9: when it returns, nothing of that epoch is sent or received any more.
void Engine::close(const EpochId& epoch) {
  const auto it = epochs_.find(epoch);
  if (it == epochs_.end()) return;
  it->second->mesh->stop();
  it->second->closed = true;
  closed_.push_back(std::move(it->second));  // whoever is handing it a frame still looks at it
  epochs_.erase(it);
}

void Engine::execute(const elastic::worker_command::Leave& c) {
  if (const auto it = epochs_.find(c.epoch); it != epochs_.end()) it->second->mesh->leave();
}

void Engine::give_up(EpochIo& io, Rank peer, const std::string& why) {
  const EpochId epoch = io.frames->plan().id;
  log_.info("epoch broken", {{"epoch", to_string(epoch)}, {"peer", peer}, {"cause", why}});
  handle(event::Broken{epoch, peer});
}

void Engine::execute(const SayReady& c) {
  const auto it = epochs_.find(c.epoch);
  if (it != epochs_.end()) it->second->frames->send_ready();
}

void Engine::execute(const SetVersion& c) {
  EpochIo& io = *epochs_.at(c.epoch);
  take(io, io.frames->set_version(c.version));
}

// ---- Frames -----------------------------------------------------------------------------------

void Engine::take(EpochIo& io, collectives::EpochEvents events) {
  for (auto& e : events) {
    if (io.closed) return;
    std::visit([&](auto& one) { take(io, one); }, e);
  }
}

void Engine::take(EpochIo& io, collectives::epoch_event::GatherBegun& e) {
  handle(event::GatherBegun{io.frames->plan().id, e.version, e.record});
}

void Engine::take(EpochIo& io, collectives::epoch_event::LedgerArrived& e) {
  handle(event::LedgerArrived{io.frames->plan().id, e.from, e.version, std::move(e.rows)});
}

void Engine::take(EpochIo& io, collectives::epoch_event::VoteArrived& e) {
  handle(event::VoteArrived{io.frames->plan().id, e.from, std::move(e.vote)});
}

void Engine::take(EpochIo& io, const collectives::epoch_event::PeerReady& e) {
  handle(event::PeerReady{io.frames->plan().id, e.from});
}

void Engine::take(EpochIo& io, const collectives::epoch_event::Wrong& e) {
  give_up(io, e.peer, e.error.text());
}

// It goes with the first sums: StartReduce follows.
void Engine::execute(const SendLedger& c) {
  EpochIo& io = *epochs_.at(c.epoch);
  io.mesh->hold();
  io.frames->send_ledger(c.version, c.rows);
}

void Engine::execute(const SendVote& c) {
  at(WorkPhase::kVote);
  epochs_.at(c.epoch)->frames->send_vote(c.vote);
}

}  // namespace starling::actors
