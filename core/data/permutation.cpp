#include "core/data/permutation.h"

#include <algorithm>
#include <bit>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace starling {
namespace {

constexpr std::uint32_t kRounds = 6;

}  // namespace

Permutation::Permutation(std::uint64_t seed, std::uint64_t pass, std::uint64_t n)
    : seed_(seed), pass_(pass), n_(n) {
  STARLING_CHECK(n >= 1);
  STARLING_CHECK(n <= std::uint64_t{1} << 62);
  half_bits_ = std::max(1u, (static_cast<unsigned>(std::bit_width(n - 1)) + 1) / 2);
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  STARLING_CHECK_MSG(i < n_, "i=" << i << " n=" << n_);
  do i = encrypt(i);
  while (i >= n_);  // ends: i is on a cycle that holds at least the i < n we came from
  return i;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const auto bits = random4(seed_, Purpose::kDataOrder, pass_, round, right);
    const std::uint64_t next = (left ^ bits[0]) & mask;  // half_bits_ <= 31
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace starling
