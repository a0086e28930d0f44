#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "core/base/proof.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/quantise.h"
#include "tests/kernels/grid_gradients.h"

namespace starling::kernels {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
constexpr float kInf = std::numeric_limits<float>::infinity();

// The design's words in double: q = round_half_even(g * 2^-x), all or nothing per block.
bool add_by_definition(const std::vector<float>& gradient, int exponent, std::int32_t limit,
                       std::vector<std::int32_t>& sums) {
  std::vector<double> q;
  for (const float g : gradient) q.push_back(std::nearbyint(std::ldexp(double{g}, -exponent)));
  for (const double value : q)
    if (!(std::fabs(value) < limit)) return false;
  for (std::size_t i = 0; i < q.size(); ++i) sums[i] += static_cast<std::int32_t>(q[i]);
  return true;
}

// Any float's bits, any size: uniform over bit patterns.
float any_float(std::mt19937_64& random) {
  const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  return std::isfinite(x) ? x : 0.0f;
}

// Goal: both forms of the inner loop are the definition, bit by bit.
// Method: random blocks at every exponent, of all sizes and near the limit; against double.
TEST_CASE("grid: plain and vector loops give the definition's integers") {
  std::mt19937_64 random(1);
  const BlockKernels* forms[] = {&plain_kernels(), &block_kernels()};
  int fitted = 0, refused = 0;
  for (int exponent = kExponentMin; exponent <= kExponentMax; ++exponent) {
    for (int round = 0; round < 40; ++round) {
      const Grid grid(1u << (random() % 25));
      const std::uint64_t kind = random() % 4;
      std::vector<float> gradient(kBlock);
      for (float& g : gradient) {
        // Halves and odd quarters of the unit around zero and around the limit; or anything small.
        const double quarter = static_cast<double>(random() % 64) / 4 - 8;
        const double base = kind == 0 ? 0 : kind == 1 ? grid.limit() - 12.0 : 12.0 - grid.limit();
        g = static_cast<float>(std::ldexp(base + quarter, exponent));
        if (!std::isfinite(g)) g = 0;
        if (kind == 3) g = std::ldexp(any_float(random), -180);
      }
      if (random() % 4 == 0) gradient[random() % kBlock] = any_float(random);
      std::vector<std::int32_t> expected(kBlock, 5);
      const bool fits = add_by_definition(gradient, exponent, grid.limit(), expected);
      (fits ? fitted : refused) += 1;
      for (const BlockKernels* form : forms) {
        std::vector<std::int32_t> sums(kBlock, 5);
        const auto x = static_cast<std::int16_t>(exponent);
        CAPTURE(exponent);
        const auto first = static_cast<std::uint32_t>(round) * 0x7fff'ff00u;  // wraps around too
        std::uint64_t weighted = 9, wanted = 9;
        std::uint32_t outside = 9;
        REQUIRE(form->add(gradient.data(), &x, grid.limit(), first, 1, sums.data(), &weighted,
                          &outside) == (fits ? 0 : 1));
        REQUIRE(outside == (fits ? 9 : 0));
        REQUIRE(sums == expected);
        for (std::uint32_t i = 0; i < kBlock; ++i)
          wanted += static_cast<std::uint64_t>((std::int64_t{sums[i]} - 5) * weight_of(first + i));
        REQUIRE(weighted == wanted);
        REQUIRE(form->weigh(first, 1, sums.data()) == plain_kernels().weigh(first, 1, sums.data()));
      }
    }
  }
  CHECK(fitted > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("grid: one NaN, infinity or value at the limit keeps the whole block out") {
  const Grid grid(8);
  const std::int16_t one = 0;
  struct Case {
    const char* name;
    float value;
    bool fits;
  };
  const auto limit = static_cast<float>(grid.limit());
  const Case cases[] = {
      {"zero", 0, true},
      {"the largest below the limit", limit - 8, true},
      {"the limit", limit, false},
      {"minus the limit", -limit, false},
      {"FLT_MAX", kMax, false},
      {"smallest subnormal", kTiny, true},
      {"infinity", kInf, false},
      {"minus infinity", -kInf, false},
      {"NaN", std::nanf(""), false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    for (const BlockKernels* form : {&plain_kernels(), &block_kernels()}) {
      for (std::uint32_t at : {0u, 7u, 128u, 255u}) {
        std::vector<float> gradient(kBlock, 3);
        gradient[at] = c.value;
        std::vector<std::int32_t> sums(kBlock, 1);
        std::uint64_t weighted = 0;
        std::uint32_t outside = 9;
        CHECK(form->add(gradient.data(), &one, grid.limit(), 0, 1, sums.data(), &weighted,
                        &outside) == (c.fits ? 0 : 1));
        CHECK((weighted != 0) == c.fits);
        CHECK(sums[at ^ 1] == (c.fits ? 4 : 1));
      }
    }
  }
}

// Goal: a run of blocks is what its blocks are one by one, whichever of them do not fit.
TEST_CASE("grid: a run of blocks adds and weighs as its blocks do, and tells which did not fit") {
  std::mt19937_64 random(3);
  constexpr std::uint32_t kBlocks = 7;
  const Grid grid(8);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> gradient(std::size_t{kBlocks} * kBlock);
    for (float& g : gradient) g = static_cast<float>(static_cast<std::int32_t>(random()) >> 12);
    std::vector<std::int16_t> exponents(kBlocks);
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t b = 0; b < kBlocks; ++b) {
      exponents[b] = static_cast<std::int16_t>(random() % 5) - 2;
      if (random() % 3 != 0) continue;
      gradient[std::size_t{b} * kBlock + random() % kBlock] = kMax;
      wanted.push_back(b);
    }
    const auto first = static_cast<std::uint32_t>(random()) / kBlock * kBlock;
    for (const BlockKernels* form : {&plain_kernels(), &block_kernels()}) {
      std::vector<std::int32_t> run(gradient.size(), 3), single = run;
      std::vector<std::uint32_t> outside(kBlocks);
      std::uint64_t weighted = 1, parts = 1, weighed = 0;
      outside.resize(form->add(gradient.data(), exponents.data(), grid.limit(), first, kBlocks,
                               run.data(), &weighted, outside.data()));
      CHECK(outside == wanted);
      for (std::uint32_t b = 0; b < kBlocks; ++b) {
        const std::size_t at = std::size_t{b} * kBlock;
        std::uint32_t none = 0;
        plain_kernels().add(&gradient[at], &exponents[b], grid.limit(), first + b * kBlock, 1,
                            &single[at], &parts, &none);
        weighed += plain_kernels().weigh(first + b * kBlock, 1, &single[at]);
      }
      REQUIRE(run == single);
      REQUIRE(weighted == parts);
      REQUIRE(form->weigh(first, kBlocks, run.data()) == weighed);
    }
  }
}

TEST_CASE("grid: M micro-batches at the limit do not overflow") {
  for (const std::uint32_t M : {1u, 2u, 3u, 5u, 8u, 64u, 256u, 1000u, kMicroBatchesMax}) {
    const Grid grid(M);
    CAPTURE(M);
    CHECK(std::int64_t{grid.limit() - 1} * M <= std::int64_t{1} << 30);
    CHECK(std::int64_t{grid.limit()} * M > std::int64_t{1} << 29);  // and no bit more is lost
  }
}

// Goal: the mean's single rounding, which is done as two.
// Method: against long double, whose 64 bits hold total and quotient far beyond a double's.
TEST_CASE("grid: the mean is rounded once") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const auto M = static_cast<std::uint32_t>(1 + random() % (round % 2 == 0 ? 20 : 5000));
    const int exponent = static_cast<int>(random() % 241) - 140;
    std::vector<std::int32_t> totals(kBlock);
    for (auto& t : totals) t = static_cast<std::int32_t>(random()) >> (random() % 31);
    std::vector<float> plain(kBlock), vector(kBlock);
    plain_kernels().mean(totals.data(), std::ldexp(1.0, exponent), M, plain.data());
    block_kernels().mean(totals.data(), std::ldexp(1.0, exponent), M, vector.data());
    REQUIRE(std::equal(plain.begin(), plain.end(), vector.begin()));
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      const long double exact = std::ldexp(static_cast<long double>(totals[i]), exponent) / M;
      REQUIRE(plain[i] == static_cast<float>(exact));
    }
  }
}

