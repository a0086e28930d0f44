#include "actors/worker/trainer.h"

#include <algorithm>
#include <bit>
#include <caf/all.hpp>
#include <cmath>
#include <deque>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "actors/sabotage.h"
#include "actors/scheduling.h"
#include "actors/worker/pace.h"
#include "core/base/check.h"
#include "core/base/evaluation_sum.h"
#include "core/base/exception.h"
#include "core/base/hash.h"
#include "core/base/thread_name.h"

namespace starling::actors {
namespace {

// Hashes the sums and all that the row says: stop= of a script may ask for any of it. A NaN has many
// bit patterns, so one stands for all.
std::uint64_t contribution_of(const LedgerRow& row, std::uint64_t added) {
  const auto bits = [](double x) {
    return std::bit_cast<std::uint64_t>(
        std::isfinite(x) ? x : std::numeric_limits<double>::quiet_NaN());
  };
  std::vector<std::uint64_t> words{added, bits(row.loss), row.tokens, std::uint64_t{row.finite}};
  std::ranges::transform(row.metrics, std::back_inserter(words), bits);
  std::ranges::transform(row.held_out, std::back_inserter(words), bits);
  return hash64(as_bytes(std::span<const std::uint64_t>(words)));
}

// Compute is one thread of computing. It gets a Loaded batch, and tells worker and trainer
// MicroBatchComputed. Batches come straight from the loader and results go straight to the
// worker: on a busy machine a hop from thread to thread takes as long as the whole vote.
class Compute : public caf::event_based_actor {
 public:
  Compute(caf::actor_config& config, TrainerOptions options, std::shared_ptr<Pace> pace,
          caf::actor worker, caf::actor trainer)
      : event_based_actor(config),
        options_(std::move(options)),
        pace_(std::move(pace)),
        worker_(std::move(worker)),
        trainer_(std::move(trainer)) {}

  caf::behavior make_behavior() override {
    name_thread("compute");
    return {
        [this](const Loaded& loaded) {
          count(options_.counters->data_wait_ns, Pace::Clock::now() - loaded.asked);
          const MicroBatchComputed computed = try_to_compute(loaded);
          send(worker_, computed);
          send(trainer_, computed);
        },
        [this](const EvaluateOrder& order) {
          const EvaluationDone evaluated = try_to_evaluate(order);
          send(worker_, evaluated);
          send(trainer_, evaluated);
        },
        [this](rest_atom) { maker_.reset(); },
    };
  }

  void on_exit() override {
    worker_ = nullptr;
    trainer_ = nullptr;
    event_based_actor::on_exit();
  }

 private:
  // The model may be the application's, and throw.
  MicroBatchComputed try_to_compute(const Loaded& loaded) {
    try {
      return compute(loaded);
    } catch (...) {
      MicroBatchComputed failed;
      failed.version = loaded.version;
      failed.row.micro_batch = loaded.micro_batch;
      failed.again = loaded.again;
      set_error(failed, error_of_exception(work_of(loaded)));
      return failed;
    }
  }

  static std::string work_of(const Loaded& loaded) {
    return "computing micro-batch " + std::to_string(loaded.micro_batch) + " of step " +
           std::to_string(loaded.version);
  }

  EvaluationDone try_to_evaluate(const EvaluateOrder& order) {
    EvaluationDone evaluated{order.version, {}, {}};
    const auto failed = [&](const Error& error) {
      evaluated.error = error.text();
      evaluated.error_code = error.code();
      return evaluated;
    };
    try {
      std::vector<double> values;
      const auto all = evaluate(order.version, {0, options_.setup->held_out->batches()}, 0, values);
      if (!all) return failed(all.error());
      EvaluationSum sum;
      sum.add(values, evaluation_width(options_.setup->job));
      evaluated.values = sum.means();
      return evaluated;
    } catch (...) {
      return failed(error_of_exception("evaluating step " + std::to_string(order.version)));
    }
  }

  // Appends loss and metrics of these held-out batches with the parameters of `version`, all of which
  // are there.
  Result<> evaluate(Version version, std::pair<std::uint32_t, std::uint32_t> batches,
                    std::uint8_t scale, std::vector<double>& values) {
    const TrainingSetup& setup = *options_.setup;
    make_maker(setup.job.micro_batch_sequences);
    for (std::uint32_t i = batches.first; i < batches.second; ++i) {
      STARLING_TRY(batch, setup.held_out->batch(version, i));
      STARLING_TRY(result, maker_->evaluate(options_.workbench->working(scale), batch));
      values.push_back(result.loss);
      if (result.metrics.size() != setup.job.evaluate.metrics.size())
        return Error(Code::kBadInput, "a held-out batch gave " +
                                          std::to_string(result.metrics.size()) +
                                          " metrics, the job names " +
                                          std::to_string(setup.job.evaluate.metrics.size()) +
                                          "; [evaluate].metrics");
      values.insert(values.end(), result.metrics.begin(), result.metrics.end());
      options_.workbench->passed();
    }
    return ok();
  }

