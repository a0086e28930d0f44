#include "actors/worker/trainer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>

#include "actors/system.h"
#include "actors/worker/loader.h"
#include "actors/worker/workbench.h"
#include "tests/actors/patience.h"

namespace starling::actors {
namespace {

constexpr std::uint32_t kMicroBatches = 8, kNoData = 6, kNoPass = 7;
constexpr std::uint64_t kSeed = 9;
constexpr MicroBatch kThrows = 8, kNoMemory = 9, kDataThrows = 10;  // of no step

using Place = std::pair<Version, MicroBatch>;

// Notes the passes that begin; none ends while it is shut.
class PassGate {
 public:
  void pass(const Place& place) {
    std::unique_lock lock(mutex_);
    if (before_) before_();
    begun_.push_back(place);
    changed_.notify_all();
    changed_.wait_for(lock, kPatience, [this] { return open_; });
  }
  void note(const DrawKey& key) {
    const std::lock_guard lock(mutex_);
    drawn_.push_back(key);
  }
  std::vector<DrawKey> drawn() {
    const std::lock_guard lock(mutex_);
    return drawn_;
  }
  void before(std::function<void()> before) {
    const std::lock_guard lock(mutex_);
    before_ = std::move(before);
  }
  void set_open(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  bool begins(const std::vector<Place>& places) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return begun_ == places; });
  }
  // The first n that begin, sorted.
  std::vector<Place> first(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return begun_.size() >= n; });
    auto places = begun_;
    std::sort(places.begin(), places.end());
    return places;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    begun_.clear();
    drawn_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> begun_;
  std::vector<DrawKey> drawn_;
  std::function<void()> before_;
  bool open_ = true;
};

// Eight parameters, the gradient 1, the loss the micro-batch's number.
class Gated : public kernels::Model {
 public:
  explicit Gated(PassGate& gate) : gate_(gate) {}
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::fill(parameters.begin(), parameters.end(), 0.0f);
    return ok();
  }
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float>, const Batch& batch,
                                                     kernels::Workspace&,
                                                     std::span<float> gradient) const override {
    gate_.note(batch.draw);
    gate_.pass({batch.draw.step, batch.draw.micro_batch});
    if (batch.draw.micro_batch == kThrows) throw std::runtime_error("my own complaint");
    if (batch.draw.micro_batch == kNoMemory) throw std::bad_alloc();
    if (batch.draw.micro_batch == kNoPass) return Error(Code::kBadInput, "does not fit");
    std::fill_n(gradient.begin(), 8, 1.0f);
    return kernels::MicroBatchResult{double(batch.draw.micro_batch), 3, true};
  }

 private:
  PassGate& gate_;
  const std::vector<TensorSpec> tensors_{{"w", {8}}};
};

Result<Batch> trainer_source(std::uint64_t, MicroBatch m) {
  if (m == kDataThrows) throw std::runtime_error("no more of it");
  if (m == kNoData) return Error(Code::kBadInput, "no such data");
  Batch batch;  // without a draw, which is the trainer's to say
  batch.sequences = 1;
  return batch;
}

// What compute threads work at.
struct Memory {
  explicit Memory(const TrainingSetup& setup)
      : layout(*setup.layout),
        state(layout, setup.job),
        accumulators(layout, setup.job.micro_batches) {}
  void complete(Version version) {
    for (SegmentId s = 0; s < layout.segments(); ++s) arrivals.note(s, version);
  }
  const Layout& layout;
  kernels::State state;
  kernels::Accumulators accumulators;
  std::atomic<std::uint64_t> progress = 0;
  Arrivals arrivals{layout};
  Workbench bench{state, arrivals, accumulators, progress, /*seed=*/1, "worker"};
};

