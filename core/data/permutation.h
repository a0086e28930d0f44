#pragma once
// The order of the samples in one pass over the data: a keyed permutation of [0, n), computed from
// (seed, pass) and not stored, so every worker knows it without a table or a message.
//
// A Feistel network over the smallest even number of bits that holds n, with Philox as the round
// function (Luby, Rackoff, SIAM J. Comput. 1988); values outside [0, n) are sent through again
// until one is inside (cycle walking; Black, Rogaway, CT-RSA 2002), on average fewer than four
// times.

#include <cstdint>

namespace starling {

// A value; any thread.
class Permutation {
 public:
  Permutation(std::uint64_t seed, std::uint64_t pass, std::uint64_t n);  // 1 <= n <= 2^62
  std::uint64_t operator()(std::uint64_t i) const;                       // i < n
  std::uint64_t inverse(std::uint64_t sample) const;  // the place at which a sample < n stands

 private:
  std::uint64_t encrypt(std::uint64_t value) const;
  std::uint64_t decrypt(std::uint64_t value) const;

  std::uint64_t seed_;
  std::uint64_t pass_;
  std::uint64_t n_;
  unsigned half_bits_;
};

}  // namespace starling
