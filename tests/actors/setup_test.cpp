#include "actors/worker/setup.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <stdexcept>

#include "kernels/grid/accumulators.h"
#include "kernels/grid/exponent.h"
#include "kernels/models/gradient_maker.h"

namespace starling::actors {
namespace {

constexpr std::uint32_t kSetupMicroBatches = 64;
constexpr std::uint32_t kWidth = 3000;

std::vector<float> gradient_of(const Batch& batch) {
  std::mt19937_64 draw(batch.draw.micro_batch);
  std::normal_distribution<float> noise;
  std::vector<float> gradient(kWidth);
  for (float& g : gradient) g = noise(draw);
  return gradient;
}

class Noise : public kernels::Model {
 public:
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::fill(parameters.begin(), parameters.end(), 0.0f);
    return ok();
  }
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float>, const Batch& batch,
                                                     kernels::Workspace&,
                                                     std::span<float> gradient) const override {
    std::ranges::copy(gradient_of(batch), gradient.begin());
    return kernels::MicroBatchResult{1.0, 1, true};
  }

 private:
  const std::vector<TensorSpec> tensors_{{"w", {kWidth}}};
};

// A gradient that leads one way, so that local steps add up.
class Drift : public Noise {
 public:
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                     const Batch& batch,
                                                     kernels::Workspace& workspace,
                                                     std::span<float> gradient) const override {
    passes += 1;
    auto result = Noise::forward_backward(parameters, batch, workspace, gradient);
    for (std::size_t i = 0; i < kWidth; ++i) gradient[i] += 2;
    return result;
  }
  mutable int passes = 0;
};

Result<Batch> source(std::uint64_t step, MicroBatch m) {
  Batch batch;
  batch.sequences = 1;
  batch.draw = {1, step, m};
  return batch;
}

}  // namespace

TEST_CASE("setup: the first exponents let the first step's gradients onto the grid") {
  Job job;
  job.steps = 1;
  job.micro_batches = kSetupMicroBatches;
  const auto setup = set_up(job, std::make_shared<Noise>(), source, Digest{}).value();
  const auto queue = setup->device->make_queue();
  kernels::Accumulators accumulators(*setup->layout, kSetupMicroBatches);
  std::uint32_t side_entries = 0;
  for (MicroBatch m = 0; m < kSetupMicroBatches; ++m) {
    std::vector<float> gradient(setup->layout->elements());
    std::ranges::copy(gradient_of(source(0, m).value()), gradient.begin());
    side_entries +=
        accumulators.add(*queue, gradient.data(), setup->exponents.data(), job.seed, 0, m)
            .side_entries;
    if (m == 0) CHECK(side_entries == 0);  // the one that they were taken from
  }
  CHECK(side_entries < setup->layout->blocks() * kSetupMicroBatches / 50);
}

TEST_CASE("setup: of local steps a few are computed, and the first exponents leave room for all") {
  constexpr std::uint32_t kLocalSteps = 32, kFew = 4;
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    Job job;
    job.steps = 4;
    job.micro_batches = 8;
    job.micro_batch_sequences = kLocalSteps;
    job.optimizer.kind = OptimizerKind::kSgd;
    job.local.steps = kLocalSteps;
    job.local.optimizer.kind = kind;
    job.local.optimizer.warmup_steps = 20;
    job.local.optimizer.momentum = 0;
    const auto wide = [](std::uint64_t step, MicroBatch m) -> Result<Batch> {
      STARLING_TRY(batch, source(step, m));
      batch.sequences = kLocalSteps;
      return batch;
    };
    const auto model = std::make_shared<Drift>();
    const auto setup = set_up(job, model, wide, Digest{}).value();
    CHECK(model->passes == 3 * kFew);  // a gradient that is computed three times
    const auto maker =
        kernels::make_gradient_maker(job, *model, *setup->layout, *setup->device, kLocalSteps);
    const std::vector<float> parameters(setup->layout->elements());
    kernels::Accumulators accumulators(*setup->layout, job.micro_batches);
    std::uint32_t side_entries = 0;
    for (MicroBatch m = 0; m < job.micro_batches; ++m) {
      auto adding = accumulators.begin(maker->queue(), setup->exponents.data(), job.seed, 0, m);
      REQUIRE(maker->make({.parameters = parameters.data()}, wide(0, m).value(), adding));
      side_entries += adding.finish().side_entries;
    }
    CHECK(side_entries <= setup->layout->blocks() * job.micro_batches / 20);
    job.local.optimizer.beta1 = 0.8;
    job.local.optimizer.momentum = 0.1;
    CHECK(set_up(job, model, wide, Digest{}).value()->fingerprint != setup->fingerprint);
  }
}