// A trainer whose worker is the test.
struct TrainerRig {
  explicit TrainerRig(std::uint32_t threads = 1, double compute_ms = 0) {
    Job job;
    job.micro_batches = kMicroBatches;
    job.steps = 10;
    job.seed = kSeed;
    job.model = SyntheticSpec{1000, compute_ms, 0, {}};
    auto setup = set_up(job, std::make_shared<Gated>(gate), trainer_source, Digest{}).value();
    gate.forget();  // set_up's pass
    memory = std::make_shared<Memory>(*setup);
    TrainerOptions options;
    options.setup = setup;
    options.threads = threads;
    options.loader = loader = spawn_loader(system, trainer_source);
    options.workbench = {memory, &memory->bench};
    trainer = spawn_trainer(system, options, caf::actor_cast<caf::actor>(self));
  }
  ~TrainerRig() {
    gate.set_open(true);
    self->send_exit(trainer, caf::exit_reason::user_shutdown);
    self->send_exit(loader, caf::exit_reason::user_shutdown);
    trainer = loader = nullptr;
    self->await_all_other_actors_done();  // before what they work at goes
  }

  void order(Version version, std::vector<MicroBatch> micro_batches) {
    memory->complete(version);
    order_incomplete(version, std::move(micro_batches));
  }
  // Before the parameters of the version are there.
  void order_incomplete(Version version, std::vector<MicroBatch> micro_batches) {
    self->send(trainer, ComputeOrder{version, std::move(micro_batches)});
  }
  MicroBatchComputed computed() {
    MicroBatchComputed computed;
    self->receive([&](const MicroBatchComputed& c) { computed = c; },
                  caf::after(kPatience) >> [] { FAIL("nothing was computed"); });
    return computed;
  }
  // The next `n`, in any order.
  std::vector<Place> places(std::size_t n) {
    std::vector<Place> places;
    for (std::size_t i = 0; i < n; ++i) {
      const auto c = computed();
      CHECK(c.error.empty());
      places.emplace_back(c.version, c.row.micro_batch);
    }
    std::sort(places.begin(), places.end());
    return places;
  }

  PassGate gate;
  caf::actor_system_config config = make_system_config();
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  std::shared_ptr<Memory> memory;
  caf::actor loader, trainer;
};

}  // namespace

TEST_CASE("trainer: every micro-batch of an order is computed, added and told, in its order") {
  TrainerRig rig;
  rig.order(4, {2, 0, 5});
  for (const MicroBatch m : std::vector<MicroBatch>{2, 0, 5}) {
    const auto c = rig.computed();
    CHECK(c.version == 4);
    CHECK(c.row.micro_batch == m);
    CHECK(c.row.loss == m);
    CHECK(c.row.tokens == 3);
    CHECK(c.row.finite);
    CHECK(c.error.empty());
  }
  CHECK(rig.gate.begins({{4, 2}, {4, 0}, {4, 5}}));
  CHECK(rig.memory->accumulators.done() == std::vector<MicroBatch>{0, 2, 5});
}

// Goal: a model that takes its random numbers from Batch::draw has others in each pass, also where the
// application makes batches and sets none, as actors of examples/embed do.
TEST_CASE("trainer: a batch draws from the job's seed, its step and its micro-batch") {
  TrainerRig rig;
  rig.order(4, {2, 0});
  CHECK(rig.places(2) == std::vector<Place>{{4, 0}, {4, 2}});
  const std::vector<DrawKey> expected{{kSeed, 4, 2}, {kSeed, 4, 0}};
  CHECK((rig.gate.drawn() == expected));
}

// An application's model, or its data: nobody else would tell, and all would wait for ever.
TEST_CASE("trainer: what a model or its data throws is told as an error of that micro-batch") {
  TrainerRig rig;
  rig.order(4, {kThrows, kNoMemory, kDataThrows, 0});
  auto c = rig.computed();
  CHECK(c.row.micro_batch == kThrows);
  CHECK(c.error == "exception while computing micro-batch 8 of step 4: my own complaint");
  CHECK(c.error_code == Code::kBadInput);
  c = rig.computed();
  CHECK(c.error == "out of memory while computing micro-batch 9 of step 4");
  CHECK(c.error_code == Code::kUnavailable);
  c = rig.computed();
  CHECK(c.error == "exception while loading micro-batch 10 of step 4: no more of it");
  c = rig.computed();
  CHECK(c.error.empty());
}

