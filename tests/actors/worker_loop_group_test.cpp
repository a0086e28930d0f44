// Whole workers in one process, without actors and control network: real loops, connections and
// passes, and a real coordinator with its log in memory. What ThreadSanitizer sees of a run.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "elastic/membership/coordinator.h"
#include "tests/actors/live_worker.h"

namespace starling::actors {
namespace {

using std::chrono::milliseconds;

constexpr JobId kGroupJob{{7}};
constexpr std::uint64_t kSteps = 12;
constexpr milliseconds kTick{10};

struct Said {
  Incarnation from;
  std::string name;
  Message body;
};

// Passes of steps below the highest that was opened may begin. Threads: any.
class StepGate {
 public:
  void open(Version below) {
    const std::lock_guard lock(mutex_);
    below_ = std::max(below_, below);
    changed_.notify_all();
  }
  void wait(Version step) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return step < below_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Version below_ = 0;
};

class LiveWorker {
 public:
  LiveWorker(std::shared_ptr<const TrainingSetup> setup, std::uint64_t nonce, StepGate& gate,
             Mailbox<Said>& coordinator)
      : rig(setup, kGroupJob, nonce),
        name("worker-" + std::to_string(nonce)),
        computer_(setup, rig, [&gate](Version step) { gate.wait(step); }) {
    rig.on_said = [this, &coordinator](const Message& m) { coordinator.put({rig.who, name, m}); };
    rig.on_order = [this](ComputeOrder order) { computer_.order(std::move(order)); };
    thread_ = std::thread([this] { run(); });
  }
  ~LiveWorker() {
    if (thread_.joinable()) kill();
  }
  void hear(const Message& message) {
    rig.post([message](WorkerLoop& loop) { loop.on_message(message); });
  }
  // Returns when it is dead.
  void kill() {
    rig.post([this](WorkerLoop& loop) {
      loop.stop();
      over_ = true;
    });
    thread_.join();
  }
  bool over() const { return over_; }

  LoopRig rig;  // the thread's until it is over
  const std::string name;

 private:
  void run() {
    rig.loop->start();
    auto tick = std::chrono::steady_clock::now();
    while (!over_) {
      rig.drive(kTick);
      if (rig.over) over_ = true;
      if (std::chrono::steady_clock::now() < tick) continue;
      tick += kTick;
      rig.loop->tick();
    }
  }

  std::atomic<bool> over_{false};
  Computer computer_;
  std::thread thread_;
};

class Run {
 public:
  Run(std::shared_ptr<const TrainingSetup> setup, std::uint32_t wanted) : setup_(std::move(setup)) {
    elastic::CoordinatorConfig config;
    config.raft.size = 1;
    config.job = {kGroupJob, job_hash(setup_->job)};
    elastic::LeaderConfig& leader = config.leader;
    leader.micro_batches = setup_->job.micro_batches;
    leader.steps = setup_->job.steps;
    leader.segments = setup_->layout->segments();
    leader.bucket_segments = setup_->layout->bucket(0).count;
    leader.wanted_workers = wanted;
    leader.move_budget = 4;
    leader.change_window_ms = 1;
    leader.elastic = setup_->job.elastic;
    leader.report_deadline_ms = setup_->job.elastic.lease_ms;
    leader.job_hash = config.job.job_hash;
    machine_.emplace(std::move(config), elastic::HardState{}, std::vector<RaftEntry>{});
    for (std::uint32_t i = 0; i < wanted; ++i) start_worker();
  }

  void start_worker() {
    const std::uint64_t nonce = workers_.size() + 1;
    workers_.push_back(std::make_unique<LiveWorker>(setup_, nonce, gate, inbox_));
  }
  // Its guard tells of the death at once.
  void kill(std::size_t i) {
    workers_[i]->kill();
    inbox_.put({{0, Nonce(i + 1)}, workers_[i]->name, Death{{0, Nonce(i + 1)}}});
  }

