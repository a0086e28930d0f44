#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "kernels/grid/accumulators.h"
#include "tests/kernels/grid_device.h"
#include "tests/kernels/grid_group.h"

namespace starling::kernels {
namespace {

constexpr std::uint64_t kSeed = 7;
constexpr Version kStep = 3;

struct Outcome {
  std::vector<std::int32_t> sums;
  std::vector<ProofLanes> lanes;
  std::vector<SideEntry> side;
};

Outcome outcome(const Layout& layout, Accumulators& accumulators) {
  return {sums_of(layout, accumulators),
          {accumulators.lanes().begin(), accumulators.lanes().end()},
          accumulators.side_of({0, layout.segments()})};
}

void check_equal(const Outcome& a, const Outcome& b) {
  REQUIRE(a.sums == b.sums);
  REQUIRE(a.lanes == b.lanes);
  REQUIRE(a.side.size() == b.side.size());
  for (std::size_t i = 0; i < a.side.size(); ++i)
    REQUIRE(side_entry_hash(a.side[i]) == side_entry_hash(b.side[i]));
}

// As add(), but with room for two parts' gradients, of which one is written while the other is added.
Accumulators::Added add_ahead(Accumulators& accumulators, Device& device,
                              std::span<const float> gradient,
                              std::span<const std::int16_t> exponents, MicroBatch m) {
  const Layout& layout = accumulators.layout();
  const auto queue = device.make_queue();
  Array<std::int16_t> x(device, exponents.size());
  x.copy_in(*queue, 0, exponents);
  Array<float> rooms[] = {{device, layout.largest_part()}, {device, layout.largest_part()}};
  auto adding = accumulators.begin(*queue, x.data(), kSeed, kStep, m);
  adding.ask_ahead();
  std::size_t turn = 0;
  for (PartId p = 0; p < layout.parts().size(); ++p) {
    const Part& part = layout.parts()[p];
    for (std::uint32_t use = 0; use < part.uses; ++use) {
      Array<float>& room = rooms[turn++ % 2];
      room.copy_in(*queue, 0, gradient.subspan(part.first(), part.elements()));
      adding.add(p, use, room.data());
    }
  }
  return adding.finish();
}

// The dice are of seed, step, micro-batch, use and element, so a device adds what the host adds.
DEVICE_CASE("accumulators: a coarse grid and dice, with the bits of the host") {
  const Layout layout = small_layout();
  constexpr std::uint32_t M = 8;
  for (const GridRounding rounding : {GridRounding::kNearest, GridRounding::kStochastic}) {
    const NumbersSpec numbers{8, rounding};
    std::vector<std::int16_t> exponents(layout.blocks());
    initial_exponents(Grid(M, numbers.grid_bits), layout, heavy_tailed(layout, kSeed, 0, 0),
                      exponents);
    Accumulators here(layout, M, host_device(), numbers), there(layout, M, device, numbers);
    for (MicroBatch m = 0; m < M; ++m) {
      const auto gradient = heavy_tailed(layout, kSeed, kStep, m);
      add(here, host_device(), gradient, exponents, kSeed, kStep, m);
      add(there, device, gradient, exponents, kSeed, kStep, m);
    }
    const Outcome wanted = outcome(layout, here);
    check_equal(outcome(layout, there), wanted);
    for (const std::int32_t sum : wanted.sums)
      REQUIRE(std::abs(sum) <= 127 * static_cast<std::int32_t>(M) * 2);
  }
}

// Goal: sums are what the definition gives, block by block, and every block is either summed or on
// the side list.
DEVICE_CASE("accumulators: each block of a micro-batch is on the grid or on the side list") {
  const Layout layout = small_layout();
  constexpr std::uint32_t M = 8;
  const Grid grid(M);
  auto exponents = fitted(layout, M, heavy_tailed(layout, kSeed, 0, 0));
  for (std::uint32_t b = 0; b < layout.blocks(); b += 3) exponents[b] -= 4;  // too fine for some
  Accumulators accumulators(layout, M, device);
  std::vector<std::int32_t> sums(layout.elements());
  std::uint32_t side = 0;
  for (MicroBatch m = 0; m < M; ++m) {
    const auto gradient = heavy_tailed(layout, kSeed, kStep, m);
    for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
      const auto q = [&](std::uint32_t i) {
        return std::nearbyint(std::ldexp(double{gradient[b * kBlock + i]}, -exponents[b]));
      };
      bool fits = true;
      for (std::uint32_t i = 0; i < kBlock; ++i) fits = fits && std::fabs(q(i)) < grid.limit();
      side += fits ? 0 : 1;
      for (std::uint32_t i = 0; fits && i < kBlock; ++i)
        sums[b * kBlock + i] += static_cast<std::int32_t>(q(i));
    }
    CHECK(add(accumulators, device, gradient, exponents, kSeed, kStep, m).finite);
  }
  CHECK(sums_of(layout, accumulators) == sums);
  CHECK(accumulators.side().size() == side);
  CHECK(side > 0);
  CHECK(side < M * layout.blocks());
  for (const SideEntry& entry : accumulators.side()) {
    const auto gradient = heavy_tailed(layout, kSeed, kStep, entry.micro_batch);
    CHECK(std::equal(entry.values.begin(), entry.values.end(),
                     gradient.begin() + std::ptrdiff_t{entry.block} * kBlock));
  }
}

DEVICE_CASE("accumulators: threads and order change nothing") {
  for (const Layout& layout : {small_layout(), tied_layout()}) {
    constexpr std::uint32_t M = 16;
    auto exponents = fitted(layout, M, heavy_tailed(layout, kSeed, 0, 0));
    exponents[2] -= 5;
    std::vector<std::vector<float>> gradients;
    for (MicroBatch m = 0; m < M; ++m) gradients.push_back(heavy_tailed(layout, kSeed, kStep, m));
    gradients[5][700] = std::nanf("");
    Accumulators alone(layout, M, device);
    for (MicroBatch m = 0; m < M; ++m) add(alone, device, gradients[m], exponents, kSeed, kStep, m);
    for (unsigned run = 0; run < 8; ++run) {
      const unsigned threads = 1 + run % 4;
      const bool ahead = run >= 4;
      Accumulators shared(layout, M, device);
      std::vector<MicroBatch> order(M);
      std::iota(order.begin(), order.end(), MicroBatch{0});
      std::mt19937_64 random(threads);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::thread> pool;
      for (unsigned t = 0; t < threads; ++t)
        pool.emplace_back([&, t] {
          for (std::uint32_t i = t; i < M; i += threads)
            ahead ? add_ahead(shared, device, gradients[order[i]], exponents, order[i])
                  : add(shared, device, gradients[order[i]], exponents, kSeed, kStep, order[i]);
        });
      for (std::thread& thread : pool) thread.join();
      check_equal(outcome(layout, alone), outcome(layout, shared));
    }
  }
}

// Goal: R3 on this side of the wire: all M once gives the complete lanes, anything else does not.
DEVICE_CASE("accumulators: lanes tell missing, doubled and foreign micro-batches (R3)") {
  constexpr std::uint32_t M = 4;
  struct Case {
    const char* name;
    std::vector<std::vector<MicroBatch>> workers;  // what each adds
    Version step;
    bool complete;
  };
  const Case cases[] = {
      {"one worker", {{0, 1, 2, 3}}, kStep, true},
      {"two workers", {{2, 0}, {3, 1}}, kStep, true},
      {"a worker without a share", {{0, 1, 2, 3}, {}}, kStep, true},
      {"one missing", {{0, 1}, {3}}, kStep, false},
      {"one twice for another", {{0, 1}, {1, 3}}, kStep, false},
      {"one too many", {{0, 1, 2}, {2, 3}}, kStep, false},
      {"another step's", {{0, 1, 2, 3}}, kStep + 1, false},
  };
  const CompleteLanes complete(kSeed, kStep, M, /*uses_max=*/2);
  for (const Layout& layout : {small_layout(), tied_layout()})
    for (const Case& c : cases) {
      CAPTURE(c.name);
      const auto gradient = heavy_tailed(layout, kSeed, kStep, 0);
      const auto exponents = fitted(layout, M, gradient);
      std::vector<ProofLanes> lanes(layout.segments());
      for (const auto& share : c.workers) {
        Accumulators accumulators(layout, M, device);
        for (const MicroBatch m : share)
          add(accumulators, device, gradient, exponents, kSeed, c.step, m);
        for (SegmentId s = 0; s < layout.segments(); ++s) lanes[s] += accumulators.lanes()[s];
      }
      for (SegmentId s = 0; s < layout.segments(); ++s)
        CHECK(accepted(lanes[s], complete.of(layout.uses(s)), 0, 0) == c.complete);
    }
}

DEVICE_CASE("accumulators: a block with a NaN adds nothing but to the lanes, others count") {
  const Layout layout = small_layout();
  constexpr std::uint32_t M = 2;
  const auto good = heavy_tailed(layout, kSeed, kStep, 0);
  const auto exponents = fitted(layout, M, good);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Accumulators one(layout, M, device), both(layout, M, device);
    add(one, device, good, exponents, kSeed, kStep, 0);
    auto gradient = heavy_tailed(layout, kSeed, kStep, 1);
    const std::size_t last = gradient.size() - kBlock;  // with one real element
    gradient[last] = 0;
    add(one, device, gradient, exponents, kSeed, kStep, 1);
    gradient[last] = bad;
    add(both, device, good, exponents, kSeed, kStep, 0);
    CHECK_FALSE(add(both, device, gradient, exponents, kSeed, kStep, 1).finite);
    CHECK(sums_of(layout, one) == sums_of(layout, both));
    CHECK(one.side().size() == both.side().size());
    for (const ProofLanes& lane : both.lanes()) {
      CHECK(lane.micro_batches == 2);
      CHECK(lane.micro_batch_hashes == complete_lanes(kSeed, kStep, M).micro_batch_hashes);
    }
  }
}

