#pragma once
// The state of segments as plain values (SegmentValues), and what of it a digest sees. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/job/layout.h"

namespace starling {

// The state of one segment, whole blocks with their padding.
struct SegmentValues {
  SegmentId id = 0;
  std::span<const float> weights, first;    // [block_count * kBlock]
  std::span<const float> second;            // the same; empty where the optimizer has one moment
  std::span<const std::int16_t> exponents;  // [block_count]
};

// The segment's part of the digest of its version: the hash of id, weights, moments and exponents,
// real elements only. `scratch` is overwritten; kept by the caller, since fresh memory costs more
// than the hash.
Digest segment_digest(const Layout& layout, const SegmentValues& values, Bytes& scratch);

// The same digest from plain arrays; empty ones do not count. used [block_count]: real elements of
// each block.
Digest segment_digest(SegmentId id, std::span<const std::uint16_t> used,
                      std::span<const std::span<const float>> arrays,
                      std::span<const std::int16_t> exponents, Bytes& scratch);

// The same digest of working parameters alone, flat in the layout: the sum over these segments of
// the hash of id and parameters.
Digest parameters_digest(const Layout& layout, std::span<const float> parameters,
                         std::span<const SegmentId> segments);

// SegmentStates has the state of segments, in memory of its own.
class SegmentStates {
 public:
  SegmentStates(const Layout& layout, bool second) : layout_(layout), second_(second) {}
  void add(const SegmentValues& values);  // a copy
  void clear();                           // keeps the memory
  std::size_t size() const { return ids_.size(); }
  SegmentValues operator[](std::size_t i) const;  // valid until the next add() or clear()
  std::vector<SegmentValues> all() const;
  std::uint64_t bytes() const;

 private:
  const Layout& layout_;
  const bool second_;
  std::vector<SegmentId> ids_;
  std::vector<std::uint64_t> begins_;  // of each, in elements
  std::vector<float> weights_, first_values_, second_values_;
  std::vector<std::int16_t> exponents_;
};

}  // namespace starling
