#pragma once
// These functions compute XXH3 of 64 bits with a seed and of 128 bits without one, on a device:
// the values of hash64() and hash128() (core/base/hash.h), of bytes that a source gives. One warp,
// a thread block, makes a hash at a time: all lanes call a function and get the result together.
// Algorithm: Collet, XXH3; https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md.
//
// A long input is blocks of 16 stripes of 64 bytes. What a stripe adds to the eight accumulators does not
// depend on them, so only the scramble after each block has to wait for the one before; the warp has
// loads of several blocks under way. Loops of short inputs stay loops, as those are rare.
//
// A source has, for each lane an object of its own,
//   void read(std::uint64_t block, Word (&words)[kRounds])   the lane's words (lane_word()) of a block of
//       which more follows; block numbers ascend
//   Word word(std::uint64_t at) const       the 8 bytes at a multiple of 8
//   unsigned byte(std::uint64_t at) const
//   static constexpr std::uint32_t kAhead   blocks that are to be under way

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/blocks.h"

namespace starling::kernels::cuda::xxh3 {

// ---- A long input's blocks, and what of them a lane has: a word each of some stripes ------------------

inline constexpr std::uint32_t kStripe = 64, kStripes = 16, kBlockBytes = kStripe * kStripes;
inline constexpr std::uint32_t kAccumulators = 8;
inline constexpr std::uint32_t kAtOnce =
    kLanes / kAccumulators;  // stripes that a warp reads together
inline constexpr std::uint32_t kRounds = kStripes / kAtOnce;

__device__ inline std::uint32_t accumulator_of_lane() {
  return lane_of_thread() % kAccumulators;
}
__device__ inline std::uint32_t stripe_of_lane(std::uint32_t round) {
  return round * kAtOnce + lane_of_thread() / kAccumulators;
}
// Returns the byte of a block at which the lane's word begins.
__device__ inline std::uint32_t lane_word(std::uint32_t round) {
  return stripe_of_lane(round) * kStripe +
         accumulator_of_lane() * static_cast<std::uint32_t>(sizeof(Word));
}

// ---- Words ----------------------------------------------------------------------------------------

inline constexpr Word kPrime32_1 = 0x9e3779b1u, kPrime32_2 = 0x85ebca77u, kPrime32_3 = 0xc2b2ae3du;
inline constexpr Word kPrime64_1 = 0x9e3779b185ebca87u, kPrime64_2 = 0xc2b2ae3d27d4eb4fu,
                      kPrime64_3 = 0x165667b19e3779f9u, kPrime64_4 = 0x85ebca77c2b2ae63u,
                      kPrime64_5 = 0x27d4eb2f165667c5u;
inline constexpr Word kMix1 = 0x165667919e3779f9u, kMix2 = 0x9fb21c651e98df25u;

inline constexpr std::uint32_t kSecretBytes = 192;
__device__ const Word kSecret[kSecretBytes / 8] = {
    0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u,
    0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u,
    0xcb00c391bb52283cu, 0xa32e531b8b65d088u, 0x4ef90da297486471u, 0xd8acdea946ef1938u,
    0x3f349ce33f76faa8u, 0x1d4f0bc7c7bbdcf9u, 0x3159b4cd4be0518au, 0x647378d9c97e9fc8u,
    0xc3ebd33483acc5eau, 0xeb6313faffa081c5u, 0x49daf0b751dd0d17u, 0x9e68d429265516d3u,
    0xfca1477d58be162bu, 0xce31d07ad1b8f88fu, 0x280416958f3acb45u, 0x7e404bbbcafbd7afu,
};

// The accumulators start with these.
__device__ const Word kFirst[kAccumulators] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                               kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};

// Returns 8 bytes of the secret as the seed changes them for long inputs: word j plus or minus it.
__device__ inline Word secret_word(std::uint32_t j, Word seed) {
  return j % 2 == 0 ? kSecret[j] + seed : kSecret[j] - seed;
}
__device__ inline Word secret_at(std::uint32_t byte, Word seed = 0) {
  const std::uint32_t j = byte / 8, shift = byte % 8 * 8;
  if (shift == 0) return secret_word(j, seed);
  return secret_word(j, seed) >> shift | secret_word(j + 1, seed) << (64 - shift);
}

