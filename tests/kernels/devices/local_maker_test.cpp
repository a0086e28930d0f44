#include "kernels/models/local_maker.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/exact_sum.h"
#include "core/job/groups.h"
#include "kernels/device/emulated.h"
#include "kernels/models/first_gradient.h"
#include "kernels/optim/optimizer.h"
#include "tests/kernels/each_device.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

constexpr std::uint32_t kLocalSteps = 3;

// A job whose local steps have all that an optimizer of tensors has: a schedule, a clip that counts, groups.
Job local_job(ModelSpec model = GptSpec{
                  .layers = 1, .heads = 2, .width = 16, .context = 9, .from = {}, .lora = {}}) {
  Job job;
  job.steps = 10;
  job.micro_batches = 4;
  job.micro_batch_sequences = 2 * kLocalSteps;
  job.model = std::move(model);
  job.optimizer.kind = OptimizerKind::kSgd;
  job.local.steps = kLocalSteps;
  job.local.optimizer.peak_rate = 3e-3;
  job.local.optimizer.warmup_steps = 5;
  job.local.optimizer.clip = 0.5;
  job.local.optimizer.groups = {{.tensors = {"*.bias"}, .rate_factor = 0.5, .weight_decay = {}}};
  return job;
}

struct LocalBench {
  explicit LocalBench(Job of)
      : job(std::move(of)),
        model(make_model(job.model, "auto").value()),
        layout(model->tensors()),
        parameters(layout.elements()) {
    REQUIRE(model->initialise(job.seed, layout, parameters));
    for (float& value : parameters) value = rounded(value, job.precision);
  }

  Batch batch(std::uint64_t step = 0, MicroBatch m = 0) const {
    Batch batch = kernels::batch_of(job.model, job.micro_batch_sequences, 7 + m.value());
    batch.draw = {job.seed, step, m};
    return batch;
  }

  const Job job;
  const std::unique_ptr<Model> model;
  const Layout layout;
  std::vector<float> parameters;
};

struct LocalGradient {
  std::vector<float> gradient;
  MicroBatchResult result;
};

LocalGradient made_by(const LocalBench& bench, WholeGradients& gradients, const Batch& batch) {
  LocalGradient made{std::vector<float>(bench.layout.elements()), {}};
  auto result = gradients.compute(bench.parameters, batch, made.gradient);
  REQUIRE(result);
  made.result = std::move(result.value());
  return made;
}

LocalGradient made_by(const LocalBench& bench, Device& device, const Batch& batch) {
  WholeGradients gradients(bench.job, *bench.model, bench.layout, device, batch.sequences);
  return made_by(bench, gradients, batch);
}

// What local steps are: passes and updates, one after the other, on the host.
LocalGradient by_hand(const LocalBench& bench, Device& device, const Batch& batch) {
  Job plain = bench.job;
  plain.local = {};
  const OptimizerSpec optimizer = local_optimizer(bench.job);
  const UpdateGroups groups = update_groups(optimizer, bench.layout.tensors());
  WholeGradients gradients(plain, *bench.model, bench.layout, device, pass_sequences(bench.job));
  std::vector<float> weights = bench.parameters, read = weights;
  std::vector<float> gradient(weights.size()), first(weights.size()), second(weights.size());
  LocalGradient made{{}, {.loss = 0}};
  std::uint64_t updates = 0;
  for (std::uint32_t i = 0; i < kLocalSteps; ++i) {
    const auto result = gradients.compute(read, part_of(batch, i, kLocalSteps).value(), gradient);
    REQUIRE(result);
    made.result.tokens += result.value().tokens;
    if (!result.value().finite) continue;
    made.result.loss += result.value().loss;
    ExactSum squares;
    for (const float g : gradient) squares.add(double{g} * double{g});
    const StepScale scale{
        .rate = learning_rate(optimizer, batch.draw.step * kLocalSteps + i, local_steps(bench.job)),
        .clip_scale = clip_factor(std::sqrt(squares.value()), optimizer.clip),
        .t = ++updates};
    CHECK(scale.clip_scale < 1);
    const UpdateNumbers numbers = update_numbers(optimizer, scale, groups.groups);
    for (std::size_t t = 0; t < bench.layout.tensors().size(); ++t) {
      const TensorPlace& place = bench.layout.tensors()[t];
      const auto part = [&](std::vector<float>& all) {
        return std::span(all).subspan(std::size_t{place.first_block} * kBlock,
                                      place.spec.elements());
      };
      update(numbers, groups.of_tensor[t], part(gradient), part(weights), part(first),
             part(second));
    }
    std::ranges::transform(weights, read.begin(),
                           [&](float w) { return rounded(w, bench.job.precision); });
  }
  made.result.loss /= static_cast<double>(updates);
  for (std::size_t i = 0; i < weights.size(); ++i)
    made.gradient.push_back(bench.parameters[i] - weights[i]);
  return made;
}