// Goal: no channel's statistics are rounded to a grid that another one's need, from the first step on.
TEST_CASE("setup: statistics have the exponent with which they are exact") {
  Job job;
  job.steps = 1;
  job.micro_batches = kSetupMicroBatches;
  job.optimizer.groups = {{.tensors = {"w"}, .statistics = true}};
  const auto setup = set_up(job, std::make_shared<Noise>(), source, Digest{}).value();
  for (const std::int16_t exponent : setup->exponents)
    CHECK(exponent == kernels::kStatisticsExponent);
}

// What a job file would be refused for.
// Goal: values behind a tensor are told, before they spoil the exponent of its last block.
TEST_CASE("setup: a gradient that is not zero between tensors is refused") {
  class Untidy : public Noise {
    Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                       const Batch& batch,
                                                       kernels::Workspace& space,
                                                       std::span<float> gradient) const override {
      STARLING_TRY(result, Noise::forward_backward(parameters, batch, space, gradient));
      gradient[kWidth] = 1e30f;
      return std::move(result);
    }
  };
  Job job;
  job.steps = 1;
  const auto refused = set_up(job, std::make_shared<Untidy>(), source, Digest{});
  REQUIRE(!refused);
  CHECK(refused.error().code() == Code::kBadInput);
  CHECK(refused.error().text().find("the gradient must be 0 between tensors, element 3000, behind "
                                    "tensor w, is ") == 0);
}

TEST_CASE("setup: a job that a program has made keeps the rules of job files") {
  const auto why = [](const Job& job) {
    const auto setup = set_up(job, std::make_shared<Noise>(), source, Digest{});
    return setup ? "none" : setup.error().text();
  };
  Job job;
  CHECK(why(job) == "steps must be an integer from 1 to 4294967295, is 0; [job].steps");
  job.steps = 1;
  CHECK(why(job) == "none");
  job.optimizer.peak_rate = -5;
  CHECK(why(job).find("peak_rate must be a number above 0") == 0);
  job.optimizer.peak_rate = 1;
  job.elastic.lease_ms = 0;
  CHECK(why(job).find("lease_ms must be an integer from 10") == 0);
}

TEST_CASE("setup: a model or data that throws is an error with its text") {
  struct Thrower : Noise {
    Result<kernels::MicroBatchResult> forward_backward(std::span<const float>, const Batch&,
                                                       kernels::Workspace&,
                                                       std::span<float>) const override {
      throw std::runtime_error("my own complaint");
    }
  };
  Job job;
  job.steps = 1;
  const auto model = set_up(job, std::make_shared<Thrower>(), source, Digest{});
  REQUIRE(!model);
  CHECK(model.error().code() == Code::kBadInput);
  CHECK(model.error().text() == "exception while setting up the model: my own complaint");
  const auto data = set_up(
      job, std::make_shared<Noise>(),
      [](std::uint64_t, MicroBatch) -> Result<Batch> { throw std::bad_alloc(); }, Digest{});
  REQUIRE(!data);
  CHECK(data.error().code() == Code::kUnavailable);
  CHECK(data.error().text() == "out of memory while setting up the model");
}

