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

std::uint64_t Permutation::inverse(std::uint64_t sample) const {
  STARLING_CHECK_MSG(sample < n_, "sample=" << sample << " n=" << n_);
  do sample = decrypt(sample);  // back along the same cycle
  while (sample >= n_);
  return sample;
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

std::uint64_t Permutation::decrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_, right = value & mask;
  for (std::uint32_t round = kRounds; round-- > 0;) {
    const auto bits = random4(seed_, Purpose::kDataOrder, pass_, round, left);
    const std::uint64_t before = (right ^ bits[0]) & mask;
    right = left;
    left = before;
  }
  return left << half_bits_ | right;
}

}  // namespace starling
