// Bytes of frames and digests of kernels/grid/state.h.
//
// Parameters: u32 number of ranges, then for each: u32 first, u32 count, exponents (i16 by block),
// parameters (f32 by element of whole blocks).
// State: u64 label, u32 first, u32 count, exponents, weights, then each moment that the optimizer
// has.

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "kernels/grid/state.h"
#include "kernels/optim/optimizer.h"

namespace starling::kernels {
namespace {

Error corrupt(const std::string& what) {
  return Error(Code::kCorrupt, what);
}

template <class T>
void put_array(ByteWriter& writer, std::span<const T> values) {
  writer.put_bytes(as_bytes(values));
}

// memcpy, as frames do not align what they carry.
template <class T>
void copy_array(ByteView bytes, std::span<T> values) {
  STARLING_CHECK(bytes.size() == values.size_bytes());
  std::memcpy(values.data(), bytes.data(), bytes.size());
}

std::string name(SegmentRange range) {
  return "segments " + std::to_string(range.first) + " and " + std::to_string(range.count) + " on";
}

}  // namespace

SegmentValues State::values(SegmentId segment) const {
  const Segment held = this->segment(segment);
  SegmentValues values{segment, held.weights, held.first, held.second, held.exponents};
  if (moments_ == 1) values.second = {};
  return values;
}

Result<> State::set_values(const SegmentValues& values, Version label) {
  if (values.id >= layout_.segments() || !holds(values.id))
    return corrupt("state of segment " + std::to_string(values.id) + ", which is not held");
  const Span span = span_of(values.id);
  LazyArray<float>* arrays[] = {&weights_, &first_, &second_};
  const std::span<const float> given[] = {values.weights, values.first, values.second};
  STARLING_CHECK(values.exponents.size() == span.blocks);
  STARLING_TRY(check_exponents(as_bytes(values.exponents)));
  for (unsigned i = 0; i < 1 + moments_; ++i) {
    STARLING_CHECK(given[i].size() == span.count());
    STARLING_TRY(check_padding(span, as_bytes(given[i])));
  }
  std::copy(values.exponents.begin(), values.exponents.end(),
            held_exponents_.begin() + span.first_block);
  for (unsigned i = 0; i < 1 + moments_; ++i)
    std::copy(given[i].begin(), given[i].end(),
              arrays[i]->part(span.first(), span.count()).begin());
  labels_[values.id] = label;
  checksums_[values.id] = checksum(values.id);
  return ok();
}

Digest State::digest_part(std::span<const SegmentId> segments) const {
  Digest digest{};
  Bytes scratch;
  for (const SegmentId s : segments) digest = digest + segment_digest(layout_, values(s), scratch);
  return digest;
}

Digest State::parameters_part(std::span<const SegmentId> segments) const {
  return parameters_digest(layout_, parameters(), segments);
}

Bytes State::params_bytes(std::span<const SegmentRange> ranges) const {
  std::size_t size = sizeof(std::uint32_t);
  for (const SegmentRange range : ranges) {
    const Span span = span_of(range);
    size += sizeof(range) + span.blocks * sizeof(std::int16_t) + span.count() * sizeof(float);
  }
  ByteWriter writer(size);
  writer.put(static_cast<std::uint32_t>(ranges.size()));
  for (const SegmentRange range : ranges) {
    const Span span = span_of(range);
    writer.put(range.first);
    writer.put(range.count);
    put_array(writer, exponents().subspan(span.first_block, span.blocks));
    put_array(writer, parameters_.part(span.first(), span.count()));
  }
  return std::move(writer).take();
}

Result<std::vector<SegmentRange>> State::set_params(ByteView bytes) {
  struct Part {
    Span span;
    ByteView exponents, parameters;
  };
  std::vector<SegmentRange> ranges;
  std::vector<Part> parts;
  ByteReader reader(bytes);
  const auto count = reader.get<std::uint32_t>();
  if (count > layout_.segments())
    return corrupt("parameters of " + std::to_string(count) + " ranges, the layout has " +
                   std::to_string(layout_.segments()) + " segments");
  for (std::uint32_t i = 0; i < count; ++i) {
    STARLING_TRY(range, read_range(reader));
    Part part;
    part.span = span_of(range);
    part.exponents = reader.get_bytes(part.span.blocks * sizeof(std::int16_t));
    part.parameters = reader.get_bytes(part.span.count() * sizeof(float));
    if (!reader.good()) return corrupt("parameters end early; " + name(range));
    STARLING_TRY(check_exponents(part.exponents));
    STARLING_TRY(check_padding(part.span, part.parameters));
    ranges.push_back(range);
    parts.push_back(part);
  }
  if (!reader.done()) return corrupt("parameters are longer than their ranges, or empty");
  for (const Part& part : parts) {
    copy_array(part.exponents,
               std::span(exponents_).subspan(part.span.first_block, part.span.blocks));
    copy_array(part.parameters, parameters_.part(part.span.first(), part.span.count()));
  }
  for (const SegmentRange range : ranges) seal_parameters(range);
  return ranges;
}

Bytes State::state_bytes(SegmentRange range) const {
  const Span span = span_of(range);
  for (SegmentId s = range.first; s < range.first + range.count; ++s) {
    STARLING_CHECK(holds(s));
    STARLING_CHECK(labels_[s] == labels_[range.first]);
    STARLING_CHECK(labels_[s] != kNoVersion);
  }
  ByteWriter writer(sizeof(Version) + sizeof(SegmentRange) + span.blocks * sizeof(std::int16_t) +
                    (1 + moments_) * span.count() * sizeof(float));
  writer.put(labels_[range.first]);
  writer.put(range.first);
  writer.put(range.count);
  put_array(writer, std::span(held_exponents_).subspan(span.first_block, span.blocks));
  put_array(writer, weights_.part(span.first(), span.count()));
  put_array(writer, first_.part(span.first(), span.count()));
  if (moments_ == 2) put_array(writer, second_.part(span.first(), span.count()));
  return std::move(writer).take();
}

Result<SegmentRange> State::set_state(ByteView bytes, Version label) {
  ByteReader reader(bytes);
  const auto found = reader.get<Version>();
  STARLING_TRY(range, read_range(reader));
  if (found != label)
    return corrupt("state has label " + std::to_string(found) + ", expected " +
                   std::to_string(label) + "; " + name(range));
  for (SegmentId s = range.first; s < range.first + range.count; ++s)
    if (!holds(s)) return corrupt("state of segment " + std::to_string(s) + ", which is not held");
  const Span span = span_of(range);
  const auto exponents = reader.get_bytes(span.blocks * sizeof(std::int16_t));
  LazyArray<float>* arrays[] = {&weights_, &first_, &second_};
  ByteView views[3];
  for (unsigned i = 0; i < 1 + moments_; ++i)
    views[i] = reader.get_bytes(span.count() * sizeof(float));
  if (!reader.done()) return corrupt("state is shorter or longer than its range; " + name(range));
  STARLING_TRY(check_exponents(exponents));
  for (unsigned i = 0; i < 1 + moments_; ++i) {
    STARLING_TRY(check_padding(span, views[i]));
  }

  copy_array(exponents, std::span(held_exponents_).subspan(span.first_block, span.blocks));
  for (unsigned i = 0; i < 1 + moments_; ++i)
    copy_array(views[i], arrays[i]->part(span.first(), span.count()));
  for (SegmentId s = range.first; s < range.first + range.count; ++s) {
    labels_[s] = label;
    checksums_[s] = checksum(s);
  }
  return range;
}

Result<SegmentRange> State::read_range(ByteReader& reader) const {
  SegmentRange range;
  range.first = reader.get<std::uint32_t>();
  range.count = reader.get<std::uint32_t>();
  if (!reader.good()) return corrupt("a range of segments ends early");
  if (range.count == 0 || range.first >= layout_.segments() ||
      range.count > layout_.segments() - range.first)
    return corrupt(name(range) + ", the layout has " + std::to_string(layout_.segments()));
  return range;
}

Result<> State::check_exponents(ByteView bytes) const {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::int16_t)) {
    std::int16_t exponent;
    std::memcpy(&exponent, bytes.data() + i, sizeof exponent);
    if (exponent < kExponentMin || exponent > kExponentMax)
      return corrupt("exponent " + std::to_string(exponent) + ", expected " +
                     std::to_string(kExponentMin) + " to " + std::to_string(kExponentMax));
  }
  return ok();
}

// Padding stays zero on all workers, or sums over whole blocks would differ between them.
Result<> State::check_padding(Span span, ByteView floats) const {
  for (std::uint32_t b = 0; b < span.blocks; ++b) {
    const std::size_t first = std::size_t{b} * kBlock, used = layout_.used(span.first_block + b);
    const ByteView padding =
        floats.subspan((first + used) * sizeof(float), (kBlock - used) * sizeof(float));
    if (std::any_of(padding.begin(), padding.end(), [](std::uint8_t byte) { return byte != 0; }))
      return corrupt("padding of block " + std::to_string(span.first_block + b) + " is not zero");
  }
  return ok();
}

}  // namespace starling::kernels
