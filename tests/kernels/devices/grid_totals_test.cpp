#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/grid/accumulators.h"
#include "kernels/grid/totals.h"
#include "tests/breakable/state_tamper.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_group.h"

namespace starling::kernels {
namespace {

constexpr std::uint64_t kTotalsSeed = 7;
constexpr Version kTotalsStep = 3;

DEVICE_CASE("totals: a side entry that no worker of this job could send is refused") {
  const Layout layout = small_layout();
  SideEntry good;
  good.block = 2;  // the last of tensor a: 88 elements
  good.micro_batch = 3;
  good.values[0] = 1;
  struct Case {
    const char* name;
    void (*spoil)(SideEntry&);
  };
  const Case cases[] = {
      {"block beyond the layout", [](SideEntry& e) { e.block = 17; }},
      {"block far beyond", [](SideEntry& e) { e.block = ~0u; }},
      {"micro-batch M", [](SideEntry& e) { e.micro_batch = 4; }},
      {"a use that the part does not have", [](SideEntry& e) { e.use = 1; }},
      {"NaN", [](SideEntry& e) { e.values[87] = std::nanf(""); }},
      {"infinity", [](SideEntry& e) { e.values[0] = -INFINITY; }},
      {"padding", [](SideEntry& e) { e.values[88] = 1; }},
      {"padding of minus zero", [](SideEntry& e) { e.values[255] = -0.0f; }},
  };
  REQUIRE(layout.blocks() == 17);
  REQUIRE(layout.used(2) == 88);
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Totals totals(layout, 4, device);
    SideEntry entry = good;
    c.spoil(entry);
    const auto result = totals.add_side(entry);
    REQUIRE(result.has_error());
    CHECK(result.error().code() == Code::kCorrupt);
    for (std::uint32_t b = 0; b < layout.blocks(); ++b) CHECK(totals.side_of(b).empty());
    CHECK(totals.add_side(good).has_value());
    CHECK(totals.add_side(good).has_error());  // twice
    CHECK(totals.side_of(2).size() == 1);
  }
}

DEVICE_CASE(
    "proof: a total is accepted only with exactly the side entries that its lanes count (R3)") {
  const Layout layout = small_layout();
  constexpr std::uint32_t M = 2;
  const auto gradient = heavy_tailed(layout, kTotalsSeed, kTotalsStep, 0);
  auto exponents = fitted(layout, M, gradient);
  exponents[5] = kExponentMin;  // segment 1
  Accumulators accumulators(layout, M, device);
  for (MicroBatch m = 0; m < M; ++m)
    add(accumulators, device, gradient, exponents, kTotalsSeed, kTotalsStep, m);
  const auto side = accumulators.side_of({1, 1});
  REQUIRE(side.size() == 2);
  const ProofLanes complete = complete_lanes(kTotalsSeed, kTotalsStep, M);

  const auto takes = [&](SegmentId s, std::span<const SideEntry> received) {
    const ProofLanes lanes = side_lanes(received, layout, s);
    return accepted(accumulators.lanes()[s], complete, lanes.side_entries, lanes.side_hashes);
  };
  CHECK(takes(0, {}));
  CHECK_FALSE(takes(1, {}));
  CHECK_FALSE(takes(1, std::span(side).first(1)));
  auto flipped = side;
  flipped[1].values[9] = -flipped[1].values[9];
  CHECK_FALSE(takes(1, flipped));
  CHECK(takes(1, side));
  CHECK_FALSE(accepted(ProofLanes{}, complete, 0, 0));
}

// Goal: a bit that flips between add and apply is found, by the fifth lane alone.
DEVICE_CASE("accumulators and totals: no bit of a sum flips unseen") {
  for (const Layout& layout : {small_layout(), tied_layout()}) {
    constexpr std::uint32_t M = 4;
    std::vector<std::int16_t> exponents(layout.blocks(), -24);
    Accumulators accumulators(layout, M, device);
    for (MicroBatch m = 0; m < M; ++m)
      add(accumulators, device, heavy_tailed(layout, 5, 0, m), exponents, 5, 0, m);
    Totals totals(layout, M, device);
    reduce_alone(layout, accumulators, totals);
    const CompleteLanes complete(5, 0, M, layout.uses_max());
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      REQUIRE(accumulators.intact(s));
      REQUIRE(totals.has(s));
      REQUIRE(totals.intact(s));
      const std::size_t first = layout.first_element(s);
      const auto flip_total = [&](std::size_t element, std::uint32_t bit) {
        totals.sums()[element] ^= static_cast<std::int32_t>(bit);
        totals.take({&s, 1});
      };
      for (std::size_t i = 0; i < layout.elements(s); i += 3) {
        const std::uint32_t bit = 1u << (i % 32);
        flip_total(first + i, bit);
        REQUIRE_FALSE(totals.intact(s));
        const ProofLanes& lanes = totals.lanes()[s];  // the other four hold as before
        REQUIRE(
            accepted(lanes, complete.of(layout.uses(s)), lanes.side_entries, lanes.side_hashes));
        flip_total(first + i, bit);
        StateTamper::flip_sum_bit(accumulators, first + i, bit);
        REQUIRE_FALSE(accumulators.intact(s));
        StateTamper::flip_sum_bit(accumulators, first + i, bit);
      }
      REQUIRE(accumulators.intact(s));
      REQUIRE(totals.intact(s));
    }
  }
}

// Goal: the fast path without side entries and the wide integer give the same bits.
DEVICE_CASE("totals: the mean is the same whether values came by the grid or by the side list") {
  const Layout layout({{"a", {kBlock}}});
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; ++round) {
    const std::uint32_t M = 1 + static_cast<std::uint32_t>(random() % 12);
    const auto exponent = static_cast<std::int16_t>(static_cast<int>(random() % 241) - 140);
    Totals grid(layout, M, device), mixed(layout, M, device);
    SideEntry entry;
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      const auto total = static_cast<std::int32_t>(random()) >> (random() % 24);
      const std::int32_t part = total & ~0xffffff;  // 8 bits and 24: floats both
      grid.sums()[i] = total;
      mixed.sums()[i] = part;
      entry.values[i] = std::ldexp(static_cast<float>(total - part), exponent);
      if (!std::isfinite(entry.values[i])) entry.values[i] = 0;
      if (entry.values[i] == 0) mixed.sums()[i] = total;
    }
    const SegmentId only = 0;
    grid.take({&only, 1});
    mixed.take({&only, 1});
    REQUIRE(mixed.add_side(entry).has_value());
    std::vector<float> a(kBlock), b(kBlock);
    grid.mean(0, exponent, a);
    mixed.mean(0, exponent, b);
    REQUIRE(a == b);
    // The same of whole segments.
    const auto queue = device.make_queue();
    Array<std::int16_t> exponents(device, 1);
    exponents.copy_in(*queue, 0, std::span(&exponent, 1));
    const WideMeans wide = mixed.wide_means(*queue, exponents.data(), {&only, 1});
    queue->wait();
    REQUIRE(wide.count == 1);
    REQUIRE(wide.blocks[0] == 0);
    REQUIRE(wide.largest[0] == mixed.largest_side(0));
    REQUIRE(std::equal(a.begin(), a.end(), wide.means));
    REQUIRE(grid.wide_means(*queue, exponents.data(), {&only, 1}).count == 0);
  }
}

}  // namespace
}  // namespace starling::kernels
