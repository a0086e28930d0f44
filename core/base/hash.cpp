#include "core/base/hash.h"

#include <xxhash.h>

namespace starling {

std::uint64_t hash64(ByteView bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Digest hash128(ByteView bytes, std::uint64_t seed) {
  const auto hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

}  // namespace starling