__device__ inline Word rotated(Word x, int by) {
  return x << by | x >> (64 - by);
}
__device__ inline std::uint32_t swapped(std::uint32_t x) {
  return __byte_perm(x, 0, 0x0123);
}
__device__ inline Word swapped(Word x) {
  return Word{swapped(static_cast<std::uint32_t>(x))} << 32 |
         swapped(static_cast<std::uint32_t>(x >> 32));
}
__device__ inline Word folded_product(Word a, Word b) {
  return (a * b) ^ __umul64hi(a, b);
}
__device__ inline Word avalanche(Word h) {
  h = (h ^ h >> 37) * kMix1;
  return h ^ h >> 32;
}
// This is the avalanche of XXH64.
__device__ inline Word avalanche64(Word h) {
  h = (h ^ h >> 33) * kPrime64_2;
  h = (h ^ h >> 29) * kPrime64_3;
  return h ^ h >> 32;
}

struct Hash128 {
  Word low, high;
};

// ---- Short inputs: every lane makes the whole hash ------------------------------------------------

inline constexpr std::uint32_t kShort = 240;

// Copies bytes of a source to shared memory, for all lanes.
template <class Source>
__device__ const std::uint8_t* staged(const Source& source, std::uint64_t from,
                                      std::uint32_t count) {
  __shared__ std::uint8_t bytes[kShort];
  __syncwarp();  // others may still read what was there
  STARLING_ROLL
  for (std::uint32_t i = lane_of_thread(); i < count; i += kLanes)
    bytes[i] = static_cast<std::uint8_t>(source.byte(from + i));
  __syncwarp();
  return bytes;
}

__device__ inline std::uint32_t read32(const std::uint8_t* bytes, std::uint32_t at) {
  std::uint32_t value = 0;
  for (std::uint32_t i = 0; i < 4; ++i) value |= std::uint32_t{bytes[at + i]} << (8 * i);
  return value;
}
__device__ inline Word read64(const std::uint8_t* bytes, std::uint32_t at) {
  return read32(bytes, at) | Word{read32(bytes, at + 4)} << 32;
}
__device__ inline Word mixed16(const std::uint8_t* bytes, std::uint32_t at, std::uint32_t secret,
                               Word seed) {
  return folded_product(read64(bytes, at) ^ (secret_at(secret) + seed),
                        read64(bytes, at + 8) ^ (secret_at(secret + 8) - seed));
}
// Returns the bytes of an input of 1 to 3 bytes.
__device__ inline std::uint32_t few_bytes(const std::uint8_t* bytes, std::uint32_t length) {
  return bytes[0] << 16 | std::uint32_t{bytes[length / 2]} << 24 | bytes[length - 1] | length << 8;
}

__device__ inline Word short64(const std::uint8_t* bytes, std::uint32_t length, Word seed) {
  if (length == 0) return avalanche64(seed ^ secret_at(56) ^ secret_at(64));
  if (length < 4) {
    const Word flip = static_cast<std::uint32_t>(kSecret[0] ^ kSecret[0] >> 32) + seed;
    return avalanche64(few_bytes(bytes, length) ^ flip);
  }
  if (length <= 8) {
    seed ^= Word{swapped(static_cast<std::uint32_t>(seed))} << 32;
    const Word input = read32(bytes, length - 4) + (Word{read32(bytes, 0)} << 32);
    Word h = input ^ ((secret_at(8) ^ secret_at(16)) - seed);
    h = (h ^ rotated(h, 49) ^ rotated(h, 24)) * kMix2;
    h = (h ^ ((h >> 35) + length)) * kMix2;
    return h ^ h >> 28;
  }
  if (length <= 16) {
    const Word low = read64(bytes, 0) ^ ((secret_at(24) ^ secret_at(32)) + seed);
    const Word high = read64(bytes, length - 8) ^ ((secret_at(40) ^ secret_at(48)) - seed);
    return avalanche(length + swapped(low) + high + folded_product(low, high));
  }
  Word sum = length * kPrime64_1;
  if (length <= 128) {  // pairs from both ends
    STARLING_ROLL
    for (std::uint32_t i = 0; 32 * i < length; ++i) {
      sum += mixed16(bytes, 16 * i, 32 * i, seed);
      sum += mixed16(bytes, length - 16 * (i + 1), 32 * i + 16, seed);
    }
    return avalanche(sum);
  }
  STARLING_ROLL
  for (std::uint32_t i = 0; i < 8; ++i) sum += mixed16(bytes, 16 * i, 16 * i, seed);
  sum = avalanche(sum);
  STARLING_ROLL
  for (std::uint32_t i = 8; i < length / 16; ++i)
    sum += mixed16(bytes, 16 * i, 16 * (i - 8) + 3, seed);
  return avalanche(sum + mixed16(bytes, length - 16, 136 - 17, seed));
}

