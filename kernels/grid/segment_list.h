#pragma once
// A SegmentList names segments as a job does (kernels/device/jobs.h).

#include <span>
#include <vector>

#include "core/job/layout.h"
#include "kernels/device/array.h"
#include "kernels/device/jobs.h"

namespace starling::kernels {

// Threads: none; a value. A job borrows its list.
class SegmentList {
 public:
  SegmentList(const Layout& layout, std::span<const SegmentId> segments) {
    list_.reserve(segments.size());
    for (const SegmentId s : segments)
      list_.push_back({s, layout.first_block(s), layout.block_count(s)});
  }
  SegmentList(const Layout& layout, SegmentRange range) {
    for (const SegmentId s : range)
      list_.push_back({s, layout.first_block(s), layout.block_count(s)});
  }
  operator Segments() const {  // NOLINT: it is one
    return {list_.data(), static_cast<std::uint32_t>(list_.size())};
  }

 private:
  std::vector<SegmentBlocks> list_;
};

// Advises that these segments of an array [layout.elements()] are used and no others.
template <class T>
void expect_segments(Array<T>& array, const Layout& layout, const std::vector<bool>& segments) {
  array.expect(0, array.size(), /*used=*/false);
  for (SegmentId s = 0; s < layout.segments(); ++s) {
    SegmentRange run{s, 0};
    while (run.past() < layout.segments() && segments[run.past()]) ++run.count;
    if (run.empty()) continue;
    array.expect(layout.first_element(run.first), layout.elements(run), /*used=*/true);
    s = run.past() - 1;
  }
}

// Returns the segments of a range, or all of them.
inline std::vector<SegmentId> segment_ids(SegmentRange range) {
  return {range.begin(), range.end()};
}

}  // namespace starling::kernels
