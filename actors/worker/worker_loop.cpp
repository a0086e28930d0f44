#include "actors/worker/worker_loop.h"

#include <algorithm>
#include <utility>

#include "actors/files.h"
#include "actors/sabotage.h"
#include "core/base/exit.h"

namespace starling::actors {

using namespace elastic::worker_command;
namespace event = elastic::worker_event;

namespace {

// Heartbeats come ten a lease, ten a second at least: a long lease is no reason for late progress.
std::uint64_t heartbeat_ms(const Job& job) {
  return std::min<std::uint64_t>(job.elastic.lease_ms / 10, 100);
}

// Limits the wait of the job's end for data to be read.
constexpr std::uint64_t kDataWaitMs = 3000;

// In its first passes every worker rechecks a model that may keep state: of a process that begins, now or
// in the middle of a run, all that its machine does differently is new.
constexpr std::uint64_t kWatchedPasses = 32;

elastic::WorkerConfig worker_config(const TrainingSetup& setup) {
  elastic::WorkerConfig config;
  config.micro_batches = setup.job.micro_batches;
  config.steps = setup.job.steps;
  config.segments = setup.layout->segments();
  config.elastic = setup.job.elastic;
  config.checkpoint = setup.job.checkpoint;
  config.stop_on_nonfinite = setup.job.on_nonfinite == NonFinite::kStop;
  config.loss_scale = loss_scale_rule(setup.job);
  config.recheck = {setup.job.elastic.recheck, /*first=*/0, setup.job.seed};
  if (kind_of(setup.job.model).may_keep_state) {
    const std::uint64_t passes = std::max(setup.job.local.steps, 1u);  // of a micro-batch
    config.recheck.first = (kWatchedPasses + passes - 1) / passes;
    if (setup.held_out) config.recheck.every = setup.job.evaluate.every;
  }
  config.evaluates = setup.held_out != nullptr;
  config.evaluation_width = evaluation_width(setup.job);
  config.heartbeat_ms = std::max<std::uint64_t>(10, heartbeat_ms(setup.job));
  config.data_wait_ms = kDataWaitMs;
  return config;
}

}  // namespace

WorkerLoop::WorkerLoop(WorkerLoopOptions options, collectives::Listener& listener,
                       WorkerLoopCalls calls, Log log)
    : options_(std::move(options)),
      calls_(std::move(calls)),
      log_(std::move(log)),
      worker_(worker_config(*options_.setup)),
      began_(std::chrono::steady_clock::now()),
      passed_(began_),
      data_plane_(
          DataPlaneOptions{options_, options_.job_id, options_.join.who, options_.join.name},
          listener, calls_.post, log_) {}

WorkerLoop::~WorkerLoop() {
  stop();
}

void WorkerLoop::stop() {
  over_ = true;
  stopped_ = data_plane_.stop();
}

// ---- Events -----------------------------------------------------------------------------------

void WorkerLoop::start() {
  feed_time();
  handle(event::Start{options_.join});
}

void WorkerLoop::feed_time() {
  const auto now = std::chrono::steady_clock::now() - began_;
  // Time starts at 1: 0 is the machine's "no time yet".
  handle(event::Tick{1 + static_cast<std::uint64_t>(
                             std::chrono::duration_cast<std::chrono::milliseconds>(now).count())});
}

void WorkerLoop::tick() {
  if (loading_) {
    const auto all = static_cast<std::uint32_t>(loading_->segments.size());
    handle(event::Loading{loading_->epoch, all - std::min<std::uint32_t>(all, *loading_->read)});
  }
  // A worker that waits for the store of its data does not hang: another worker in its place would wait for the same store.
  if (const auto& data = options_.setup->dataset; data && data->waits()) workbench()->passed();
  options_.counters->waiting_orders = data_plane_.waiting();
  handle(event::Working{data_plane_.waiting(), data_plane_.progress()});
  feed_time();
}

void WorkerLoop::on_message(const Message& message) {
  if (std::holds_alternative<Fenced>(message) && sabotage::ignores_fence(options_.join.name))
    return;
  if (const auto* welcome = std::get_if<Welcome>(&message))
    calls_.set_counter(welcome->who.counter);
  feed_time();
  handle(event::Received{message});
}

void WorkerLoop::on_notice(const Notice& notice) {
  feed_time();
  handle(event::NoticeGiven{notice});
}

void WorkerLoop::on_data(const Digest& data) {
  handle(event::DataHashed{data});
}

void WorkerLoop::on_micro_batch(Version version, const LedgerRow& row,
                                std::chrono::nanoseconds took) {
  computing_ += took;
  // A worker that does not report its speed counts like all others.
  const bool told = options_.setup->job.elastic.shares == ShareRule::kSpeed;
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(1, took.count()));
  handle(event::MicroBatchDone{version, row, told ? ns : 0});
}

