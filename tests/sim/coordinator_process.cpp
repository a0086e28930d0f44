#include "tests/sim/coordinator_process.h"

#include <utility>

#include "core/base/check.h"
#include "core/wire/codec.h"
#include "tests/sim/world.h"

namespace starling::sim {

using namespace elastic::coordinator_command;

CoordinatorProcess::CoordinatorProcess(World& world, std::uint32_t index)
    : world_(world), index_(index), random_(world.settings().seed, 100 + index) {}

void CoordinatorProcess::start() {
  const Settings& s = world_.settings();
  ++life_;
  elastic::CoordinatorConfig config;
  config.raft.self = index_;
  config.raft.size = s.coordinators;
  config.raft.seed = random_.next();
  config.log_entries_max = s.log_entries_max;
  if (s.plant_wiped_vote) config.raft.bug = elastic::RaftBug::kWipedVotes;
  if (s.plant_impatient) config.raft.bug = elastic::RaftBug::kImpatient;
  elastic::LeaderConfig& leader = config.leader;
  leader.elastic = s.elastic;
  leader.checkpoint = s.checkpoint;
  leader.micro_batches = s.micro_batches;
  leader.steps = s.steps;
  leader.segments = s.segments;
  leader.bucket_segments = world_.numbers().layout().bucket(0).count;
  leader.replicas = s.replicas;
  leader.wanted_workers = s.workers;
  leader.move_budget = s.move_budget;
  leader.report_deadline_ms = s.report_deadline_ms;
  leader.change_window_ms = s.change_window_ms;
  leader.restart_window_ms = s.restart_window_ms;
  leader.stop_on_nonfinite = s.stop_on_nonfinite;
  leader.job_hash = s.seed;
  leader.tensors.assign(s.segments, "toy");
  leader.bugs = s.bugs;
  config.job.job_hash = s.seed;
  config.job.job[0] = 1;
  config.job.checkpoints = world_.left();
  config.told = disk_told;
  for (auto& byte : config.secret) byte = static_cast<std::uint8_t>(random_.next());
  const auto kept = disk_log.begin() + static_cast<std::ptrdiff_t>(disk_snapshot.index);
  machine_.emplace(std::move(config), disk_state, std::vector<RaftEntry>(kept, disk_log.end()),
                   disk_snapshot);
  inbox_.clear();
  writing_.reset();
  paused_until_ = 0;
  world_.after(random_.range(0, 10 * kMs), [this, life = life_] {
    if (life == life_) tick();
  });
}

void CoordinatorProcess::crash() {
  if (!alive()) return;
  world_.trace("coordinator " + std::to_string(index_), "crashes");
  // A write under way: it had reached the disk, or had not.
  if (writing_ && random_.chance(0.5)) write(*writing_);
  if (writing_) world_.count("coordinator crashed while writing");
  if (machine_->leads()) world_.count("leader crashed");
  machine_.reset();
  ++life_;
  inbox_.clear();
  writing_.reset();
}

void CoordinatorProcess::wipe() {
  world_.trace("coordinator " + std::to_string(index_), "loses its folder");
  disk_state = {};
  disk_state.lost = true;
  disk_snapshot = {};
  disk_log.clear();
}

bool CoordinatorProcess::whole() const {
  return !disk_state.lost && disk_state.floor == elastic::LogPosition{};
}

void CoordinatorProcess::pause(Micros duration) {
  if (!alive()) return;
  paused_until_ = std::max(paused_until_, world_.now() + duration);
  world_.at(paused_until_, [this] { drain_inbox(); });
}

void CoordinatorProcess::submit(std::function<void()> action) {
  if (!alive()) return;
  inbox_.push_back(std::move(action));
  drain_inbox();
}

void CoordinatorProcess::drain_inbox() {
  while (alive() && !inbox_.empty() && world_.now() >= paused_until_) {
    const auto action = std::move(inbox_.front());
    inbox_.pop_front();
    action();
  }
}

void CoordinatorProcess::tick() {
  submit([this] { handle(elastic::coordinator_event::Tick{world_.now_ms()}); });
  world_.after(10 * kMs, [this, life = life_] {
    if (life == life_) tick();
  });
}

void CoordinatorProcess::handle(const elastic::CoordinatorEvent& event) {
  if (!alive()) return;
  world_.mix(event.index() + 16 * index_);
  auto commands = machine_->on(event);
  world_.oracle().after_coordinator(*this);
  for (auto& command : commands) carry_out(command);
}

// A write takes its time, and everything else goes on meanwhile: what must come after it is told by
// the machine after Persisted.
void CoordinatorProcess::carry_out(elastic::CoordinatorCommand& command) {
  if (auto* persist = std::get_if<Persist>(&command)) {
    STARLING_CHECK(!writing_);
    writing_ = std::move(*persist);
    world_.after(World::draw(random_, world_.settings().persist), [this, life = life_] {
      if (life != life_) return;
      submit([this] {
        write(*std::exchange(writing_, std::nullopt));
        handle(elastic::coordinator_event::Persisted{});
      });
    });
  }
  if (const auto* raft = std::get_if<SendRaft>(&command)) world_.raft_says(raft->message);
  if (const auto* send = std::get_if<SendWorker>(&command))
    world_.coordinator_says(index_, send->to, send->body);
  if (const auto* tell = std::get_if<Tell>(&command)) {
    world_.oracle().told(tell->event);
    if (const auto* step = std::get_if<event::StepPassed>(&tell->event))
      disk_told = std::max(disk_told, step->record.version + 1);
  }
  if (const auto* tidy = std::get_if<TidyCheckpoints>(&command)) world_.storage().tidy(*tidy);
  if (const auto* order = std::get_if<StoreCheckpoint>(&command)) store(*order);
  if (const auto* fail = std::get_if<Fail>(&command))
    world_.oracle().violated("a coordinator cannot go on: " + fail->reason);
  if (std::holds_alternative<RefuseJob>(command))
    world_.oracle().violated("a coordinator refuses the world's only job");
}

// The manifest is there whether or not this process still is when it hears of it.
void CoordinatorProcess::store(const StoreCheckpoint& order) {
  world_.after(World::draw(random_, world_.settings().shard_write), [this, order, life = life_] {
    const std::string error = world_.storage().store(order);
    if (life != life_) return;
    submit([this, version = order.checkpoint.version, error] {
      handle(elastic::coordinator_event::Stored{version, error});
    });
  });
}

void CoordinatorProcess::write(const Persist& persist) {
  const bool was_whole = whole();
  if (persist.hard_state) disk_state = *persist.hard_state;
  if (whole() && !was_whole) world_.count("wiped coordinator repaired");
  if (persist.snapshot) {
    world_.count("coordinator's snapshot");
    disk_snapshot = *persist.snapshot;
    const auto& committed = world_.oracle().committed();
    disk_log.assign(committed.begin(),
                    committed.begin() + static_cast<std::ptrdiff_t>(disk_snapshot.index));
  }
  if (persist.append.empty()) return;
  disk_log.resize(std::min<std::size_t>(disk_log.size(), persist.append.front().index - 1));
  disk_log.insert(disk_log.end(), persist.append.begin(), persist.append.end());
}

}  // namespace starling::sim