__device__ inline void mix32(const std::uint8_t* bytes, std::uint32_t one, std::uint32_t other,
                             std::uint32_t secret, Hash128& sum) {
  sum.low += mixed16(bytes, one, secret, 0);
  sum.low ^= read64(bytes, other) + read64(bytes, other + 8);
  sum.high += mixed16(bytes, other, secret + 16, 0);
  sum.high ^= read64(bytes, one) + read64(bytes, one + 8);
}

__device__ inline Hash128 short128(const std::uint8_t* bytes, std::uint32_t length) {
  if (length == 0)
    return {avalanche64(secret_at(64) ^ secret_at(72)), avalanche64(secret_at(80) ^ secret_at(88))};
  if (length < 4) {
    const std::uint32_t low = few_bytes(bytes, length);
    const std::uint32_t turned = swapped(low), high = turned << 13 | turned >> 19;
    const auto flip = [](Word word) { return static_cast<std::uint32_t>(word ^ word >> 32); };
    return {avalanche64(low ^ flip(kSecret[0])), avalanche64(high ^ flip(kSecret[1]))};
  }
  if (length <= 8) {
    const Word input = read32(bytes, 0) + (Word{read32(bytes, length - 4)} << 32);
    const Word keyed = input ^ secret_at(16) ^ secret_at(24), factor = kPrime64_1 + 4 * length;
    Word low = keyed * factor, high = __umul64hi(keyed, factor);
    high += low << 1;
    low ^= high >> 3;
    low = (low ^ low >> 35) * kMix2;
    return {low ^ low >> 28, avalanche(high)};
  }
  if (length <= 16) {
    Word last = read64(bytes, length - 8);
    const Word keyed = read64(bytes, 0) ^ last ^ secret_at(32) ^ secret_at(40);
    Word low = keyed * kPrime64_1, high = __umul64hi(keyed, kPrime64_1);
    low += Word{length - 1} << 54;
    last ^= secret_at(48) ^ secret_at(56);
    high += last + static_cast<std::uint32_t>(last) * (kPrime32_2 - 1);
    low ^= swapped(high);
    return {avalanche(low * kPrime64_2),
            avalanche(__umul64hi(low, kPrime64_2) + high * kPrime64_2)};
  }
  Hash128 sum{length * kPrime64_1, 0};
  if (length <= 128) {
    STARLING_ROLL
    for (std::uint32_t i = (length - 1) / 32 + 1; i-- > 0;)
      mix32(bytes, 16 * i, length - 16 * (i + 1), 32 * i, sum);
  } else {
    STARLING_ROLL
    for (std::uint32_t i = 0; i < 4; ++i) mix32(bytes, 32 * i, 32 * i + 16, 32 * i, sum);
    sum = {avalanche(sum.low), avalanche(sum.high)};
    STARLING_ROLL
    for (std::uint32_t i = 4; i < length / 32; ++i)
      mix32(bytes, 32 * i, 32 * i + 16, 32 * (i - 4) + 3, sum);
    mix32(bytes, length - 16, length - 32, 136 - 17 - 16, sum);
  }
  return {avalanche(sum.low + sum.high),
          0 - avalanche(sum.low * kPrime64_1 + sum.high * kPrime64_4 + length * kPrime64_2)};
}

// ---- Long inputs ----------------------------------------------------------------------------------

// Sums: lane l has what stripes l / 8, l / 8 + 4 and so on add to accumulator l mod 8.
class Sums {
 public:
  // secret: its 8 bytes that the stripe has for this accumulator.
  __device__ void add(Word data, Word secret) {
    const Word key = data ^ secret;
    products_ += (key & 0xffffffffu) * (key >> 32);
    data_ += data;
  }
  // All lanes call it: data goes to the neighbouring accumulator.
  __device__ Word of_accumulator() const {
    Word sum = products_ + __shfl_xor_sync(kAllLanes, data_, 1);
    for (int by = kAccumulators; by < static_cast<int>(kLanes); by *= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, by);
    return sum;
  }

