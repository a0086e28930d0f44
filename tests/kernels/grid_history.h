#pragma once
// A job of twelve disturbed steps, and what is left of it: for tests that compare trainings.

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/grid_group.h"

namespace starling::kernels {

inline std::vector<float> start_parameters(const Layout& layout) {
  return heavy_tailed(layout, /*seed=*/99, 0, 0, /*noise=*/0);
}

inline std::vector<std::int16_t> start_exponents(const Layout& layout, std::uint32_t M,
                                                 std::span<const float> gradient) {
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(Grid(M), layout, gradient, exponents);
  return exponents;
}

// Pulls towards zero, so that parameters feed back into gradients, with noise; step 4 has a NaN in
// one micro-batch, steps 5 on are a thousand times larger, so that blocks go to the side list.
inline std::vector<float> disturbed(const Layout& layout, std::span<const float> parameters,
                                    Version step, MicroBatch m) {
  auto gradient = heavy_tailed(layout, 7, step, m);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] += parameters[i];
    if (step >= 5) gradient[i] *= 1000;
  }
  if (step == 4 && m == 2) gradient[333] = std::nanf("");
  return gradient;
}

struct History {
  std::vector<StepRecord> records;
  std::vector<Digest> digests;
  std::vector<float> parameters;
  std::uint64_t side_entries = 0;
};

inline History train(const Layout& layout, const Job& job, Device& device, std::uint32_t world,
                     std::uint64_t shuffle, Way way = Way::kHost) {
  Group group(layout, job, device, world, shuffle, way);
  const auto parameters = start_parameters(layout);
  group.start(parameters,
              start_exponents(layout, job.micro_batches, disturbed(layout, parameters, 0, 0)));
  History history;
  for (int step = 0; step < 12; ++step) {
    history.records.push_back(
        group.step([&](auto p, Version v, MicroBatch m) { return disturbed(layout, p, v, m); }));
    history.digests.push_back(group.digest());
    REQUIRE(group.replica_digest() == group.digest());
  }
  history.parameters = group.state(0).copy_parameters();
  history.side_entries = group.side_entries();
  return history;
}

}  // namespace starling::kernels