// Goal: a tied tensor's uses are added apart, and each exactly once. Method: a table and a vector
// part by part, in two orders; the sums are those of all uses, the lanes tell a use from another.
DEVICE_CASE("accumulators: a part counts once for each use, in any order") {
  const Layout layout({{.name = "table", .shape = {40, 32}, .layer = 0, .uses = 2, .by_rows = true},
                       {.name = "vector", .shape = {300}, .layer = 1}});
  REQUIRE(layout.parts().size() == 2);
  constexpr std::uint32_t M = 3;
  const auto first = heavy_tailed(layout, kSeed, kStep, 0), second = heavy_tailed(layout, 9, 9, 0);
  const auto exponents = fitted(layout, M, first);
  const auto queue = device.make_queue();
  Array<float> one(device, layout.elements()), two(device, layout.elements());
  Array<std::int16_t> x(device, layout.blocks());
  one.copy_in(*queue, 0, first);
  two.copy_in(*queue, 0, second);
  x.copy_in(*queue, 0, exponents);
  const std::uint64_t vector = layout.parts()[1].first();

  Accumulators forward(layout, M, device), backward(layout, M, device);
  auto adding = forward.begin(*queue, x.data(), kSeed, kStep, 0);
  adding.add(0, 0, one.data());
  adding.add(0, 1, two.data());
  adding.add(1, 0, one.data() + vector);
  CHECK(forward.done().empty());
  CHECK(adding.finish().finite);
  auto other = backward.begin(*queue, x.data(), kSeed, kStep, 0);
  other.add(1, 0, one.data() + vector);
  other.add(0, 1, two.data());
  other.add(0, 0, one.data());
  CHECK(other.finish().finite);
  CHECK(sums_of(layout, forward) == sums_of(layout, backward));
  CHECK(std::ranges::equal(forward.lanes(), backward.lanes()));
  CHECK(forward.done() == std::vector{MicroBatch{0}});

  // Of the uses of the table apart.
  const auto alone = [&](const Array<float>& gradient, std::uint32_t use) {
    Accumulators sums(layout, M, device);
    auto part = sums.begin(*queue, x.data(), kSeed, kStep, 0);
    part.add(0, use, gradient.data());
    return std::pair(sums_of(layout, sums), sums.lanes()[0]);
  };
  const auto [sum_one, lane_one] = alone(one, 0);
  const auto [sum_two, lane_two] = alone(two, 1);
  const auto both = sums_of(layout, forward);
  for (std::uint64_t i = 0; i < vector; ++i) REQUIRE(both[i] == sum_one[i] + sum_two[i]);
  ProofLanes sum = lane_one;
  CHECK(forward.lanes()[0] == (sum += lane_two));
  CHECK(alone(one, 1).second.micro_batch_hashes != lane_one.micro_batch_hashes);
  const ProofLanes complete = complete_lanes(kSeed, kStep, 1, /*uses=*/2);
  CHECK(forward.lanes()[0].micro_batches == complete.micro_batches);
  CHECK(forward.lanes()[0].micro_batch_hashes == complete.micro_batch_hashes);
}

