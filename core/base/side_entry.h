#pragma once
// One entry of a side list: the raw gradient that one use of one micro-batch gives of a block whose
// values do not all fit the integer grid (docs/design.md, section 5). Entries are added exactly by
// the holders.

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/base/hash.h"
#include "core/base/ids.h"

namespace starling {

struct SideEntry {
  std::uint32_t block = 0;
  MicroBatch micro_batch = 0;
  std::uint32_t use = 0;
  std::array<float, kBlock> values{};  // the padding of a short block is +0
};
// Sent and hashed as it lies in memory, so it must not have holes.
static_assert(sizeof(SideEntry) == 12 + 4 * kBlock && std::is_trivially_copyable_v<SideEntry>);

// The hash that an entry adds to the last proof lane: a hash of its bits, so that NaNs and signed
// zeros count.
inline std::uint64_t side_entry_hash(const SideEntry& entry) {
  return hash64(as_bytes(std::span<const SideEntry>(&entry, 1)));
}

}  // namespace starling
