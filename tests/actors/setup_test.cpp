#include "actors/worker/setup.h"

#include <doctest/doctest.h>

#include <random>

#include "kernels/grid/accumulators.h"

namespace starling::actors {
namespace {

constexpr MicroBatch kMicroBatches = 64;
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
  void initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::fill(parameters.begin(), parameters.end(), 0.0f);
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

Result<Batch> source(std::uint64_t step, MicroBatch m) {
  Batch batch;
  batch.sequences = 1;
  batch.draw = {1, step, m};
  return batch;
}

}  // namespace

TEST_CASE("setup: the first exponents let the first step's gradients onto the grid") {
  Job job;
  job.micro_batches = kMicroBatches;
  const auto setup = set_up(job, std::make_shared<Noise>(), source, Digest{}).value();
  kernels::Accumulators accumulators(*setup->layout, kMicroBatches);
  std::uint32_t side_entries = 0;
  for (MicroBatch m = 0; m < kMicroBatches; ++m) {
    std::vector<float> gradient(setup->layout->elements());
    std::ranges::copy(gradient_of(source(0, m).value()), gradient.begin());
    side_entries += accumulators.add(gradient, setup->exponents, job.seed, 0, m).side_entries;
    if (m == 0) CHECK(side_entries == 0);  // the one that they were taken from
  }
  CHECK(side_entries < setup->layout->blocks() * kMicroBatches / 50);
}

}  // namespace starling::actors
