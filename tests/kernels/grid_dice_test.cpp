// Rounding up or down by dice.
#include "core/base/grid_dice.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/base/proof.h"
#include "kernels/grid/quantise.h"

namespace starling::kernels {
namespace {

constexpr GridDice kDice{.seed = 0x1234'5678'9abcull, .step = 5, .micro_batch = 3, .use = 1};

// By the definition, element by element; false: the block does not fit.
bool add_by_definition(const std::vector<float>& gradient, std::int16_t exponent,
                       std::int32_t limit, std::uint32_t block, std::vector<std::int32_t>& sums) {
  std::vector<std::int32_t> q(kBlock);
  for (std::uint32_t e = 0; e < kBlock; ++e) {
    const double x = std::ldexp(static_cast<double>(gradient[e]), -exponent);
    if (!(std::fabs(x) < 0x1p14)) return false;
    const auto call = kDice.call(block, e / 4 % GridDice::kCalls);
    const double dice = GridDice::bits_of(call, e);
    q[e] = static_cast<std::int32_t>(std::floor((std::nearbyint(x * 0x1p16) + dice) / 0x1p16));
    if (std::abs(q[e]) >= limit) return false;
  }
  for (std::uint32_t e = 0; e < kBlock; ++e) sums[e] += q[e];
  return true;
}

TEST_CASE("grid dice: the plain and the AVX2 form round as the definition says") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  int fitted = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<float> gradient(kBlock);
    const auto x = static_cast<std::int16_t>(static_cast<int>(random() % 40) - 30);
    for (float& g : gradient) g = std::ldexp(30 * normal(random), x);
    if (round % 7 == 0) gradient[random() % kBlock] = std::numeric_limits<float>::quiet_NaN();
    if (round % 11 == 0) gradient[random() % kBlock] = std::ldexp(1e30f, x);
    const std::int32_t limit = round % 3 == 0 ? 1 << 14 : 1 << 7;
    const std::uint32_t block = round % 5 == 0 ? 0x00ff'fffeu : random() % 1000;
    std::vector<std::int32_t> expected(kBlock, 5);
    const bool fits = add_by_definition(gradient, x, limit, block, expected);
    (fits ? fitted : refused) += 1;
    for (const BlockKernels* form : {&plain_kernels(), &block_kernels()}) {
      std::vector<std::int32_t> sums(kBlock, 5);
      std::uint64_t weighted = 9, wanted = 9;
      std::uint32_t outside = 9;
      REQUIRE(form->add_by_dice(kDice, block, gradient.data(), &x, limit, 1, sums.data(), &weighted,
                                &outside) == (fits ? 0 : 1));
      REQUIRE(outside == (fits ? 9 : 0));
      REQUIRE(sums == expected);
      for (std::uint32_t i = 0; i < kBlock; ++i)
        wanted +=
            static_cast<std::uint64_t>((std::int64_t{sums[i]} - 5) * weight_of(block * kBlock + i));
      REQUIRE(weighted == wanted);
    }
  }
  CHECK(fitted > 100);
  CHECK(refused > 50);
}

TEST_CASE(
    "grid dice: the mean over many throws is the element, which each moves by less than one") {
  const std::vector<float> values = {0.25f, -0.25f, 3.5f, -100.875f, 0.0f, 1e-3f};
  constexpr int kThrows = 4000;
  std::vector<double> sum(values.size());
  for (int step = 0; step < kThrows; ++step) {
    const GridDice dice{1, static_cast<std::uint64_t>(step), 0, 0};
    std::vector<float> gradient(kBlock);
    std::ranges::copy(values, gradient.begin());
    std::vector<std::int32_t> q(kBlock);
    std::uint64_t weighted = 0;
    std::uint32_t outside = 0;
    const std::int16_t one = 0;
    REQUIRE(block_kernels().add_by_dice(dice, 0, gradient.data(), &one, 128, 1, q.data(), &weighted,
                                        &outside) == 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      REQUIRE(std::fabs(static_cast<double>(q[i]) - values[i]) < 1);
      sum[i] += q[i];
    }
  }
  // Five standard deviations of a mean of so many throws.
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(std::fabs(sum[i] / kThrows - values[i]) < 5 * 0.5 / std::sqrt(kThrows));
  CHECK(sum[4] == 0);
}

TEST_CASE("grid dice: each use, step, micro-batch and half of a block has dice of its own") {
  std::vector<std::uint32_t> all;
  for (const GridDice& dice : {GridDice{1, 0, 0, 0}, GridDice{1, 0, 0, 1}, GridDice{1, 0, 1, 0},
                               GridDice{1, 1, 0, 0}, GridDice{2, 0, 0, 0}})
    for (const std::uint32_t block : {0u, 1u})
      for (std::uint32_t i = 0; i < GridDice::kCalls; ++i) all.push_back(dice.call(block, i)[0]);
  std::ranges::sort(all);
  CHECK(std::ranges::adjacent_find(all) == all.end());
}

}  // namespace
}  // namespace starling::kernels