// Goal: sums leave when nothing is added to them any more, not before, and nobody has to look for
// when that is. Method: two micro-batches part by part, expected before, between and after.
DEVICE_CASE("accumulators: a part is complete with each use of each expected micro-batch") {
  const Layout layout({{.name = "table", .shape = {40, 32}, .layer = 0, .uses = 2},
                       {.name = "vector", .shape = {300}, .layer = 1}});
  constexpr MicroBatch M = 3;
  const auto values = heavy_tailed(layout, kSeed, kStep, 0);
  const auto exponents = fitted(layout, M, values);
  const auto queue = device.make_queue();
  Array<float> gradient(device, layout.elements());
  Array<std::int16_t> x(device, layout.blocks());
  gradient.copy_in(*queue, 0, values);
  x.copy_in(*queue, 0, exponents);
  const float* const table = gradient.data();
  const float* const vector = gradient.data() + layout.parts()[1].first();

  Accumulators sums(layout, M, device);
  std::vector<PartId> told;
  sums.tell([&](PartId p) { told.push_back(p); });
  auto first = sums.begin(*queue, x.data(), kSeed, kStep, 0);
  first.add(1, 0, vector);
  CHECK(told.empty());  // nobody expects anything
  CHECK_FALSE(sums.complete(1));
  sums.expect(2);
  CHECK(told.empty());
  first.add(0, 1, table);
  first.add(0, 0, table);
  first.finish();
  auto second = sums.begin(*queue, x.data(), kSeed, kStep, 1);
  second.add(1, 0, vector);
  CHECK(told == std::vector<PartId>{1});
  CHECK(sums.complete(1));
  second.add(0, 0, table);
  CHECK_FALSE(sums.complete(0));  // one use is lacking
  // A complete part is looked at while the other is added to.
  CHECK_FALSE(sums.damaged(segment_ids(layout.parts()[1].segments)).has_value());
  second.add(0, 1, table);
  CHECK(told == std::vector<PartId>{1, 0});
  second.finish();
  sums.expect(2);  // anew, after all is there
  CHECK(told == std::vector<PartId>{1, 0, 0, 1});
  sums.expect(3);
  CHECK_FALSE(sums.complete(0));
  CHECK_FALSE(sums.complete(1));
  sums.clear();
  CHECK_FALSE(sums.complete(1));
  sums.expect(0);  // without a share all there is is there at once
  CHECK(sums.complete(0));
  CHECK(sums.complete(1));
}

