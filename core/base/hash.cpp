#include "core/base/hash.h"

#define XXH_STATIC_LINKING_ONLY  // the size of a streaming state
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the widest vectors that the machine has; the same hashes
#endif

#include <new>

namespace starling {

std::uint64_t hash64(ByteView bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Digest hash128(ByteView bytes, std::uint64_t seed) {
  const auto hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

namespace {
static_assert(sizeof(XXH3_state_t) <= 576 && alignof(XXH3_state_t) <= 64);
XXH3_state_t* state(std::uint8_t* bytes) {
  return reinterpret_cast<XXH3_state_t*>(bytes);
}
}  // namespace

void Hash64::reset(std::uint64_t seed) {
  new (state_.data()) XXH3_state_t;
  XXH3_64bits_reset_withSeed(state(state_.data()), seed);
}

void Hash64::add(ByteView bytes) {
  XXH3_64bits_update(state(state_.data()), bytes.data(), bytes.size());
}

std::uint64_t Hash64::value() const {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data()));
}

}  // namespace starling
