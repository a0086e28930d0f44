#include "core/base/philox.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

namespace starling {
namespace {

// Known answers of the authors' library (Random123 1.09, kat_vectors, philox4x32 10).
TEST_CASE("philox: the authors' known answers") {
  using Four = std::array<std::uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
        Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("philox: every argument makes another stream") {
  std::set<std::array<std::uint32_t, 4>> seen;
  std::size_t drawn = 0;
  for (const Purpose purpose :
       {Purpose::kInitialWeights, Purpose::kDataOrder, Purpose::kDropout, Purpose::kSyntheticData})
    for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32})
      for (const std::uint64_t step : {0ull, 1ull, 1ull << 31})
        for (const std::uint32_t m : {0u, 1u, 4095u})
          for (const std::uint64_t index : {0ull, 1ull, 1ull << 32, ~0ull}) {
            seen.insert(random4(seed, purpose, step, m, index));
            ++drawn;
          }
  CHECK(seen.size() == drawn);
}

TEST_CASE("philox: uniform numbers lie inside (0, 1) and have the moments of the uniform") {
  CHECK(uniform(0) == 0x1p-33);
  CHECK(uniform(~0u) == 1 - 0x1p-33);
  double sum = 0, squares = 0;
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws / 4; ++i)
    for (const std::uint32_t bits :
         random4(5, Purpose::kDropout, 0, 0, static_cast<std::uint64_t>(i))) {
      sum += uniform(bits);
      squares += uniform(bits) * uniform(bits);
    }
  // Five standard deviations of the means: sqrt(1/12 / n) and sqrt(4/45 / n).
  CHECK(std::fabs(sum / kDraws - 0.5) < 5 * std::sqrt(1.0 / 12 / kDraws));
  CHECK(std::fabs(squares / kDraws - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / kDraws));
}

}  // namespace
}  // namespace starling