  void make_maker(std::uint32_t sequences) {
    if (maker_) return;
    run_behind();
    const TrainingSetup& setup = *options_.setup;
    maker_ = kernels::make_gradient_maker(setup.job, *setup.model, *setup.layout, *setup.device,
                                          sequences);
  }

  static void count(std::atomic<std::uint64_t>& ns, std::chrono::nanoseconds took) {
    ns += static_cast<std::uint64_t>(std::max<std::int64_t>(0, took.count()));
  }

  static void set_error(MicroBatchComputed& computed, const Error& error) {
    computed.error = error.text();
    computed.error_code = error.code();
  }

  MicroBatchComputed compute(const Loaded& loaded) {
    MicroBatchComputed computed;
    computed.version = loaded.version;
    computed.row.micro_batch = loaded.micro_batch;
    computed.again = loaded.again;
    if (!loaded.batch) {
      computed.error = loaded.error;
      computed.error_code = loaded.error_code;
      return computed;
    }
    const TrainingSetup& setup = *options_.setup;
    make_maker(loaded.batch->sequences);
    const auto begun = Pace::Clock::now();
    Workbench& bench = *options_.workbench;
    sabotage::hang_computing(loaded.version, bench.worker());
    auto adding = loaded.again
                      ? bench.begin_again(maker_->queue(), loaded.version, loaded.micro_batch)
                      : bench.begin(maker_->queue(), loaded.version, loaded.micro_batch);
    if (!loaded.again) sabotage::drop_gradient(*maker_, loaded.version, bench.worker());
    // Adding, and waiting for parameters, come on top of the computing time that Pace sets.
    std::chrono::nanoseconds waited{}, lacked{};
    kernels::PassHooks hooks;
    hooks.before_reading = [&](PartId part) {
      const auto took = bench.wait(part, loaded.version);
      lacked += took.value_or(std::chrono::nanoseconds(0));
      return took.has_value();
    };
    hooks.go_on = [&] {
      bench.passed();
      return !bench.cancelled();
    };
    hooks.before_taking = [&](double computed_part) {
      const auto from = begun + maker_->taking_took() + lacked, now = Pace::Clock::now();
      pace_->wait(from, now - from - waited, loaded.version, loaded.micro_batch, computed_part);
      waited += Pace::Clock::now() - now;
    };
    hooks.take = [&](PartId part, std::uint32_t, const float* gradient) {
      sabotage::multiply_wrongly(maker_->queue(), gradient, setup.layout->parts()[part].elements(),
                                 bench.worker());
    };
    auto result = maker_->make(bench.working(loaded.scale), *drawn(loaded), adding, hooks);
    if (result)
      if (auto fits = setup.check(result.value()); !fits) result = std::move(fits).error();
    if (!result) {
      set_error(computed, std::move(result).error().in(work_of(loaded)));
      return computed;
    }
    const auto added = bench.finish(adding);
    computed.row.loss = result.value().loss;
    computed.row.tokens = result.value().tokens;
    computed.row.finite = result.value().finite && added.finite;
    computed.row.metrics = std::move(result.value().metrics);
    computed.skipped = result.value().skipped;
    computed.took = Pace::Clock::now() - begun - lacked;
    WorkerCounters& counters = *options_.counters;
    ++(loaded.again ? counters.again : counters.micro_batches);
    count(counters.computing_ns, computed.took);
    count(counters.parameters_wait_ns, lacked);
    // What is held out comes with the micro-batch, and is no part of its gradient or its time.
    if (setup.held_out && setup.held_out->due(loaded.version))
      if (const auto all = evaluate(loaded.version, setup.held_out->of(loaded.micro_batch),
                                    loaded.scale, computed.row.held_out);
          !all)
        set_error(computed, all.error());
    computed.row.contribution = contribution_of(computed.row, added.contribution);
    return computed;
  }

  // The job sets the key of a batch's random numbers, also where the application makes batches.
  std::shared_ptr<const Batch> drawn(const Loaded& loaded) const {
    const DrawKey key{options_.setup->job.seed, loaded.version, loaded.micro_batch};
    if (loaded.batch->draw == key) return loaded.batch;
    auto batch = std::make_shared<Batch>(*loaded.batch);
    batch->draw = key;
    return batch;
  }