// Goal: where M is a power of two the norm is summed from totals, without their means. Method: the
// same sum from the means, as integers of any size.
TEST_CASE("grid: squares of totals are those of the means") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const int log_m = static_cast<int>(random() % 13);
    const int exponent = -140 + log_m + static_cast<int>(random() % 200);
    std::vector<std::int32_t> totals(kBlock);
    const auto extreme = [&] { return random() % 2 != 0 ? INT32_MAX : INT32_MIN; };
    for (auto& t : totals)
      t = random() % 50 == 0 ? extreme() : static_cast<std::int32_t>(random()) >> (random() % 31);
    std::vector<float> mean(kBlock);
    plain_kernels().mean(totals.data(), std::ldexp(1.0, exponent), 1 << log_m, mean.data());
    SquareSum of_means;
    of_means.add(mean);
    for (const BlockKernels* form : {&plain_kernels(), &block_kernels()}) {
      std::array<std::uint64_t, 2> sum;
      form->squares(totals.data(), sum.data());
      SquareSum of_totals;
      of_totals.add_sum(sum, exponent - log_m);
      REQUIRE(of_totals.sum().words() == of_means.sum().words());
    }
  }
}

TEST_CASE("grid: the largest magnitude is seen at every place") {
  for (const BlockKernels* form : {&plain_kernels(), &block_kernels()}) {
    for (std::uint32_t at = 0; at < kBlock; ++at) {
      std::vector<float> values(kBlock, 0.5f);
      values[at] = -0.75f;
      REQUIRE(form->largest(values.data()) == std::bit_cast<std::uint32_t>(0.75f));
      for (const float bad : {kInf, -kInf, std::nanf("")}) {
        values[at] = bad;
        REQUIRE_FALSE(all_finite(values));
      }
      values[at] = kMax;
      REQUIRE(all_finite(values));
    }
  }
}