  // Until the job has ended and all workers know.
  void run() {
    const auto began = std::chrono::steady_clock::now();
    while (!done || !std::ranges::all_of(workers_, [](auto& w) { return w->over(); })) {
      const auto now = std::chrono::steady_clock::now() - began;
      REQUIRE(now < 2 * kPatience);
      handle(elastic::coordinator_event::Tick{
          1 + std::uint64_t(std::chrono::duration_cast<milliseconds>(now).count())});
      if (const auto said = inbox_.take(kTick)) {
        if (on_said) on_said(*said);
        handle(elastic::coordinator_event::WorkerSaid{said->from, said->name, said->body});
      }
    }
  }
  std::vector<float> parameters(std::size_t i) const {
    return workers_[i]->rig.loop->memory()->state().copy_parameters();
  }

  StepGate gate;
  std::function<void(const Said&)> on_said;
  std::function<void(const Event&)> on_event;
  std::optional<event::Done> done;

 private:
  void handle(const elastic::CoordinatorEvent& event) {
    for (auto& command : machine_->on(event)) std::visit([this](auto& c) { execute(c); }, command);
  }
  void execute(const elastic::coordinator_command::Persist&) {
    handle(elastic::coordinator_event::Persisted{});
  }
  void execute(const elastic::coordinator_command::SendRaft&) {}  // there is nobody else
  void execute(const elastic::coordinator_command::Dial&) {}
  // No checkpoints in these runs.
  void execute(const elastic::leader_command::Store&) { FAIL("a checkpoint"); }
  void execute(const elastic::leader_command::Tidy&) { FAIL("a checkpoint"); }
  void execute(const elastic::coordinator_command::Fail& c) { FAIL(c.reason); }
  void execute(const elastic::coordinator_command::RefuseJob&) { FAIL("another job"); }
  void execute(const elastic::coordinator_command::SendWorker& c) {
    if (!workers_[c.to.nonce - 1]->over()) workers_[c.to.nonce - 1]->hear(c.body);
  }
  void execute(const elastic::coordinator_command::Tell& c) {
    if (const auto* e = std::get_if<event::Done>(&c.event)) done = *e;
    if (const auto* e = std::get_if<event::Failed>(&c.event)) FAIL(e->reason);
    if (on_event) on_event(c.event);
  }

  const std::shared_ptr<const TrainingSetup> setup_;
  Mailbox<Said> inbox_;
  std::optional<elastic::Coordinator> machine_;
  std::vector<std::unique_ptr<LiveWorker>> workers_;
};

}  // namespace

// Two workers; a third joins at step 4 by a prepared switch; one of the first two is killed while
// all compute step 8. Gates make each happen in that step, on every machine.
TEST_CASE("worker loop: a join and a loss leave every bit as in an undisturbed run (P1)") {
  const auto setup = synthetic_setup(20'000, kSteps);
  Run alone(setup, 1);
  alone.gate.open(kSteps);
  alone.run();
  REQUIRE(alone.done);

  Run group(setup, 2);
  group.gate.open(4);
  std::map<std::uint64_t, EpochId> ready;
  group.on_said = [&](const Said& said) {
    const auto* beat = std::get_if<Heartbeat>(&said.body);
    if (!beat) return;
    ready[said.from.nonce] = beat->ready_for;
    // Both say so in their votes for step 4, which therefore switches.
    if (ready[1] && ready[1] == ready[2]) group.gate.open(8);
  };
  bool joined = false, killed = false;
  std::vector<std::size_t> worlds;
  group.on_event = [&](const Event& event) {
    if (const auto* epoch = std::get_if<event::EpochFormed>(&event))
      worlds.push_back(epoch->members.size());
    const auto* passed = std::get_if<event::StepPassed>(&event);
    if (!passed) return;
    const Version step = passed->record.version;
    if (step == 3 && !std::exchange(joined, true)) group.start_worker();
    if (step == 7 && !std::exchange(killed, true)) {
      group.kill(1);
      group.gate.open(kSteps);
    }
  };
  group.run();

  REQUIRE(group.done);
  REQUIRE(worlds.size() > 2);
  CHECK(worlds.front() == 2);
  CHECK(std::ranges::count(worlds, 3) >= 1);
  CHECK(worlds.back() == 2);
  CHECK(group.done->digest == alone.done->digest);
  CHECK(group.done->loss == alone.done->loss);
  const auto expected = alone.parameters(0);
  CHECK(group.parameters(0) == expected);
  CHECK(group.parameters(2) == expected);
}

}  // namespace starling::actors
