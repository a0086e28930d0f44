#include "kernels/cuda/xxh3.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "core/base/hash.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/orders.h"

namespace starling::kernels::cuda {
namespace {

// Plain bytes, of which so many blocks are under way.
template <std::uint32_t kBlocks>
struct PlainBytes {
  static constexpr std::uint32_t kAhead = kBlocks;
  const std::uint8_t* bytes;

  __device__ void read(std::uint64_t block, Word (&words)[xxh3::kRounds]) const {
    for (std::uint32_t r = 0; r < xxh3::kRounds; ++r)
      words[r] = word(block * xxh3::kBlockBytes + xxh3::lane_word(r));
  }
  __device__ Word word(std::uint64_t at) const {
    Word all = 0;
    for (std::uint32_t i = 0; i < sizeof(Word); ++i) all |= Word{bytes[at + i]} << (8 * i);
    return all;
  }
  __device__ unsigned byte(std::uint64_t at) const { return bytes[at]; }
};

struct Hashes {
  std::uint64_t of_64, low, high;
  bool operator==(const Hashes&) const = default;
};

// Every lane has to have the result: the last one writes it.
template <std::uint32_t kBlocks>
__global__ void hash_prefixes(const std::uint8_t* bytes, const std::uint32_t* lengths, Word seed,
                              Hashes* hashes) {
  const PlainBytes<kBlocks> source{bytes};
  const std::uint32_t length = lengths[blockIdx.x];
  const Word of_64 = xxh3::hash64(source, length, seed);
  const xxh3::Hash128 of_128 = xxh3::hash128(source, length);
  if (threadIdx.x == kLanes - 1) hashes[blockIdx.x] = {of_64, of_128.low, of_128.high};
}

std::vector<std::uint8_t> random_bytes(std::size_t n) {
  std::mt19937_64 random(n);
  std::vector<std::uint8_t> bytes(n);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// Prefixes of random bytes against libxxhash.
template <std::uint32_t kBlocks>
void check_prefixes(const std::vector<std::uint32_t>& lengths, std::uint64_t seed) {
  const auto bytes = random_bytes(lengths.back());
  const DeviceArray<std::uint8_t> input(bytes);
  const DeviceArray<std::uint32_t> list(lengths);
  const DeviceArray<Hashes> hashes(lengths.size());
  launch(nullptr, static_cast<unsigned>(lengths.size()), kLanes, 0, hash_prefixes<kBlocks>,
         input.data(), list.data(), seed, hashes.data());
  const auto made = hashes.host();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const ByteView prefix = ByteView(bytes).first(lengths[i]);
    const Digest digest = starling::hash128(prefix);
    CAPTURE(lengths[i]);
    CAPTURE(seed);
    REQUIRE(made[i] == Hashes{starling::hash64(prefix, seed), digest[0], digest[1]});
  }
}

std::vector<std::uint32_t> lengths_to(std::uint32_t last) {
  std::vector<std::uint32_t> lengths;
  for (std::uint32_t n = 0; n <= last; ++n) lengths.push_back(n);
  return lengths;
}

TEST_CASE("xxh3: the hashes of libxxhash at every length to 2100, whatever the seed") {
  for (const std::uint64_t seed : {0ull, 1ull, 0x8000000000000000ull, ~0ull, 0x1234567890abcdefull})
    check_prefixes<4>(lengths_to(2100), seed);
}

TEST_CASE("xxh3: no order of threads, and no number of blocks under way, changes a hash") {
  std::vector<std::uint32_t> lengths = {0, 3, 8, 16, 128, 240, 241, 1024, 1025, 2049, 4096, 9000};
  in_every_order([&] {
    check_prefixes<1>(lengths, 7);
    check_prefixes<4>(lengths, 7);
    check_prefixes<8>(lengths, 7);
  });
}

TEST_CASE("xxh3: long inputs, around whole stripes and blocks") {
  check_prefixes<8>({65'535, 65'536, 65'537, 65'600, 99'991, 262'144, 262'145, 1'000'003}, 99);
}

}  // namespace
}  // namespace starling::kernels::cuda
