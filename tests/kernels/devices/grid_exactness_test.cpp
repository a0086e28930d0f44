#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "kernels/grid/accumulators.h"
#include "kernels/grid/totals.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_gradients.h"

namespace starling::kernels {
namespace {

struct Quality {
  double grid_squares = 0, fp32_squares = 0;  // of the errors of the mean gradient
  std::uint64_t side = 0, contributions = 0;
};

// 48 steps of a job; exponents come from one gradient and then from the totals alone.
Quality simulate(const Layout& layout, Device& device, std::uint32_t M, double noise) {
  const Grid grid(M);
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(grid, layout, heavy_tailed(layout, 7, 0, 0, noise), exponents);
  Accumulators accumulators(layout, M, device);
  Quality quality;
  for (Version step = 0; step < 48; ++step) {
    Totals totals(layout, M, device);
    std::vector<double> exact(layout.elements());
    std::vector<float> sequential(layout.elements());
    for (MicroBatch m = 0; m < M; ++m) {
      const auto gradient = heavy_tailed(layout, 7, step, m, noise);
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        exact[i] += gradient[i];
        sequential[i] += gradient[i];
      }
      quality.side += add(accumulators, device, gradient, exponents, 7, step, m).side_entries;
      quality.contributions += layout.blocks();
    }
    for (const SideEntry& entry : accumulators.side()) REQUIRE(totals.add_side(entry).has_value());
    reduce_alone(layout, accumulators, totals);
    for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
      std::vector<float> mean(kBlock);
      totals.mean(b, exponents[b], mean);
      float largest = 0;
      // Tensors count alike, whatever the scale of their gradients.
      const double scale = std::exp2(10.0 * layout.tensor_of(b));
      for (std::uint32_t i = 0; i < kBlock; ++i) {
        const std::size_t at = std::size_t{b} * kBlock + i;
        const double truth = exact[at] / M;
        const double grid_error = (mean[i] - truth) * scale;
        const double fp32_error = (double{sequential[at] / static_cast<float>(M)} - truth) * scale;
        quality.grid_squares += grid_error * grid_error;
        quality.fp32_squares += fp32_error * fp32_error;
        largest = std::max(largest, std::fabs(mean[i]));
      }
      exponents[b] = next_exponent(grid, exponents[b], largest, totals.largest_side(b), step);
    }
    accumulators.clear();
  }
  return quality;
}

// Goal: summing on the grid costs no accuracy against fp32 sums in a fixed order, and the side list
// stays small. Method: heavy-tailed gradients (kurtosis about 20). Where noise is four times the
// signal and M large, blocks raise their exponents for single micro-batches, which costs up to a
// bit.
DEVICE_CASE("grid: the mean is about as exact as sequential fp32, and few blocks miss the grid") {
  struct Case {
    std::uint32_t M;
    double noise;      // over the signal
    double error_max;  // over that of fp32
  };
  const Case cases[] = {{8, 1, 1}, {24, 1, 1}, {64, 1, 1}, {8, 4, 1}, {24, 4, 2}, {64, 4, 2}};
  const Layout layout = small_layout();
  for (const Case& c : cases) {
    const Quality quality = simulate(layout, device, c.M, c.noise);
    CAPTURE(c.M);
    CAPTURE(c.noise);
    CHECK(std::sqrt(quality.grid_squares) <= c.error_max * std::sqrt(quality.fp32_squares));
    CHECK(quality.side > 0);
    CHECK(static_cast<double>(quality.side) < 0.05 * static_cast<double>(quality.contributions));
  }
}

}  // namespace
}  // namespace starling::kernels
