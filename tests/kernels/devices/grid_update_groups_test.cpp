#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/grid/state.h"
#include "kernels/optim/optimizer.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_group.h"
#include "tests/kernels/grid_history.h"

namespace starling::kernels {
namespace {

// Goal: each tensor is updated as its group says, wherever a segment is cut.
DEVICE_CASE("state: tensors of groups have rates and decays of their own") {
  const Layout layout({{"a.weight", {3, kBlock}}, {"a.bias", {kBlock}}, {"b.weight", {2, 300}}},
                      /*segment_blocks=*/4);
  Job job = small_job(8);
  job.optimizer.groups = {{{"*.bias"}, 2.0, 0.25}, {{"b.*"}, 0.5, {}}};
  Alone worker(layout, device, job);
  const auto parameters = start_parameters(layout);
  worker.state.initialise(parameters, std::vector<std::int16_t>(layout.blocks(), -20));
  std::mt19937_64 random(5);
  std::vector<float> gradient(layout.elements());
  for (std::uint32_t b = 0; b < layout.blocks(); ++b)
    for (std::uint32_t i = 0; i < layout.used(b); ++i) {
      const std::size_t at = std::size_t{b} * kBlock + i;
      worker.totals.sums()[at] = static_cast<std::int32_t>(random()) >> 8;
      gradient[at] = static_cast<float>(worker.totals.sums()[at] * 0x1p-20 / 8);
    }
  worker.totals.take(worker.all);
  const double norm =
      std::sqrt(worker.state.partial_norm(worker.totals, worker.all).squares.value());
  worker.totals.set_pending(0);
  worker.state.apply(worker.totals, {.version = 0, .norm = norm}, worker.all);
  worker.state.publish(worker.all);
  const auto after = worker.state.copy_parameters();
  const UpdateGroup expected[] = {
      {1, job.optimizer.weight_decay}, {2, 0.25}, {0.5, job.optimizer.weight_decay}};
  for (std::size_t t = 0; t < std::size(expected); ++t) {
    const TensorPlace& tensor = layout.tensors()[t];
    const std::size_t n = tensor.spec.elements(), at = std::size_t{tensor.first_block} * kBlock;
    std::vector<float> w(parameters.begin() + static_cast<std::ptrdiff_t>(at),
                         parameters.begin() + static_cast<std::ptrdiff_t>(at + n));
    std::vector<float> m(n), v(n);
    OptimizerSpec own = job.optimizer;
    own.weight_decay = expected[t].weight_decay;
    StepScale scale;
    scale.rate = learning_rate(job.optimizer, 0, job.steps) * expected[t].rate_factor;
    scale.clip_scale = clip_factor(norm, job.optimizer.clip);
    update(own, scale, /*decay=*/true, std::span<const float>(gradient).subspan(at, n), w, m, v);
    CAPTURE(tensor.spec.name);
    CHECK(std::equal(w.begin(), w.end(), after.begin() + std::ptrdiff_t(at)));
  }
}

// Goal: what is no parameter is neither clipped with the parameters nor clips them.
DEVICE_CASE("state: statistics move by the mean difference and are in no norm") {
  const Layout layout({{"a.weight", {kBlock}}, {"a.running_mean", {300}}}, /*segment_blocks=*/4);
  Job job = small_job(8);
  job.optimizer.clip = 0.5;
  job.optimizer.groups = {{.tensors = {"a.running_mean"}, .statistics = true}};
  Alone worker(layout, device, job);
  const auto parameters = start_parameters(layout);
  worker.state.initialise(parameters, std::vector<std::int16_t>(layout.blocks(), -20));
  for (auto& total : worker.totals.sums()) total = 8 << 20;  // a mean of one, everywhere
  worker.totals.take(worker.all);
  const double norm =
      std::sqrt(worker.state.partial_norm(worker.totals, worker.all).squares.value());
  CHECK(norm == std::sqrt(double{kBlock}));
  worker.totals.set_pending(0);
  worker.state.apply(worker.totals, {.version = 0, .norm = norm}, worker.all);
  worker.state.publish(worker.all);
  const auto after = worker.state.copy_parameters();
  for (std::size_t i = kBlock; i < kBlock + 300; ++i) CHECK(after[i] == parameters[i] - 1.0f);
}

// Goal: a channel's statistics are exact beside another's that are many orders of magnitude larger.
// Method: after a step every block of statistics has the exponent with which what follows is exact.
DEVICE_CASE("state: statistics are not rounded to a grid") {
  const Layout layout({{"a.weight", {kBlock}}, {"a.running_var", {2}}}, /*segment_blocks=*/4);
  Job job = small_job(8);
  job.optimizer.groups = {{.tensors = {"a.running_var"}, .statistics = true}};
  Alone worker(layout, device, job);
  worker.state.initialise(start_parameters(layout),
                          std::vector<std::int16_t>(layout.blocks(), kStatisticsExponent));
  SideEntry entry{.block = 1, .micro_batch = 3};
  entry.values[0] = 1e12f;
  entry.values[1] = 1e-6f;
  REQUIRE(worker.totals.add_side(entry));
  worker.totals.take(worker.all);
  worker.totals.set_pending(0);
  const auto before = worker.state.copy_parameters();
  worker.state.apply(worker.totals, {.version = 0, .norm = 1}, worker.all);
  worker.state.publish(worker.all);
  const auto after = worker.state.copy_parameters();
  CHECK(after[kBlock] == before[kBlock] - 1e12f / 8);
  CHECK(after[kBlock + 1] == before[kBlock + 1] - 1e-6f / 8);
  CHECK(worker.state.copy_exponents()[1] == kStatisticsExponent);
}

}  // namespace
}  // namespace starling::kernels
