// Sums and working parameters that go from device to device, without the host.

#include <doctest/doctest.h>

#include <cstring>

#include "kernels/grid/state.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_history.h"

namespace starling::kernels {
namespace {

DEVICE_CASE("grid: within the device's memory the same bits come out as through the host's") {
  const Layout layout = small_layout();
  Job job = small_job(8);
  SUBCASE("fp32") {}
  SUBCASE("bf16") {
    job.precision = Precision::kBf16;
  }
  const History alone = train(layout, job, host_device(), 1, 0);
  for (std::uint32_t world = 1; world <= 4; ++world) {
    const History sent = train(layout, job, device, world, world, Way::kDevice);
    CAPTURE(world);
    CHECK(sent.records == alone.records);
    CHECK(sent.digests == alone.digests);
    CHECK(sent.parameters == alone.parameters);
    CHECK(sent.side_entries == alone.side_entries);
  }
}

// Goal: nothing of what came from elsewhere is written before all of it is known to be right.
DEVICE_CASE("state: working parameters that are not as published are refused whole") {
  const Layout layout = small_layout();
  const Job job = small_job(8);
  State from(layout, job, device), to(layout, job, device);
  auto parameters = start_parameters(layout);
  const std::vector<std::int16_t> exponents(layout.blocks(), -20);
  from.initialise(parameters, exponents);
  for (float& p : parameters) p = 0;
  to.initialise(parameters, exponents);
  const auto before = to.copy_parameters();
  const SegmentRange segments{1, 3};
  const auto queue = device.make_queue();
  std::vector<float> values(layout.elements(segments));
  queue->copy_out(writable_bytes(std::span(values)), from.parameters(segments));
  queue->wait();
  const Bytes proofs = from.proofs(segments);
  const auto take = [&](const Bytes& with) {
    Array<float> staged(device, values.size());
    staged.copy_in(*queue, 0, std::span<const float>(values));
    queue->wait();
    return to.take_parameters(segments, staged.data(), with,
                              [](SegmentId s) { return s != SegmentId{2}; });
  };

  const float right = values[17];
  std::uint32_t bits = 0;
  std::memcpy(&bits, &values[17], sizeof bits);
  bits ^= 1;
  std::memcpy(&values[17], &bits, sizeof bits);
  const auto refused = take(proofs);
  REQUIRE(refused.has_error());
  CHECK(refused.error().text().find("working parameters of segment 1 are not what") == 0);
  CHECK(to.copy_parameters() == before);
  values[17] = right;

  Bytes other = proofs;
  other.back() ^= 1;  // an exponent
  CHECK(take(other).has_error());
  other = proofs;
  const std::int16_t outside = 101;
  std::memcpy(other.data() + other.size() - sizeof outside, &outside, sizeof outside);
  CHECK(take(other).has_error());
  other = proofs;
  other.pop_back();
  CHECK(take(other).has_error());
  CHECK(to.copy_parameters() == before);

  REQUIRE(take(proofs).has_value());
  const auto after = to.copy_parameters(), wanted = from.copy_parameters();
  for (SegmentId s = 0; s < layout.segments(); ++s) {
    const auto& of = segments.contains(s) && s != SegmentId{2} ? wanted : before;
    const auto first = static_cast<std::ptrdiff_t>(layout.first_element(s));
    CAPTURE(s);
    CHECK(std::equal(after.begin() + first,
                     after.begin() + first + static_cast<std::ptrdiff_t>(layout.elements(s)),
                     of.begin() + first));
  }
  const auto all = segment_ids({0, layout.segments()});
  CHECK_FALSE(to.parameters_damaged(all));
}

}  // namespace
}  // namespace starling::kernels
