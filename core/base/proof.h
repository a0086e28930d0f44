#pragma once
// Proof lanes: five 64-bit sums that ride with every segment through a reduce. Four show that each
// use of each of the M micro-batches was added once (docs/design.md, section 5, R3), the fifth that
// what was added is what is there.

#include <cstdint>
#include <vector>

#include "core/base/hash.h"
#include "core/base/ids.h"
#include "core/base/weight.h"

namespace starling {

struct ProofLanes {
  std::uint64_t micro_batches = 0;       // number of micro-batches added, each by every use
  std::uint64_t micro_batch_hashes = 0;  // sum of micro_batch_hash(seed, step, m, use)
  std::uint64_t side_entries = 0;        // number of side-list entries
  std::uint64_t side_hashes = 0;         // sum of side_entry_hash over them
  std::uint64_t weighted_sum = 0;        // of the sums: see weight_of()

  bool operator==(const ProofLanes&) const = default;
  ProofLanes& operator+=(const ProofLanes& o) {
    micro_batches += o.micro_batches;
    micro_batch_hashes += o.micro_batch_hashes;
    side_entries += o.side_entries;
    side_hashes += o.side_hashes;
    weighted_sum += o.weighted_sum;
    return *this;
  }
};
static_assert(sizeof(ProofLanes) == 40);

constexpr std::uint64_t micro_batch_hash(std::uint64_t seed, Version step, MicroBatch m,
                                         std::uint32_t use = 0) {
  return mix64(mix64(seed, step), (std::uint64_t{use} << 32) | m);
}

// The first two lanes when all M micro-batches of a step were added once by each use.
inline ProofLanes complete_lanes(std::uint64_t seed, Version step, std::uint32_t micro_batches,
                                 std::uint32_t uses = 1) {
  ProofLanes lanes;
  lanes.micro_batches = std::uint64_t{uses} * micro_batches;
  for (std::uint32_t use = 0; use < uses; ++use)
    for (MicroBatch m = 0; m < micro_batches; ++m)
      lanes.micro_batch_hashes += micro_batch_hash(seed, step, m, use);
  return lanes;
}

// CompleteLanes has these lanes for all segments of a step, by how many uses their parts have.
class CompleteLanes {
 public:
  CompleteLanes(std::uint64_t seed, Version step, std::uint32_t micro_batches,
                std::uint32_t uses_max = 1)
      : micro_batches_(micro_batches) {
    for (std::uint32_t uses = 1; uses <= uses_max; ++uses)
      by_uses_.push_back(complete_lanes(seed, step, micro_batches, uses));
  }
  std::uint32_t micro_batches() const { return micro_batches_; }
  const ProofLanes& of(std::uint32_t uses) const { return by_uses_.at(uses - 1); }

 private:
  std::uint32_t micro_batches_;
  std::vector<ProofLanes> by_uses_;
};

// R3, first half: the first two lanes of a total are those of all M micro-batches.
inline bool sums_complete(const ProofLanes& total, const ProofLanes& complete) {
  return total.micro_batches == complete.micro_batches &&
         total.micro_batch_hashes == complete.micro_batch_hashes;
}

// R3: a holder accepts a total only if, besides, the side entries that it received match the last
// two.
inline bool accepted(const ProofLanes& total, const ProofLanes& complete,
                     std::uint64_t side_entries, std::uint64_t side_hashes) {
  return sums_complete(total, complete) && total.side_entries == side_entries &&
         total.side_hashes == side_hashes;
}

}  // namespace starling
