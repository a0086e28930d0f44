#pragma once
// Layout says how a model's parameters lie in blocks, parts, segments and buckets. A function of
// the job only, so every worker computes the same.
//
// Flat index space: tensors one after the other, each starting at a block boundary, the rest of its
// last block padded with zeros. Every flat array (gradients, sums, weights, moments, parameters)
// has `elements()` entries; element i of tensor t is at t.first_block * kBlock + i.
//
// A part is what a layer computes with: neighbouring tensors, whose parameters come and whose
// gradients go together. Segments lie in one part each, so that a part can be reduced and gathered
// when others are not there yet.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace starling {

struct TensorSpec {
  std::string name;
  std::vector<std::uint64_t> shape;  // row-major
  // The layer. Neighbours with the same number lie in one part; numbers ascend.
  std::uint32_t layer = 0;
  // How many layers add to its gradient, alike for all of a part: 2 for what is tied.
  std::uint32_t uses = 1;
  // For a matrix that is alone in its layer and whose layers take runs of rows: where it is larger
  // than kPartBytesMax, it is several parts of whole rows.
  bool by_rows = false;
  std::uint64_t elements() const {
    std::uint64_t n = 1;
    for (auto d : shape) n *= d;
    return n;
  }
};

// How job files spell a tensor: "encoder.weight:64x128", "scale:" of a single number.
std::string tensor_text(const TensorSpec& tensor);
// Parses such a text. Nothing if it is none: a name of 1 to 512 printable bytes without ':' and
// '"', and up to 8 sizes of 1 to 2^36, whose product is at most 2^36.
std::optional<TensorSpec> parse_tensor(std::string_view text);

struct TensorPlace {
  TensorSpec spec;
  std::uint32_t first_block = 0;
  std::uint32_t blocks = 0;
  PartId first_part = 0;
  std::uint32_t parts = 1;      // more than one only by rows
  std::uint64_t part_rows = 0;  // by rows: of each of its parts but the last
};

struct Part {
  std::uint32_t first_block = 0;
  std::uint32_t blocks = 0;
  SegmentRange segments;
  std::uint32_t uses = 1;
  std::uint64_t first() const { return std::uint64_t{first_block} * kBlock; }
  std::uint64_t elements() const { return std::uint64_t{blocks} * kBlock; }
};

// What names the arrays along the flat index, by what they take in memory and in frames.
enum class What : std::uint8_t {
  kParameters,  // working ones, fp32
  kHalves,      // the same in frames of a job whose precision is bf16 or fp16
  kGradient,    // of a micro-batch, fp32
  kSums,        // of a worker or of all, int32
  kWeights,     // master weights, fp32
  kMoment,      // one of the optimizer's, fp32
  kExponents,   // of the grid, one int16 for a block
};

class Layout {
 public:
  static constexpr std::uint64_t kPartBytesMax = 32u << 20;  // of a matrix by rows, fp32
  // Where a matrix is cut, a part has a multiple of so many rows: the columns of a product that has
  // such rows as columns begin where a GPU reads fastest.
  static constexpr std::uint64_t kPartRows = 64;
  static constexpr std::uint32_t kSegmentBlocksMin = 4;
  // Weights and two moments of a segment take 24 MiB: a segment moves in one frame.
  static constexpr std::uint32_t kSegmentBlocksMax = 8192;

  // segment_blocks: blocks per segment (0 = chosen so that there are at most 512 segments and one
  // more for each part, within the bounds above, the larger of which more than a thousand million
  // parameters reach); the last segment of a part may be shorter. bucket_segments: segments per
  // bucket (0 = a 64th of the sums, at least about 4 MiB and at most 256).
  explicit Layout(std::vector<TensorSpec> tensors, std::uint32_t segment_blocks = 0,
                  std::uint32_t bucket_segments = 0);

  const std::vector<TensorPlace>& tensors() const { return tensors_; }
  std::uint32_t blocks() const { return blocks_; }
  std::uint64_t elements() const { return std::uint64_t{blocks_} * kBlock; }
  std::uint32_t segments() const { return segments_; }
  std::uint32_t segment_blocks() const { return segment_blocks_; }
  std::uint32_t buckets() const { return (segments_ + bucket_segments_ - 1) / bucket_segments_; }
  SegmentRange bucket(std::uint32_t b) const;
  const std::vector<Part>& parts() const { return parts_; }
  PartId part_of(SegmentId s) const { return part_of_[s]; }
  std::uint32_t uses(SegmentId s) const { return parts_[part_of_[s]].uses; }
  std::uint32_t uses_max() const;
  std::uint64_t largest_part() const;  // in elements
  std::uint32_t first_block(SegmentId s) const { return first_blocks_[s]; }
  std::uint32_t block_count(SegmentId s) const { return first_blocks_[s + 1] - first_blocks_[s]; }
  std::uint32_t block_count(SegmentRange range) const;  // of one segment at least
  std::uint64_t first_element(SegmentId s) const { return std::uint64_t{first_block(s)} * kBlock; }
  std::uint64_t elements(SegmentId s) const { return std::uint64_t{block_count(s)} * kBlock; }
  std::uint64_t elements(SegmentRange range) const {
    return std::uint64_t{block_count(range)} * kBlock;
  }
  // Sizes in bytes: of a whole block, of segments, of everything.
  static constexpr std::uint64_t block_bytes(What what) {
    return what == What::kExponents ? 2 : (what == What::kHalves ? 2 : 4) * kBlock;
  }
  std::uint64_t bytes_of(SegmentId s, What what) const {
    return block_count(s) * block_bytes(what);
  }
  std::uint64_t bytes_of(SegmentRange range, What what) const {
    return block_count(range) * block_bytes(what);
  }
  std::uint64_t bytes_of(What what) const { return blocks_ * block_bytes(what); }
  SegmentId segment_of(std::uint32_t block) const;
  // Real (not padding) elements of a block.
  std::uint32_t used(std::uint32_t block) const { return used_[block]; }
  std::span<const std::uint16_t> used_of(SegmentId s) const {
    return std::span(used_).subspan(first_block(s), block_count(s));
  }
  std::uint32_t tensor_of(std::uint32_t block) const { return tensor_of_[block]; }

 private:
  void place(std::vector<TensorSpec> tensors);
  void cut_parts();
  void cut_segments();

  std::vector<TensorPlace> tensors_;
  std::vector<std::uint16_t> used_;
  std::vector<std::uint32_t> tensor_of_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> first_blocks_;  // by segment, and the end
  std::vector<PartId> part_of_;              // by segment
  std::uint32_t blocks_ = 0;
  std::uint32_t segment_blocks_ = 0;
  std::uint32_t bucket_segments_ = 0;
  std::uint32_t segments_ = 0;
};

}  // namespace starling
