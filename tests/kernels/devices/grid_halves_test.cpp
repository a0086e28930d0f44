#include <doctest/doctest.h>

#include <algorithm>

#include "kernels/device/element.h"
#include "kernels/grid/state.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_history.h"

namespace starling::kernels {
namespace {

// Goal: working parameters of two bytes are another training, as reproducible as the first. Method: as above;
// every working parameter is the rounded weight of its owner, whoever received it in a frame.
DEVICE_CASE("state: with halves all compute from the rounded weights, the same bits in any group") {
  const Layout layout = small_layout();
  Job job = small_job(8);
  const History fp32 = train(layout, job, host_device(), 1, 0);
  SUBCASE("bf16") {
    job.precision = Precision::kBf16;
  }
  SUBCASE("fp16") {
    job.precision = Precision::kFp16;
  }
  const History alone = train(layout, job, host_device(), 1, 0);
  CHECK(alone.digests != fp32.digests);
  for (const float x : alone.parameters) REQUIRE(rounded(x, job.precision) == x);
  for (std::uint32_t world = 1; world <= 4; ++world) {
    const History shared = train(layout, job, device, world, world);
    CAPTURE(world);
    CHECK(shared.records == alone.records);
    CHECK(shared.digests == alone.digests);
    CHECK(shared.parameters == alone.parameters);
  }
}

DEVICE_CASE("state: with halves weights stay whole, working parameters go as two bytes") {
  const Layout layout = small_layout();
  Job job = small_job(8);
  SUBCASE("bf16") {
    job.precision = Precision::kBf16;
  }
  SUBCASE("fp16") {
    job.precision = Precision::kFp16;
  }
  const Precision rounding = job.precision;
  Group group(layout, job, device, 1, 0);
  const auto start = start_parameters(layout);
  group.start(start, std::vector<std::int16_t>(layout.blocks(), -20));
  State& state = group.state(0);
  Bytes scratch;
  const auto check = [&] {
    const auto working = state.copy_parameters();
    bool differs = false;
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      const auto weights = state.values(s, scratch).weights;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float there = rounded(weights[i], rounding);
        REQUIRE(working[layout.first_element(s) + i] == there);
        differs = differs || there != weights[i];
      }
    }
    CHECK(differs);
  };
  check();
  CHECK(std::ranges::equal(state.values(0, scratch).weights,
                           std::span(start).first(layout.elements(SegmentId{0}))));
  group.step([&](auto p, Version v, MicroBatch m) { return disturbed(layout, p, v, m); });
  check();

  const std::vector<SegmentRange> all{{0, layout.segments()}};
  const std::size_t head = 4 + 8 + layout.segments() * sizeof(std::uint64_t);
  CHECK(state.params_bytes(all).size() ==
        head + layout.bytes_of(What::kExponents) + layout.elements() * 2);
  State fp32(layout, small_job(8), device);
  CHECK(fp32.set_params(state.params_bytes(all)).has_error());
}

}  // namespace
}  // namespace starling::kernels
