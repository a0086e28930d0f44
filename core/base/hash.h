#pragma once
// Hashes for checksums, digests and proof lanes. Not for secrets (see core/base/mac.h).

#include <array>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/base/ids.h"

namespace starling {

// XXH3, 64 and 128 bits (Collet; https://xxhash.com): the same on every machine.
std::uint64_t hash64(ByteView bytes, std::uint64_t seed = 0);
Digest hash128(ByteView bytes, std::uint64_t seed = 0);

// hash64 of bytes that come in pieces: the same value however they are cut.
class Hash64 {
 public:
  explicit Hash64(std::uint64_t seed = 0) { reset(seed); }
  void reset(std::uint64_t seed);
  void add(ByteView bytes);
  std::uint64_t value() const;

 private:
  alignas(64) std::array<std::uint8_t, 576> state_;  // an XXH3_state_t
};

// A bijective mix of 64 bits (the finaliser of SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
constexpr std::uint64_t mix64(std::uint64_t a, std::uint64_t b) {
  return mix64(mix64(a) ^ b);
}

}  // namespace starling
