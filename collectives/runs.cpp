#include "collectives/runs.h"

#include "core/base/check.h"

namespace starling::collectives {

std::vector<SegmentRange> equal_runs(const Layout& layout,
                                     const std::vector<std::vector<Rank>>& holders,
                                     std::size_t bytes) {
  std::vector<SegmentRange> runs;
  for (std::uint32_t b = 0; b < layout.buckets(); ++b) {
    const SegmentRange bucket = layout.bucket(b);
    SegmentRange run{bucket.first, 0};
    for (const SegmentId s : bucket) {
      const SegmentRange longer{run.first, run.count + 1};
      const bool same = run.count == 0 || holders[s] == holders[run.first];
      const bool small = run.count == 0 || layout.bytes_of(longer, What::kSums) <= bytes;
      if (same && small) {
        run = longer;
        continue;
      }
      runs.push_back(run);
      run = {s, 1};
    }
    runs.push_back(run);
  }
  return runs;
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