DEVICE_CASE("accumulators: after clear nothing is left and the next step may begin") {
  const Layout layout = small_layout();
  constexpr std::uint32_t M = 3;
  const auto gradient = heavy_tailed(layout, kSeed, kStep, 0);
  std::vector<std::int16_t> exponents(layout.blocks(), kExponentMin);  // all on the side list
  exponents[0] = fitted(layout, M, gradient)[0];
  Accumulators accumulators(layout, M, device);
  CHECK(accumulators.done().empty());
  const auto added = add(accumulators, device, gradient, exponents, kSeed, kStep, 2);
  CHECK(added.side_entries == layout.blocks() - 1);
  add(accumulators, device, gradient, exponents, kSeed, kStep, 0);
  CHECK(accumulators.done() == std::vector<MicroBatch>{0, 2});
  CHECK(accumulators.side_of({0, 1}).size() == 2 * (layout.block_count(0) - 1));
  CHECK(accumulators.side_of({1, 1}).size() == 2 * layout.block_count(1));
  accumulators.clear();
  CHECK(accumulators.done().empty());
  CHECK(accumulators.side().empty());
  CHECK(sums_of(layout, accumulators) == std::vector<std::int32_t>(layout.elements()));
  for (const ProofLanes& lane : accumulators.lanes()) CHECK(lane == ProofLanes{});
  add(accumulators, device, gradient, exponents, kSeed, kStep + 1, 2);
  CHECK(accumulators.done() == std::vector{MicroBatch{2}});
}

// Goal: a scaled loss changes no bit of what is added, of what overflows neither here nor there.
DEVICE_CASE("accumulators: a gradient times 2^scale counts as the gradient") {
  const Layout layout = small_layout();
  constexpr std::uint32_t M = 2;
  const auto exponents = fitted(layout, M, heavy_tailed(layout, kSeed, 0, 0));
  const auto added = [&](std::int32_t scale, Accumulators& accumulators) {
    auto gradient = heavy_tailed(layout, kSeed, kStep, 1);
    gradient[3] = std::ldexp(1.0f, 20);  // does not fit the grid
    for (float& g : gradient) g = std::ldexp(g, scale);
    const auto queue = device.make_queue();
    Array<float> there(device, gradient.size());
    Array<std::int16_t> x(device, exponents.size());
    there.copy_in(*queue, 0, gradient);
    x.copy_in(*queue, 0, std::span(exponents));
    auto adding = accumulators.begin(*queue, x.data(), kSeed, kStep, 1);
    adding.set_scale(scale);
    for (PartId p = 0; p < layout.parts().size(); ++p)
      for (std::uint32_t use = 0; use < layout.parts()[p].uses; ++use)
        adding.add(p, use, there.data() + layout.parts()[p].first());
    const auto result = adding.finish();
    CHECK(result.finite);
    CHECK(result.side_entries > 0);
    return outcome(layout, accumulators);
  };
  Accumulators plain(layout, M, device);
  const Outcome wanted = added(0, plain);
  for (const std::int32_t scale : {1, 16, LossScaleRule{}.kMax + 0}) {
    CAPTURE(scale);
    Accumulators accumulators(layout, M, device);
    check_equal(added(scale, accumulators), wanted);
  }
}

}  // namespace
}  // namespace starling::kernels