DEVICE_CASE("local steps: a gradient is what passes and updates, one after the other, change") {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    CAPTURE(int(precision));
    Job job = local_job();
    job.precision = precision;
    const LocalBench bench(job);
    const Batch batch = bench.batch(/*step=*/4, /*m=*/2);
    const LocalGradient made = made_by(bench, device, batch),
                        wanted = by_hand(bench, device, batch);
    CHECK(same_bits(made.gradient, wanted.gradient));
    CHECK(made.result.loss == wanted.result.loss);
    CHECK(made.result.tokens == wanted.result.tokens);
    CHECK(made.result.finite);
    CHECK(made.result.skipped == 0);
    CHECK(std::ranges::any_of(made.gradient, [](float g) { return g != 0; }));
  }
}

DEVICE_CASE("local steps: nothing of a micro-batch is left for the next one") {
  const LocalBench bench(local_job());
  WholeGradients gradients(bench.job, *bench.model, bench.layout, device,
                           bench.job.micro_batch_sequences);
  const LocalGradient first = made_by(bench, gradients, bench.batch(1, 0));
  const LocalGradient other = made_by(bench, gradients, bench.batch(1, 1));
  const LocalGradient again = made_by(bench, gradients, bench.batch(1, 0));
  CHECK(same_bits(first.gradient, again.gradient));
  CHECK_FALSE(same_bits(first.gradient, other.gradient));
}

DEVICE_CASE("local steps: any optimizer, and the bits are those of the host") {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
    Job job = local_job(MlpSpec{{5, 300, 3}});
    job.local.optimizer.kind = kind;
    job.local.optimizer.weight_decay = 0;
    job.local.optimizer.groups.clear();
    job.local.optimizer.clip = 1e-3;
    const LocalBench bench(job);
    const Batch batch = bench.batch();
    CHECK(
        same_bits(made_by(bench, device, batch).gradient, by_hand(bench, device, batch).gradient));
  }
}

DEVICE_CASE("local steps: one that is not finite changes nothing, and is counted") {
  Job job = local_job(MlpSpec{{5, 300, 3}});
  job.local.optimizer.groups.clear();
  job.local.optimizer.clip = 1e-3;
  const LocalBench bench(job);
  Batch batch = bench.batch();
  const std::size_t of_pass = batch.x.size() / kLocalSteps;
  batch.x[of_pass + 1] = std::numeric_limits<float>::infinity();  // of the second one
  const LocalGradient made = made_by(bench, device, batch);
  CHECK(made.result.finite);
  CHECK(made.result.skipped == 1);
  CHECK(same_bits(made.gradient, by_hand(bench, device, batch).gradient));

  for (std::size_t i = 0; i < kLocalSteps; ++i)
    batch.x[i * of_pass] = std::numeric_limits<float>::infinity();
  const LocalGradient none = made_by(bench, device, batch);
  CHECK_FALSE(none.result.finite);
  CHECK(none.result.skipped == kLocalSteps);
  CHECK(std::ranges::all_of(none.gradient, [](float g) { return g == 0; }));
}

// A model whose loss is finite for batches with an even draw alone, and which measures something.
class Measuring : public Model {
 public:
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::ranges::fill(parameters, 0);
    return ok();
  }
  Result<MicroBatchResult> forward_backward(std::span<const float>, const Batch& batch, Workspace&,
                                            std::span<float> gradient) const override {
    std::ranges::fill(gradient, 0);
    const bool finite = batch.samples.front() % 2 == 0;
    gradient[0] = finite ? 1 : std::numeric_limits<float>::quiet_NaN();
    MicroBatchResult result{finite ? 2.0 : std::numeric_limits<double>::quiet_NaN(),
                            1,
                            finite,
                            {static_cast<double>(batch.samples.front())}};
    if (batch.samples.front() == 8) result.metrics.clear();
    return result;
  }

 private:
  const std::vector<TensorSpec> tensors_{{"w", {3}}};
};