// An order can pass the word that a micro-batch of it is done.
TEST_CASE("trainer: a micro-batch that was begun is not begun again (P2)") {
  TrainerRig rig;
  rig.gate.set_open(false);
  rig.order(0, {0, 1});
  REQUIRE(rig.gate.begins({{0, 0}}));
  rig.order(0, {0, 1, 2});
  rig.gate.set_open(true);
  CHECK(rig.places(3) == std::vector<Place>{{0, 0}, {0, 1}, {0, 2}});
  rig.order(0, {0, 1, 2, 3});
  CHECK(rig.places(1) == std::vector<Place>{{0, 3}});
  CHECK(rig.gate.begins({{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
}

TEST_CASE("trainer: a new order replaces what has not begun; what has, counts (R8)") {
  TrainerRig rig;
  rig.gate.set_open(false);
  rig.order(0, {0, 1, 2, 3});
  REQUIRE(rig.gate.begins({{0, 0}}));
  rig.order(0, {3});
  rig.gate.set_open(true);
  CHECK(rig.places(2) == std::vector<Place>{{0, 0}, {0, 3}});
  rig.memory->accumulators.clear();
  rig.order(1, {0});  // of another step it is another micro-batch
  CHECK(rig.places(1) == std::vector<Place>{{1, 0}});
  CHECK(rig.gate.begins({{0, 0}, {0, 3}, {1, 0}}));
}

TEST_CASE("trainer: as many micro-batches at once as threads") {
  TrainerRig rig(/*threads=*/3);
  rig.gate.set_open(false);
  rig.order(0, {0, 1, 2, 3});
  CHECK(rig.gate.first(3) == std::vector<Place>{{0, 0}, {0, 1}, {0, 2}});
  rig.gate.set_open(true);
  CHECK(rig.places(4) == std::vector<Place>{{0, 0}, {0, 1}, {0, 2}, {0, 3}});
}

TEST_CASE("trainer: what fails is told with the reason, adds nothing, and the next is computed") {
  TrainerRig rig;
  rig.order(0, {kNoData, kNoPass, 1});
  const auto no_data = rig.computed(), no_pass = rig.computed(), good = rig.computed();
  CHECK(no_data.error == "no such data; loading micro-batch 6 of step 0");
  CHECK(no_data.row.micro_batch == kNoData);
  CHECK(no_pass.error == "does not fit; computing micro-batch 7 of step 0");
  CHECK(no_pass.row.micro_batch == kNoPass);
  CHECK(good.error.empty());
  CHECK(rig.memory->accumulators.done() == std::vector<MicroBatch>{1});
}

TEST_CASE("trainer: a pass waits until the parameters of its version are there") {
  TrainerRig rig;
  std::atomic<bool> complete = false;
  rig.gate.before([&] { CHECK(complete); });
  rig.memory->complete(3);
  rig.order_incomplete(4, {0});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in which it may not begin
  complete = true;
  rig.memory->complete(4);
  CHECK(rig.places(1) == std::vector<Place>{{4, 0}});
}

// Method: they never come; the rig's end waits for all actors.
TEST_CASE("trainer: an exit does not wait for parameters") {
  TrainerRig rig(/*threads=*/2);
  rig.order_incomplete(4, {0, 1});
}

// Method: micro-batches of an hour; the rig's end waits for all actors.
TEST_CASE("trainer: an exit does not wait until a micro-batch has taken its time") {
  TrainerRig rig(/*threads=*/2, /*compute_ms=*/3'600'000);
  rig.order(0, {0});
  REQUIRE(rig.gate.begins({{0, 0}}));
}

}  // namespace starling::actors
