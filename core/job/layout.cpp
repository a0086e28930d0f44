#include "core/job/layout.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling {

Layout::Layout(std::vector<TensorSpec> tensors, std::uint32_t segment_blocks,
               std::uint32_t bucket_segments) {
  for (auto& spec : tensors) {
    const std::uint64_t n = spec.elements();
    STARLING_CHECK(n > 0);
    TensorPlace place;
    place.first_block = blocks_;
    place.blocks = static_cast<std::uint32_t>((n + kBlock - 1) / kBlock);
    for (std::uint32_t b = 0; b < place.blocks; ++b) {
      const auto left = n - std::uint64_t{b} * kBlock;
      used_.push_back(static_cast<std::uint16_t>(std::min<std::uint64_t>(left, kBlock)));
      tensor_of_.push_back(static_cast<std::uint32_t>(tensors_.size()));
    }
    blocks_ += place.blocks;
    place.spec = std::move(spec);
    tensors_.push_back(std::move(place));
  }
  STARLING_CHECK(blocks_ > 0);
  constexpr std::uint32_t kSegments = 512;
  segment_blocks_ = segment_blocks != 0 ? segment_blocks
                                        : std::clamp((blocks_ + kSegments - 1) / kSegments,
                                                     kSegmentBlocksMin, kSegmentBlocksMax);
  segments_ = (blocks_ + segment_blocks_ - 1) / segment_blocks_;
  constexpr std::uint32_t kBucketBytes = 4u << 20;
  const std::uint64_t segment_bytes = segment_blocks_ * block_bytes(What::kSums);
  bucket_segments_ =
      bucket_segments != 0
          ? bucket_segments
          : static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kBucketBytes / segment_bytes));
}

SegmentRange Layout::bucket(std::uint32_t b) const {
  const auto first = b * bucket_segments_;
  return {SegmentId(first), std::min(bucket_segments_, segments_ - first)};
}

std::uint32_t Layout::block_count(SegmentId s) const {
  return std::min(segment_blocks_, blocks_ - first_block(s));
}

std::uint32_t Layout::block_count(SegmentRange range) const {
  STARLING_CHECK(range.count > 0);
  STARLING_CHECK(range.first < segments_);
  STARLING_CHECK(range.count <= segments_ - range.first);
  const SegmentId last = range.past() - 1;
  return first_block(last) + block_count(last) - first_block(range.first);
}

}  // namespace starling