TEST_CASE("local steps: metrics are means of the finite ones, as many as each has") {
  const Measuring model;
  const Layout layout(model.tensors());
  Job job = local_job();
  job.local.optimizer.groups.clear();
  const auto maker = make_gradient_maker(job, model, layout, host_device(), kLocalSteps);
  const std::vector<float> parameters(layout.elements());
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) {};
  const auto made = [&](std::vector<std::uint64_t> samples) {
    Batch batch;
    batch.sequences = kLocalSteps;
    batch.samples = std::move(samples);
    return maker->make({.parameters = parameters.data()}, batch, hooks);
  };
  const auto some = made({2, 3, 6});
  REQUIRE(some);
  CHECK(some.value().metrics == std::vector<double>{4});
  CHECK(some.value().skipped == 1);
  // A step of which nothing is finite is skipped, with as many metrics as the job names.
  const auto none = made({1, 3, 5});
  REQUIRE(none);
  CHECK_FALSE(none.value().finite);
  REQUIRE(none.value().metrics.size() == 1);
  CHECK(std::isnan(none.value().metrics[0]));
  CHECK(made({2, 8, 2}).error().text() == "a pass gave 0 metrics, the pass before 1");
  CHECK(made({2, 2}).error().text() == "a micro-batch of 3 sequences is no 3 equal parts");
}

TEST_CASE("local steps: a pass that is not wanted any more is the last") {
  const LocalBench bench(local_job());
  const auto maker = make_gradient_maker(bench.job, *bench.model, bench.layout, host_device(),
                                         bench.job.micro_batch_sequences);
  int asked = 0, taken = 0;
  PassHooks hooks;
  hooks.go_on = [&] { return ++asked < 2; };
  hooks.take = [&](PartId, std::uint32_t, const float*) { ++taken; };
  const auto made = maker->make({.parameters = bench.parameters.data()}, bench.batch(), hooks);
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == Code::kUnavailable);
  CHECK(taken == 0);

  PassHooks late;
  late.before_reading = [](PartId part) { return part.value() == 0; };
  late.take = hooks.take;
  CHECK_FALSE(maker->make({.parameters = bench.parameters.data()}, bench.batch(), late));
  CHECK(taken == 0);
}

TEST_CASE(
    "local steps: held-out batches are evaluated with the job's parameters, a pass at a time") {
  const LocalBench bench(local_job());
  const auto maker = make_gradient_maker(bench.job, *bench.model, bench.layout, host_device(),
                                         bench.job.micro_batch_sequences);
  const Batch held_out = part_of(bench.batch(), 1, kLocalSteps).value();
  const auto workspace = bench.model->make_workspace(held_out.sequences);
  const auto wanted = bench.model->evaluate(bench.parameters, held_out, *workspace);
  const auto found = maker->evaluate({.parameters = bench.parameters.data()}, held_out);
  REQUIRE(wanted);
  REQUIRE(found);
  CHECK(found.value().loss == wanted.value().loss);
}

TEST_CASE("local steps: progress of all passes is told, from none to nearly all") {
  const LocalBench bench(local_job());
  const auto maker = make_gradient_maker(bench.job, *bench.model, bench.layout, host_device(),
                                         bench.job.micro_batch_sequences);
  std::vector<double> told;
  PassHooks hooks;
  bool given = false;
  hooks.before_taking = [&](double part) {
    if (!given) told.push_back(part);
  };
  hooks.take = [&](PartId, std::uint32_t, const float*) { given = true; };
  REQUIRE(maker->make({.parameters = bench.parameters.data()}, bench.batch(), hooks));
  // The last one is of handing over.
  REQUIRE(told.size() > kLocalSteps);
  told.pop_back();
  CHECK(std::ranges::is_sorted(told));
  CHECK(told.front() < 0.25);
  CHECK(told.back() == 1.0);
}

}  // namespace
}  // namespace starling::kernels
