#pragma once
// Gradients for the tests of the grid: heavy-tailed, of widely different scales, drawn from a seed;
// and the exponents that fit them.

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/base/hash.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/grid/quantise.h"

namespace starling::kernels {

inline Layout small_layout() {
  // 3 + 1 + 12 + 1 blocks, some short, in segments of 4 blocks.
  return Layout({{"a", {20, 30}}, {"b", {30}}, {"c", {100, 30}}, {"d", {1}}}, /*segment_blocks=*/4);
}

// 5 + 2 + 2 blocks in three parts, two of which have two uses.
inline Layout tied_layout() {
  return Layout({{.name = "table", .shape = {40, 32}, .layer = 0, .uses = 2, .by_rows = true},
                 {.name = "other", .shape = {2, kBlock}, .layer = 1, .uses = 2},
                 {.name = "vector", .shape = {300}, .layer = 2}},
                /*segment_blocks=*/2);
}

inline Job small_job(std::uint32_t micro_batches) {
  Job job;
  job.seed = 7;
  job.steps = 100;
  job.micro_batches = micro_batches;
  job.model = MlpSpec{{2, 2}};
  return job;
}

// Micro-batch m of `step`: a part common to all m and noise, both a normal number times e^(1.5
// times a normal number), with a scale of its own for each tensor. Padding is zero.
inline std::vector<float> heavy_tailed(const Layout& layout, std::uint64_t seed, Version step,
                                       MicroBatch m, double noise = 2) {
  std::vector<float> gradient(layout.elements());
  std::mt19937_64 common(mix64(seed, step)), own(mix64(mix64(seed, step), m + 1));
  // Nearly normal: four uniform numbers from one draw. Made here, as the standard's distributions
  // differ between libraries.
  const auto normal = [](std::mt19937_64& random) {
    const std::uint64_t bits = random();
    double sum = 0;
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<double>(bits >> shift & 0xffff);
    return (sum * 0x1p-16 - 2) * 1.7320508;
  };
  const auto heavy = [&](std::mt19937_64& r) { return normal(r) * std::exp(0.7 * normal(r)); };
  for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
    const double scale = std::exp2(-10.0 * layout.tensor_of(b));
    for (std::uint32_t i = 0; i < layout.used(b); ++i)
      gradient[std::size_t{b} * kBlock + i] =
          static_cast<float>(scale * (heavy(common) + noise * heavy(own)));
  }
  return gradient;
}

// The exponents of a job of M micro-batches whose first gradient this is.
inline std::vector<std::int16_t> fitted(const Layout& layout, std::uint32_t M,
                                        std::span<const float> gradient) {
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(Grid(M), layout, gradient, exponents);
  return exponents;
}

}  // namespace starling::kernels