TEST_CASE("grid: a fitted exponent leaves the headroom and no bit more") {
  for (const std::uint32_t M : {1u, 8u, 64u, 256u}) {
    const Grid grid(M);
    for (float largest = 0x1p-100f; largest < 0x1p100f; largest *= 1.37f) {
      const int x = fit_exponent(grid, largest);
      const double q = std::ldexp(double{largest}, grid.headroom_bits - x);
      CAPTURE(largest);
      REQUIRE(q < grid.limit());
      REQUIRE(q >= grid.limit() / 2);
    }
    CHECK(fit_exponent(grid, kTiny) == kExponentMin);
    CHECK(fit_exponent(grid, kMax) ==
          std::min(kExponentMax, 128 + grid.headroom_bits - grid.limit_bits));
  }
  CHECK(fit_exponent(Grid(kMicroBatchesMax), kMax) == kExponentMax);
}

TEST_CASE("grid: exponents go up at once, down a bit in eight steps, and stay at zero") {
  const Grid grid(8);
  const std::int16_t fit = fit_exponent(grid, 1.0f);
  const auto at = [&](int x) { return static_cast<std::int16_t>(x); };
  for (Version step = 0; step < 24; ++step) {
    const int down = step % 8 == 7 ? 1 : 0;
    CAPTURE(step);
    CHECK(next_exponent(grid, at(fit - 9), 1.0f, 0, step) == fit);
    CHECK(next_exponent(grid, fit, 1.0f, 0, step) == fit);
    CHECK(next_exponent(grid, at(fit + 1), 1.0f, 0, step) == fit + 1 - down);
    CHECK(next_exponent(grid, at(fit + 9), 1.0f, 0, step) == fit + 9 - down);
    CHECK(next_exponent(grid, at(fit + 9), 0.0f, 0, step) == fit + 9);
    CHECK(next_exponent(grid, at(kExponentMin), kTiny, 0, step) == kExponentMin);
    CHECK(next_exponent(grid, at(kExponentMax), kMax, 0, step) == kExponentMax);
    // A side entry raises the exponent to where it fits, without headroom; alone or with a mean.
    const int bare = fit - grid.headroom_bits;
    CHECK(next_exponent(grid, at(bare - 1), 0, 1.0f, step) == bare);
    CHECK(next_exponent(grid, at(bare - 1), 1.0f, 1.0f, step) == fit);
    CHECK(next_exponent(grid, at(bare - 1), 1.0f, 1024.0f, step) == bare + 10);
    CHECK(next_exponent(grid, at(bare + 3), 0, 1.0f, step) == bare + 3 - down);
    CHECK(next_exponent(Grid(1u << 24), at(0), kInf, 0, step) == kExponentMax);
  }
}

// Goal: the rules for blocks that say nothing.
TEST_CASE(
    "grid: a zero or broken block starts as its tensor's largest, a zero tensor at the least") {
  const Layout layout({{"a", {3 * kBlock}}, {"b", {2 * kBlock}}, {"c", {300}}});
  const Grid grid(8);
  std::vector<float> gradient(layout.elements());
  gradient[0] = 0.5f;             // a: 0.5, zeros, 2
  gradient[2 * kBlock + 9] = -2;  // b: zeros
  gradient[5 * kBlock] = 4;       // c: 4, NaN
  gradient[6 * kBlock] = std::nanf("");
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(grid, layout, gradient, exponents);
  const auto fit = [&](float x) { return fit_exponent(grid, x); };
  CHECK(exponents == std::vector<std::int16_t>{fit(0.5f), fit(2), fit(2), kExponentMin,
                                               kExponentMin, fit(4), fit(4)});
}

}  // namespace
}  // namespace starling::kernels
