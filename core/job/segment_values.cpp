#include "core/job/segment_values.h"

#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling {

Digest segment_digest(const Layout& layout, const SegmentValues& values, Bytes& scratch) {
  const auto put = [&scratch](ByteView view) {
    scratch.insert(scratch.end(), view.begin(), view.end());
  };
  scratch.resize(sizeof values.id);
  std::memcpy(scratch.data(), &values.id, sizeof values.id);
  const std::uint32_t first = layout.first_block(values.id);
  for (const auto& array : {values.weights, values.first, values.second})
    for (std::uint32_t b = 0; b < layout.block_count(values.id) && !array.empty(); ++b)
      put(as_bytes(array.subspan(std::size_t{b} * kBlock, layout.used(first + b))));
  put(as_bytes(values.exponents));
  return hash128(scratch);
}

Digest parameters_digest(const Layout& layout, std::span<const float> parameters,
                         std::span<const SegmentId> segments) {
  Digest digest{};
  for (const SegmentId s : segments) {
    const std::uint32_t first = layout.first_block(s);
    ByteWriter bytes(sizeof s + std::size_t{layout.block_count(s)} * kBlock * sizeof(float));
    bytes.put(s);
    for (std::uint32_t b = first; b < first + layout.block_count(s); ++b)
      bytes.put_bytes(as_bytes(parameters.subspan(std::size_t{b} * kBlock, layout.used(b))));
    digest = digest + hash128(std::move(bytes).take());
  }
  return digest;
}

void SegmentStates::add(const SegmentValues& values) {
  STARLING_CHECK(values.second.empty() == !second_);
  STARLING_CHECK(values.exponents.size() == layout_.block_count(values.id));
  ids_.push_back(values.id);
  begins_.push_back(weights_.size());
  weights_.insert(weights_.end(), values.weights.begin(), values.weights.end());
  first_values_.insert(first_values_.end(), values.first.begin(), values.first.end());
  second_values_.insert(second_values_.end(), values.second.begin(), values.second.end());
  exponents_.insert(exponents_.end(), values.exponents.begin(), values.exponents.end());
}

void SegmentStates::clear() {
  ids_.clear();
  begins_.clear();
  weights_.clear();
  first_values_.clear();
  second_values_.clear();
  exponents_.clear();
}

SegmentValues SegmentStates::operator[](std::size_t i) const {
  const std::uint64_t begin = begins_[i];
  const std::uint64_t blocks = layout_.block_count(ids_[i]), count = blocks * kBlock;
  SegmentValues values;
  values.id = ids_[i];
  values.weights = std::span(weights_).subspan(begin, count);
  values.first = std::span(first_values_).subspan(begin, count);
  if (second_) values.second = std::span(second_values_).subspan(begin, count);
  values.exponents = std::span(exponents_).subspan(begin / kBlock, blocks);
  return values;
}

std::vector<SegmentValues> SegmentStates::all() const {
  std::vector<SegmentValues> all;
  for (std::size_t i = 0; i < size(); ++i) all.push_back((*this)[i]);
  return all;
}

std::uint64_t SegmentStates::bytes() const {
  return (weights_.size() + first_values_.size() + second_values_.size()) * sizeof(float) +
         exponents_.size() * sizeof(std::int16_t);
}

}  // namespace starling
