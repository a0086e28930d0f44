#pragma once
// Ranges of segments that travel together: consecutive, of one bucket, with the same holders.

#include <vector>

#include "collectives/sums.h"
#include "core/job/layout.h"

namespace starling::collectives {

// Cuts all segments into ranges of at most `bytes` of sums, one segment at least.
std::vector<SegmentRange> equal_ranges(const Layout& layout,
                                       const std::vector<std::vector<Rank>>& holders,
                                       std::size_t bytes);

// Returns whether the rank holds the segments of the range, all of which have the same holders.
bool holds(const std::vector<std::vector<Rank>>& holders, Rank rank, SegmentRange range);

// Whether first, count name segments of this layout, one at least. They come from a peer.
bool fits(const Layout& layout, SegmentId first, std::uint32_t count);

// Checks the table: as many rows as segments, none empty, all ranks below `world`.
void check_holders(const Layout& layout, const std::vector<std::vector<Rank>>& holders,
                   std::uint32_t world);

}  // namespace starling::collectives