 private:
  Word products_ = 0, data_ = 0;
};

// Returns each lane's accumulator at the end. Requires more than kShort bytes.
template <class Source>
__device__ Word accumulated(Source& source, std::uint64_t length, Word seed) {
  const std::uint32_t a = accumulator_of_lane();
  Word secrets[kRounds];
  for (std::uint32_t r = 0; r < kRounds; ++r) secrets[r] = secret_word(stripe_of_lane(r) + a, seed);
  const Word scramble = secret_word(kStripes + a, seed);
  Word accumulator = kFirst[a];

  constexpr std::uint32_t kAhead = Source::kAhead;
  const std::uint64_t blocks = (length - 1) / kBlockBytes;
  Word ahead[kAhead][kRounds];
  STARLING_UNROLL
  for (std::uint32_t i = 0; i < kAhead; ++i)
    if (i < blocks) source.read(i, ahead[i]);
  STARLING_ROLL
  for (std::uint64_t first = 0; first < blocks; first += kAhead) {
    STARLING_UNROLL
    for (std::uint32_t i = 0; i < kAhead; ++i) {
      if (first + i >= blocks) break;
      Sums sums;
      for (std::uint32_t r = 0; r < kRounds; ++r) sums.add(ahead[i][r], secrets[r]);
      if (first + i + kAhead < blocks) source.read(first + i + kAhead, ahead[i]);
      accumulator += sums.of_accumulator();
      accumulator = (accumulator ^ accumulator >> 47 ^ scramble) * kPrime32_1;
    }
  }

  // First whole stripes of the last block, without its end; then the last 64 bytes, even if read.
  const std::uint64_t rest = blocks * kBlockBytes;
  const auto stripes = static_cast<std::uint32_t>((length - 1 - rest) / kStripe);
  Sums sums;
  STARLING_ROLL
  for (std::uint32_t r = 0; r < kRounds && stripe_of_lane(r) < stripes; ++r)
    sums.add(source.word(rest + lane_word(r)), secret_word(stripe_of_lane(r) + a, seed));
  const std::uint8_t* last = staged(source, length - kStripe, kStripe);
  if (stripe_of_lane(0) == 0)
    sums.add(read64(last, a * sizeof(Word)),
             secret_at(kSecretBytes - kStripe - 7 + a * sizeof(Word), seed));
  return accumulator + sums.of_accumulator();
}

// Merges all accumulators to one word.
__device__ inline Word merged(Word accumulator, std::uint32_t secret, Word seed, Word start) {
  const Word keyed = accumulator ^ secret_at(secret + accumulator_of_lane() * sizeof(Word), seed);
  Word sum = folded_product(keyed, __shfl_xor_sync(kAllLanes, keyed, 1));  // of two, in both
  for (int by = 2; by < static_cast<int>(kAccumulators); by *= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, by);
  return avalanche(start + sum);
}

// ---- Hashes ---------------------------------------------------------------------------------------

inline constexpr std::uint32_t kMerge = 11;  // where the secret of a merge begins, from either end

// Hashes more than kShort bytes.
template <class Source>
__device__ Word long64(Source source, std::uint64_t length, Word seed) {
  return merged(accumulated(source, length, seed), kMerge, seed, length * kPrime64_1);
}

template <class Source>
__device__ Word hash64(Source source, std::uint64_t length, Word seed) {
  const auto few = static_cast<std::uint32_t>(length);
  return length <= kShort ? short64(staged(source, 0, few), few, seed)
                          : long64(source, length, seed);
}

template <class Source>
__device__ Hash128 hash128(Source source, std::uint64_t length) {
  const auto few = static_cast<std::uint32_t>(length);
  if (length <= kShort) return short128(staged(source, 0, few), few);
  const Word accumulator = accumulated(source, length, 0);
  return {merged(accumulator, kMerge, 0, length * kPrime64_1),
          merged(accumulator, kSecretBytes - kStripe - kMerge, 0, ~(length * kPrime64_2))};
}

}  // namespace starling::kernels::cuda::xxh3
