#pragma once
// A worker without actors and control network, for tests: a real loop with real connections, a
// thread that drives it, and one that computes. Nothing here or below uses CAF or ZeroMQ, so
// ThreadSanitizer sees every hand-over.

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "actors/worker/worker_loop.h"
#include "kernels/models/model.h"
#include "tests/actors/patience.h"

namespace starling::actors {

// Threads: any.
template <class T>
class Mailbox {
 public:
  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_all();
  }
  // The oldest; nullopt if none comes in this time.
  std::optional<T> take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return !items_.empty(); })) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
};

// A job of a synthetic model of `parameters` parameters, 4 micro-batches a step.
inline std::shared_ptr<const TrainingSetup> synthetic_setup(std::uint64_t parameters,
                                                            std::uint64_t steps) {
  Job job;
  job.name = "test";
  job.steps = steps;
  job.micro_batches = 4;
  job.model = SyntheticSpec{.parameters = parameters};
  job.elastic.lease_ms = 10'000;  // longer than a loaded machine pauses: no silence is a loss
  job.elastic.digest_every = 1;
  return set_up(
             job, kernels::make_model(job.model, "auto").value(),
             [](std::uint64_t step, MicroBatch m) -> Result<Batch> {
               Batch batch;
               batch.sequences = 1;
               batch.draw = {1, step, m};
               return batch;
             },
             Digest{})
      .value();
}

// Of version 0, [elements].
inline std::vector<float> initial_parameters(const TrainingSetup& setup) {
  std::vector<float> parameters(setup.layout->elements());
  REQUIRE(setup.model->initialise(setup.job.seed, *setup.layout, parameters));
  return parameters;
}

// The loop, and what it said and was told. Threads: post() from any; the rest belongs to whoever
// drives it.
class LoopRig {
 public:
  using Task = std::function<void(WorkerLoop&)>;

  LoopRig(std::shared_ptr<const TrainingSetup> setup, JobId job, std::uint64_t nonce)
      : who{0, Nonce(nonce)}, listener(collectives::Listener::open({}).value()) {
    WorkerLoopOptions options;
    options.setup = setup;
    options.job_id = job;
    options.connect_timeout = std::chrono::milliseconds(kPatience);
    options.join.who = who;
    options.join.name = "worker-" + std::to_string(nonce);
    options.join.host = "127.0.0.1";
    options.join.port = listener->port();
    options.join.job_hash = job_hash(setup->job);
    options.join.fingerprint = setup->fingerprint;
    WorkerLoopCalls calls;
    calls.to_coordinators = [this](const Message& m, std::optional<std::uint32_t>) { on_said(m); };
    calls.compute = [this](ComputeOrder order) { on_order(std::move(order)); };
    calls.post = [this](DataPlaneEvent said) {
      before_post();
      post([said = std::move(said)](WorkerLoop& driven) { driven.on_data_plane(said); });
    };
    calls.over = [this](const elastic::worker_command::Exit& exit) { over = exit; };
    calls.set_counter = [this](std::uint64_t counter) { who.counter = counter; };
    loop = std::make_unique<WorkerLoop>(options, *listener, std::move(calls), Log(LogLevel::kOff));
  }

  void post(Task task) { inbox_.put(std::move(task)); }
  // Hands over the next that comes.
  bool drive(std::chrono::milliseconds patience) {
    const auto task = inbox_.take(patience);
    if (task) (*task)(*loop);
    return task.has_value();
  }
  // Drives it until `what` holds.
  template <class What>
  void until(What what) {
    while (!what()) REQUIRE(drive(kPatience));
  }

  Incarnation who;
  const std::unique_ptr<collectives::Listener> listener;
  std::function<void(const Message&)> on_said = [](const Message&) {};
  std::function<void(ComputeOrder)> on_order = [](const ComputeOrder&) {};
  std::function<void()> before_post = [] {
  };  // on the data plane's thread, before it has said something
  std::optional<elastic::worker_command::Exit> over;

 private:
  Mailbox<Task> inbox_;  // before the loop, whose connections post until it is gone

 public:
  std::unique_ptr<WorkerLoop> loop;
};

// Computes what it is ordered, as the trainer does (actors/worker/trainer.h). Threads: owns one.
class Computer {
 public:
  // `before` is called before each pass, with its step.
  Computer(std::shared_ptr<const TrainingSetup> setup, LoopRig& rig,
           std::function<void(Version)> before)
      : setup_(std::move(setup)),
        rig_(rig),
        before_(std::move(before)),
        bench_(rig_.loop->workbench()),
        thread_([this] { run(); }) {}
  ~Computer() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    bench_->cancel();
    thread_.join();
  }
  void order(ComputeOrder order) {
    const std::lock_guard lock(mutex_);
    order_ = std::move(order);
    changed_.notify_all();
  }

 private:
  void run() {
    const auto maker = kernels::make_gradient_maker(setup_->job, *setup_->model, *setup_->layout,
                                                    *setup_->device, /*sequences=*/1);
    while (const auto place = next()) {
      const auto [version, m] = *place;
      before_(version);
      const Batch batch = setup_->batches(version, m).value();
      auto adding = bench_->begin(maker->queue(), version, m);
      kernels::PassHooks hooks;
      hooks.before_reading = [this, at = version](PartId part) {
        return bench_->wait(part, at).has_value();
      };
      const auto result = maker->make(bench_->working(), batch, adding, hooks);
      if (!result) return;  // cancelled
      const bool finite = bench_->finish(adding).finite;
      LedgerRow row;
      row.micro_batch = m;
      row.loss = result.value().loss;
      row.tokens = result.value().tokens;
      row.finite = result.value().finite && finite;
      rig_.post([version = version, row](WorkerLoop& e) {
        e.on_micro_batch(version, row, std::chrono::milliseconds(1));
      });
    }
  }
  // Of the last order, the first that was not begun (P2).
  std::optional<std::pair<Version, MicroBatch>> next() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (stopping_) return std::nullopt;
      for (const MicroBatch m : order_.micro_batches)
        if (begun_.insert({order_.version, m}).second) return std::pair(order_.version, m);
      changed_.wait(lock);
    }
  }

  const std::shared_ptr<const TrainingSetup> setup_;
  LoopRig& rig_;
  const std::function<void(Version)> before_;
  const std::shared_ptr<Workbench> bench_;
  std::mutex mutex_;
  std::condition_variable changed_;
  ComputeOrder order_;  // guarded by mutex_, as all below
  std::set<std::pair<Version, MicroBatch>> begun_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace starling::actors
