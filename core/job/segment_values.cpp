#include "core/job/segment_values.h"

#include <array>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling {

Digest segment_digest(SegmentId id, std::span<const std::uint16_t> used,
                      std::span<const std::span<const float>> arrays,
                      std::span<const std::int16_t> exponents, Bytes& scratch) {
  const auto put = [&scratch](ByteView view) {
    scratch.insert(scratch.end(), view.begin(), view.end());
  };
  scratch.resize(sizeof id);
  std::memcpy(scratch.data(), &id, sizeof id);
  for (const auto& array : arrays)
    for (std::size_t b = 0; b < used.size() && !array.empty(); ++b)
      put(as_bytes(array.subspan(b * kBlock, used[b])));
  put(as_bytes(exponents));
  return hash128(scratch);
}

Digest segment_digest(const Layout& layout, const SegmentValues& values, Bytes& scratch) {
  const std::array arrays{values.weights, values.first, values.second};
  return segment_digest(values.id, layout.used_of(values.id), arrays, values.exponents, scratch);
}

Digest parameters_digest(const Layout& layout, std::span<const float> parameters,
                         std::span<const SegmentId> segments) {
  Digest digest{};
  Bytes scratch;
  for (const SegmentId s : segments) {
    const auto part = parameters.subspan(layout.first_element(s), layout.elements(s));
    digest = digest + segment_digest(s, layout.used_of(s), {&part, 1}, {}, scratch);
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
  const std::uint64_t blocks = layout_.block_count(ids_[i]), count = layout_.elements(ids_[i]);
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
  std::uint64_t bytes = 0;
  for (const SegmentId s : ids_)
    bytes += layout_.bytes_of(s, What::kWeights) + layout_.bytes_of(s, What::kExponents) +
             (second_ ? 2 : 1) * layout_.bytes_of(s, What::kMoment);
  return bytes;
}

}  // namespace starling