TEST_CASE("setup: kernels of a built-in model are held to the formulae, an application's are not") {
  const std::string file =
      std::filesystem::temp_directory_path() / ("starling-setup-test-" + std::to_string(getpid()));
  std::ofstream(file) << std::string(5000, 'a') << "some text";
  Job job;
  job.steps = 1;
  job.model = GptSpec{.layers = 1, .heads = 1, .width = 16, .context = 8, .vocabulary = 256};
  job.data.path = file;
  const auto of_job = set_up(job);
  std::filesystem::remove(file);
  REQUIRE_MESSAGE(of_job, of_job.error().text());
  CHECK(of_job.value()->kernel_samples > 100);
  CHECK(set_up(job, std::make_shared<Noise>(), source, Digest{}).value()->kernel_samples == 0);
}

// Owners and replicas compute the update each for itself, so who computes it otherwise must not get
// in. Method: another optimizer stands for one that has other bits.
TEST_CASE("setup: a model of several parts that takes none by itself is refused") {
  struct Layers : Noise {
    const std::vector<TensorSpec>& tensors() const override { return both_; }
    const std::vector<TensorSpec> both_{{.name = "a", .shape = {kWidth}, .layer = 0},
                                        {.name = "b", .shape = {kWidth}, .layer = 1}};
  };
  Job job;
  job.steps = 1;
  job.micro_batches = kSetupMicroBatches;
  const auto setup = set_up(job, std::make_shared<Layers>(), source, Digest{});
  REQUIRE(setup.has_error());
  CHECK(setup.error().code() == Code::kBadInput);
  CHECK(setup.error().text().find("2 parts") != std::string::npos);
}

TEST_CASE("setup: the fingerprint covers what makes state of gradients") {
  Job job;
  job.steps = 100;
  job.micro_batches = kSetupMicroBatches;
  const auto of = [](const Job& j) {
    return set_up(j, std::make_shared<Noise>(), source, Digest{}).value();
  };
  const auto setup = of(job);
  CHECK(of(job)->fingerprint == setup->fingerprint);
  Job other = job;
  other.optimizer.beta2 = 0.96;
  CHECK(of(other)->fingerprint != setup->fingerprint);
  other = job;
  other.optimizer.clip = 0.5;
  CHECK(of(other)->fingerprint != setup->fingerprint);
  CHECK(setup->fingerprint_text.find("probe of steps") != std::string::npos);
  CHECK(setup->fingerprint_text.find("starling ") != std::string::npos);
}

// Goal: a machine that does not repeat itself joins no group. Method: one element of the third gradient
// has another bit, as memory that fails would have it.
TEST_CASE("setup: a first gradient with other bits the second or third time is refused") {
  struct Failing : Noise {
    explicit Failing(int n) : wrong(n) {}
    Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                       const Batch& batch,
                                                       kernels::Workspace& space,
                                                       std::span<float> gradient) const override {
      auto result = Noise::forward_backward(parameters, batch, space, gradient);
      if (++passes == wrong) gradient[17] = std::nextafter(gradient[17], 9.0f);
      return result;
    }
    const int wrong;
    mutable int passes = 0;
  };
  Job job;
  job.steps = 100;
  job.micro_batches = kSetupMicroBatches;
  CHECK(set_up(job, std::make_shared<Failing>(0), source, Digest{}));
  for (const int wrong : {1, 2, 3}) {
    const auto setup = set_up(job, std::make_shared<Failing>(wrong), source, Digest{});
    REQUIRE(setup.has_error());
    CHECK(setup.error().code() == Code::kBadInput);
    CHECK(setup.error().text() ==
          "this machine computes the same gradient with other bits the next time: its memory or a "
          "processor is faulty, and it cannot train with others");
  }
  job.model = OwnSpec{};  // which may keep state, and is compared while it trains
  CHECK(set_up(job, std::make_shared<Failing>(2), source, Digest{}));
}

TEST_CASE(
    "setup: the time of the first gradient is there, of a whole micro-batch with local steps") {
  struct Slow : Noise {
    Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                       const Batch& batch,
                                                       kernels::Workspace& space,
                                                       std::span<float> gradient) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return Noise::forward_backward(parameters, batch, space, gradient);
    }
  };
  Job job;
  job.steps = 100;
  job.micro_batches = kSetupMicroBatches;
  CHECK(set_up(job, std::make_shared<Slow>(), source, Digest{}).value()->first_gradient_ns >=
        2'000'000);
}

}  // namespace starling::actors