  const TrainerOptions options_;
  const std::shared_ptr<Pace> pace_;
  caf::actor worker_, trainer_;
  std::unique_ptr<kernels::GradientMaker> maker_;  // from the first batch on
};

class Trainer : public caf::event_based_actor {
 public:
  Trainer(caf::actor_config& config, TrainerOptions options, caf::actor worker)
      : event_based_actor(config),
        options_(std::move(options)),
        worker_(std::move(worker)),
        pace_(std::make_shared<Pace>(options_.setup->job, options_.slowness)) {}

  caf::behavior make_behavior() override {
    for (std::uint32_t i = 0; i < options_.threads; ++i) {
      auto actor = spawn<Compute, caf::detached + caf::linked>(options_, pace_, worker_,
                                                               caf::actor_cast<caf::actor>(this));
      idle_.push_back(actor);
    }
    return {
        [this](const ComputeOrder& order) {
          drop_again();
          order_ = order;
          again_.assign(order.again.begin(), order.again.end());
          todo_.assign(order.micro_batches.begin(), order.micro_batches.end());
          // P2: a micro-batch that was begun is not begun again, even if the news of its
          // end and this order, which still asks for it, passed each other on the way.
          std::erase_if(begun_, [&](const auto& b) { return b.first < order.version; });
          for (const auto& [version, m] : begun_)
            if (version == order.version) std::erase(todo_, m);
          // An order of second contributions alone belongs to a step whose share is done.
          if (order.micro_batches.empty() && !order.again.empty()) return deal();
          this->send(options_.loader, LoadAhead{order.version, {todo_.begin(), todo_.end()}});
          // The same places of the next step are likely to be ours too.
          if (order.version + 1 < options_.setup->job.steps)
            this->send(options_.loader, LoadAhead{order.version + 1, order.micro_batches});
          deal();
        },
        [this](const MicroBatchComputed&) {
          idle_.push_back(caf::actor_cast<caf::actor>(current_sender()));
          deal();
        },
        [this](const EvaluateOrder& order) {
          evaluate_ = order;
          deal();
        },
        [this](const EvaluationDone&) {
          idle_.push_back(caf::actor_cast<caf::actor>(current_sender()));
          deal();
        },
        [this](rest_atom rest) {
          for (const caf::actor& compute : idle_) send(compute, rest);
        },
    };
  }

  // Wakes threads that wait for a micro-batch's time or for parameters; both are pointless now.
  void on_exit() override {
    pace_->cancel();
    options_.workbench->cancel();
    event_based_actor::on_exit();
  }

 private:
  void deal() {
    while (!idle_.empty() && !todo_.empty()) {
      const MicroBatch m = todo_.front();
      todo_.pop_front();
      begun_.insert({order_.version, m});
      // The loader answers the sender: that thread.
      caf::send_as(idle_.back(), options_.loader,
                   LoadNow{order_.version, m, order_.scale, /*again=*/false, Pace::Clock::now()});
      idle_.pop_back();
    }
    while (!idle_.empty() && !again_.empty()) {
      const MicroBatch m = again_.front();
      again_.pop_front();
      caf::send_as(idle_.back(), options_.loader,
                   LoadNow{order_.version, m, order_.scale, /*again=*/true, Pace::Clock::now()});
      idle_.pop_back();
    }
    if (!idle_.empty() && evaluate_) {
      send(idle_.back(), *std::exchange(evaluate_, std::nullopt));
      idle_.pop_back();
    }
  }

  void drop_again() {
    for (const MicroBatch m : again_) {
      MicroBatchComputed dropped;
      dropped.version = order_.version;
      dropped.row.micro_batch = m;
      dropped.again = true;
      dropped.begun = false;
      send(worker_, dropped);
    }
    again_.clear();
  }

  const TrainerOptions options_;
  const caf::actor worker_;
  const std::shared_ptr<Pace> pace_;
  ComputeOrder order_;
  std::deque<MicroBatch> todo_, again_;
  std::optional<EvaluateOrder> evaluate_;
  std::set<std::pair<Version, MicroBatch>> begun_;  // of the last order's version
  std::vector<caf::actor> idle_;
};

}  // namespace

caf::actor spawn_trainer(caf::actor_system& system, TrainerOptions options, caf::actor worker) {
  return system.spawn<Trainer>(std::move(options), std::move(worker));
}

}  // namespace starling::actors
