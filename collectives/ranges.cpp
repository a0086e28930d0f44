#include "collectives/ranges.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::collectives {

std::vector<SegmentRange> equal_ranges(const Layout& layout,
                                       const std::vector<std::vector<Rank>>& holders,
                                       std::size_t bytes) {
  std::vector<SegmentRange> ranges;
  for (std::uint32_t b = 0; b < layout.buckets(); ++b) {
    const SegmentRange bucket = layout.bucket(b);
    SegmentRange range{bucket.first, 0};
    for (const SegmentId s : bucket) {
      const SegmentRange longer{range.first, range.count + 1};
      const bool same = range.count == 0 || holders[s] == holders[range.first];
      const bool small = range.count == 0 || layout.bytes_of(longer, What::kSums) <= bytes;
      if (same && small) {
        range = longer;
        continue;
      }
      ranges.push_back(range);
      range = {s, 1};
    }
    ranges.push_back(range);
  }
  return ranges;
}

bool holds(const std::vector<std::vector<Rank>>& holders, Rank rank, SegmentRange range) {
  return std::ranges::find(holders[range.first], rank) != holders[range.first].end();
}

bool fits(const Layout& layout, SegmentId first, std::uint32_t count) {
  return count > 0 && std::uint64_t{first} + count <= layout.segments();
}

void check_holders(const Layout& layout, const std::vector<std::vector<Rank>>& holders,
                   std::uint32_t world) {
  STARLING_CHECK(holders.size() == layout.segments());
  for (const auto& ranks : holders) {
    STARLING_CHECK(!ranks.empty());
    for (const Rank rank : ranks) STARLING_CHECK_MSG(rank < world, rank << " of " << world);
  }
}

}  // namespace starling::collectives
