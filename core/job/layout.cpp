#include "core/job/layout.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <system_error>
#include <utility>

#include "core/base/check.h"

namespace starling {

std::string tensor_text(const TensorSpec& tensor) {
  std::string text = tensor.name + ":";
  const char* times = "";
  for (const std::uint64_t size : tensor.shape)
    text.append(std::exchange(times, "x")).append(std::to_string(size));
  return text;
}

std::optional<TensorSpec> parse_tensor(std::string_view text) {
  constexpr std::size_t kNameMax = 512, kDimensionsMax = 8;
  constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 36;
  const auto colon = text.find(':');
  if (colon == 0 || colon > kNameMax || colon == std::string_view::npos) return std::nullopt;
  TensorSpec tensor;
  tensor.name = text.substr(0, colon);
  const auto printable = [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '"'; };
  if (!std::ranges::all_of(tensor.name, printable)) return std::nullopt;
  const char* at = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  std::uint64_t elements = 1;
  while (at != end) {
    std::uint64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || size > kElementsMax / elements) return std::nullopt;
    if (tensor.shape.size() == kDimensionsMax) return std::nullopt;
    tensor.shape.push_back(size);
    elements *= size;
    at = next;
    if (at == end) break;
    if (*at++ != 'x' || at == end) return std::nullopt;
  }
  return tensor;
}

Layout::Layout(std::vector<TensorSpec> tensors, std::uint32_t segment_blocks,
               std::uint32_t bucket_segments) {
  place(std::move(tensors));
  cut_parts();
  constexpr std::uint32_t kSegments = 512;
  segment_blocks_ = segment_blocks != 0 ? segment_blocks
                                        : std::clamp((blocks_ + kSegments - 1) / kSegments,
                                                     kSegmentBlocksMin, kSegmentBlocksMax);
  cut_segments();
  // A 64th of all sums leaves enough buckets to send while others are made. A large model's are long, as
  // what a worker holds lies in a run for each of them (decision 079).
  constexpr std::uint64_t kBucketBytesMin = 4u << 20, kBucketBytesMax = 256u << 20, kBuckets = 64;
  const std::uint64_t segment_bytes = segment_blocks_ * block_bytes(What::kSums);
  const std::uint64_t bucket_bytes =
      std::clamp(bytes_of(What::kSums) / kBuckets, kBucketBytesMin, kBucketBytesMax);
  bucket_segments_ =
      bucket_segments != 0
          ? bucket_segments
          : static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bucket_bytes / segment_bytes));
}

void Layout::place(std::vector<TensorSpec> tensors) {
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
}

namespace {

// Rows of a part of such a matrix: as many as fit, in whole blocks and in multiples of kPartRows. All
// rows if they fit.
std::uint64_t rows_of_a_part(const TensorSpec& spec) {
  STARLING_CHECK(spec.shape.size() == 2);
  const std::uint64_t rows = spec.shape[0], width = spec.shape[1];
  if (spec.elements() * sizeof(float) <= Layout::kPartBytesMax) return rows;
  const std::uint64_t whole =
      std::lcm(kBlock / std::gcd<std::uint64_t>(width, kBlock), Layout::kPartRows);
  const std::uint64_t fit = Layout::kPartBytesMax / (width * sizeof(float));
  return std::min(rows, std::max(whole, fit / whole * whole));
}

}  // namespace

void Layout::cut_parts() {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    TensorPlace& tensor = tensors_[t];
    const TensorSpec& spec = tensor.spec;
    const bool joins = t > 0 && tensors_[t - 1].spec.layer == spec.layer;
    if (t > 0) STARLING_CHECK(tensors_[t - 1].spec.layer <= spec.layer);
    if (joins) {
      STARLING_CHECK(spec.uses == parts_.back().uses);
      STARLING_CHECK(!spec.by_rows && !tensors_[t - 1].spec.by_rows);
      tensor.first_part = PartId(parts_.size() - 1);
      parts_.back().blocks += tensor.blocks;
      continue;
    }
    STARLING_CHECK(spec.uses >= 1);
    tensor.first_part = PartId(parts_.size());
    std::uint32_t part_blocks = tensor.blocks;
    if (spec.by_rows) {
      tensor.part_rows = rows_of_a_part(spec);
      if (tensor.part_rows < spec.shape[0])
        part_blocks = static_cast<std::uint32_t>(tensor.part_rows * spec.shape[1] / kBlock);
    }
    tensor.parts = (tensor.blocks + part_blocks - 1) / part_blocks;
    for (std::uint32_t b = 0; b < tensor.blocks; b += part_blocks)
      parts_.push_back({.first_block = tensor.first_block + b,
                        .blocks = std::min(part_blocks, tensor.blocks - b),
                        .uses = spec.uses});
  }
}

void Layout::cut_segments() {
  for (PartId p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    part.segments.first = SegmentId(first_blocks_.size());
    part.segments.count = (part.blocks + segment_blocks_ - 1) / segment_blocks_;
    for (std::uint32_t i = 0; i < part.segments.count; ++i) {
      first_blocks_.push_back(part.first_block + i * segment_blocks_);
      part_of_.push_back(p);
    }
  }
  segments_ = static_cast<std::uint32_t>(first_blocks_.size());
  first_blocks_.push_back(blocks_);
}

std::uint64_t Layout::largest_part() const {
  std::uint64_t largest = 0;
  for (const Part& part : parts_) largest = std::max(largest, part.elements());
  return largest;
}

std::uint32_t Layout::uses_max() const {
  std::uint32_t most = 0;
  for (const Part& part : parts_) most = std::max(most, part.uses);
  return most;
}

SegmentId Layout::segment_of(std::uint32_t block) const {
  const TensorPlace& tensor = tensors_[tensor_of_[block]];
  const std::uint32_t part_blocks = parts_[tensor.first_part].blocks;
  const PartId p = tensor.parts == 1
                       ? tensor.first_part
                       : tensor.first_part + (block - tensor.first_block) / part_blocks;
  const Part& part = parts_[p];
  return part.segments.first + (block - part.first_block) / segment_blocks_;
}

SegmentRange Layout::bucket(std::uint32_t b) const {
  const auto first = b * bucket_segments_;
  return {SegmentId(first), std::min(bucket_segments_, segments_ - first)};
}

std::uint32_t Layout::block_count(SegmentRange range) const {
  STARLING_CHECK(range.count > 0);
  STARLING_CHECK(range.first < segments_);
  STARLING_CHECK(range.count <= segments_ - range.first);
  return first_blocks_[range.past()] - first_blocks_[range.first];
}

}  // namespace starling