void WorkerLoop::on_again(Version version, const LedgerRow& row, bool begun) {
  event::Rechecked over{version, row.micro_batch, std::nullopt};
  if (begun) over.contribution = row.contribution;
  handle(over);
}

void WorkerLoop::on_evaluated(Version version, std::vector<double> values) {
  handle(event::Evaluated{version, std::move(values)});
}

void WorkerLoop::on_data_plane(DataPlaneEvent said) {
  if (over_) return;
  if (auto* shard = std::get_if<ShardOrder>(&said)) return calls_.write_shard(std::move(*shard));
  auto& e = std::get<elastic::WorkerEvent>(said);
  if (std::holds_alternative<event::Connected>(e)) pause_.mark(PauseClock::kConnected);
  if (std::holds_alternative<event::Reduced>(e)) pause_.mark(PauseClock::kReduced);
  handle(std::move(e));
}

void WorkerLoop::on_shard(ShardDone done) {
  if (done.written.error.empty())
    unwritten_ = {};
  else if (unwritten_.count())
    log_.warn("checkpoint not written", {{"version", done.written.version},
                                         {"in_a_row", unwritten_.counted()},
                                         {"cause", done.written.error}});
  data_plane_.post(data_plane_order::GiveBack{std::move(done.states)});
  handle(event::CheckpointWritten{std::move(done.written)});
}

void WorkerLoop::on_loaded(LoadDone done) {
  if (loading_ && loading_->epoch == done.epoch) loading_.reset();
  if (over_) return;
  if (!done.states) return handle(event::NotInitialised{done.epoch, done.error, done.here});
  data_plane_.post(data_plane_order::TakeLoaded{std::move(done)});
}

void WorkerLoop::handle(elastic::WorkerEvent e) {
  events_.push_back(std::move(e));
  if (handling_) return;
  handling_ = true;
  while (!events_.empty() && !over_) {
    const elastic::WorkerEvent next = std::move(events_.front());
    events_.pop_front();
    for (auto& command : worker_.on(next))
      if (!over_) std::visit([this](auto& c) { execute(c); }, command);
  }
  handling_ = false;
}

// ---- Commands that are not the data plane's alone ---------------------------------------------

void WorkerLoop::execute(ToCoordinators& c) {
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

void WorkerLoop::execute(Initialise& c) {
  if (c.version == 0)
    return data_plane_.post(data_plane_order::Initialise{c.epoch, std::move(c.segments)});
  LoadOrder order{c.epoch, c.version, {}, std::make_shared<std::atomic<std::uint32_t>>(0)};
  for (SegmentId s = 0; s < c.segments.size(); ++s)
    if (c.segments[s]) order.segments.push_back(s);
  loading_ = order;
  calls_.load(std::move(order));
}

void WorkerLoop::execute(elastic::worker_command::Connect& c) {
  const std::size_t members = c.plan->members.size();
  if (auto why = too_many_files(members, "worker", files_of_worker(members)); !why.empty())
    return handle(event::Failed{kExitBadInput, std::move(why)});
  if (c.plan->kind == PlanKind::kForced) pause_.mark(PauseClock::kPlanned);
  data_plane_.post(std::move(c));
}

void WorkerLoop::execute(Stop& c) {
  pause_.stopped();
  data_plane_.post(std::move(c));
}

void WorkerLoop::execute(elastic::worker_command::Compute& c) {
  const bool once_more = c.micro_batches.empty() && !c.again.empty();  // in the middle of a step
  if (!once_more) {
    if (options_.phase) *options_.phase = WorkPhase::kCompute;
    computing_ = {};
    if (options_.times)
      data_plane_.post(data_plane_order::ComputingBegun{c.version, worker_.world()});
  }
  calls_.compute({c.version, std::move(c.micro_batches), c.scale.log2, std::move(c.again)});
}

void WorkerLoop::execute(Evaluate& c) {
  calls_.evaluate({c.version});
}

void WorkerLoop::execute(EndShare& c) {
  pause_.mark(PauseClock::kComputed);
  if (options_.times) data_plane_.post(data_plane_order::ComputingEnded{c.version, computing_});
  data_plane_.post(std::move(c));
}

void WorkerLoop::execute(Exit& c) {
  stop();
  calls_.over(c);
}

}  // namespace starling::actors
