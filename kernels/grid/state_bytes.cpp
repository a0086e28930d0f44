// This file makes the bytes of frames and shards of kernels/grid/state.h.
//
// Parameters: u32 number of ranges, then for each: u32 first, u32 count, checksums (u64 by segment, as
// published), exponents (i16 by block), parameters (f32 by element of whole blocks; bf16 or fp16
// where that is the job's precision).
// State: u64 label, u32 first, u32 count, checksums (u64 by segment), exponents, weights, then each
// moment that the optimizer has.

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "kernels/device/element.h"
#include "kernels/grid/segment_list.h"
#include "kernels/grid/state.h"

namespace starling::kernels {
namespace {

Error corrupt(const std::string& what) {
  return Error(Code::kCorrupt, what);
}

std::string name(SegmentRange range) {
  return "segments " + std::to_string(range.first) + " and " + std::to_string(range.count) + " on";
}

Error not_published(SegmentId segment) {
  return corrupt("working parameters of segment " + std::to_string(segment) +
                 " are not what their owner published");
}

std::vector<std::uint64_t> read_checksums(ByteReader& reader, SegmentRange segments) {
  std::vector<std::uint64_t> checksums(segments.count);
  for (std::uint64_t& checksum : checksums) checksum = reader.get<std::uint64_t>();
  return checksums;
}

}  // namespace

// Writes an array's bytes for a frame, straight from their place if the host can read them.
template <class T>
void State::put(ByteWriter& writer, const Array<T>& array, std::size_t first, std::size_t n) const {
  if (array.host()) return writer.put_bytes(as_bytes(array.part(first, n)));
  std::vector<T> copy(n);
  array.copy_out(*queue_, first, copy);
  queue_->wait();
  writer.put_bytes(as_bytes(std::span<const T>(copy)));
}

void State::put_parameters(ByteWriter& writer, Span span) const {
  if (!halves()) return put(writer, parameters_, span.first(), span.count());
  std::vector<float> copy;
  std::span<const float> values;
  if (parameters_.host()) {
    values = parameters_.part(span.first(), span.count());
  } else {
    copy.resize(span.count());
    parameters_.copy_out(*queue_, span.first(), copy);
    queue_->wait();
    values = copy;
  }
  std::vector<std::uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(),
                         [this](float value) { return to_half(value, job_.precision); });
  writer.put_bytes(as_bytes(std::span<const std::uint16_t>(halves)));
}

// Reads `framed` as put_parameters() wrote it. Frames do not align it.
void State::take_framed(Span span, ByteView framed) {
  if (!halves()) return queue_->copy_in(parameters_.data() + span.first(), framed);
  std::vector<float> copy;
  std::span<float> values;
  if (parameters_.host()) {
    values = parameters_.part(span.first(), span.count());
  } else {
    copy.resize(span.count());
    values = copy;
  }
  STARLING_CHECK(framed.size() == values.size() * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t half;
    std::memcpy(&half, framed.data() + i * sizeof half, sizeof half);
    values[i] = from_half(half, job_.precision);
  }
  if (parameters_.host()) return;
  parameters_.copy_in(*queue_, span.first(), copy);
  queue_->wait();
}

SegmentValues State::values(SegmentId segment, Bytes& scratch) const {
  STARLING_CHECK(holds(segment));
  const Span span = span_of(segment);
  SegmentValues values;
  values.id = segment;
  if (weights_.host()) {
    values.weights = weights_.part(span.first(), span.count());
    values.first = first_.part(span.first(), span.count());
    if (moments_ == 2) values.second = second_.part(span.first(), span.count());
    values.exponents = held_exponents_.part(span.first_block, span.blocks);
    return values;
  }
  scratch.resize(layout_.bytes_of(segment, What::kWeights) +
                 moments_ * layout_.bytes_of(segment, What::kMoment) +
                 layout_.bytes_of(segment, What::kExponents));
  std::uint8_t* at = scratch.data();
  const auto copy = [&](const auto& array, std::size_t first, std::size_t n, auto& values_there) {
    using T = std::remove_cvref_t<decltype(*array.data())>;
    const std::span<T> there(reinterpret_cast<T*>(at), n);
    array.copy_out(*queue_, first, there);
    at += there.size_bytes();
    values_there = there;
  };
  copy(weights_, span.first(), span.count(), values.weights);
  copy(first_, span.first(), span.count(), values.first);
  if (moments_ == 2) copy(second_, span.first(), span.count(), values.second);
  copy(held_exponents_, span.first_block, span.blocks, values.exponents);
  queue_->wait();
  return values;
}

Result<> State::set_values(const SegmentValues& values, Version label) {
  if (values.id >= layout_.segments() || !holds(values.id))
    return corrupt("state of segment " + std::to_string(values.id) + ", which is not held");
  const Span span = span_of(values.id);
  Array<float>* arrays[] = {&weights_, &first_, &second_};
  const std::span<const float> given[] = {values.weights, values.first, values.second};
  STARLING_CHECK(values.exponents.size() == span.blocks);
  STARLING_TRY(check_exponents(as_bytes(values.exponents)));
  for (unsigned i = 0; i < 1 + moments_; ++i) {
    STARLING_CHECK(given[i].size() == span.count());
    STARLING_TRY(check_padding(span, as_bytes(given[i]), What::kWeights));
  }
  held_exponents_.copy_in(*queue_, span.first_block, values.exponents);
  for (unsigned i = 0; i < 1 + moments_; ++i) arrays[i]->copy_in(*queue_, span.first(), given[i]);
  labels_[values.id] = label;
  seal({&values.id, 1});
  return ok();
}

Bytes State::params_bytes(std::span<const SegmentRange> ranges) const {
  std::uint64_t blocks = 0;
  for (const SegmentRange range : ranges) blocks += layout_.block_count(range);
  const std::uint64_t each = Layout::block_bytes(What::kExponents) + Layout::block_bytes(framed());
  std::uint64_t segments = 0;
  for (const SegmentRange range : ranges) segments += range.count;
  ByteWriter writer(sizeof(std::uint32_t) + ranges.size_bytes() + segments * sizeof(std::uint64_t) +
                    blocks * each);
  writer.put(static_cast<std::uint32_t>(ranges.size()));
  for (const SegmentRange range : ranges) {
    const Span span = span_of(range);
    writer.put(range);
    for (const std::uint64_t checksum : published(range)) writer.put(checksum);
    put(writer, exponents_, span.first_block, span.blocks);
    put_parameters(writer, span);
  }
  return std::move(writer).take();
}

Result<std::vector<SegmentRange>> State::set_params(ByteView bytes,
                                                    const std::function<bool(SegmentId)>& wanted) {
  struct Part {
    Span span;
    std::vector<std::uint64_t> checksums;  // by segment, as their owner published them
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
    part.checksums = read_checksums(reader, range);
    part.exponents = reader.get_bytes(layout_.bytes_of(range, What::kExponents));
    part.parameters = reader.get_bytes(layout_.bytes_of(range, framed()));
    if (!reader.good()) return corrupt("parameters end early; " + name(range));
    STARLING_TRY(check_exponents(part.exponents));
    STARLING_TRY(check_padding(part.span, part.parameters, framed()));
    ranges.push_back(range);
    parts.push_back(part);
  }
  if (!reader.done()) return corrupt("parameters are longer than their ranges, or empty");
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Part& part = parts[i];
    const auto take = [&](SegmentRange run) -> Result<> {
      const Span span = span_of(run);
      const auto of = [&](ByteView all, What what) {
        return all.subspan((span.first_block - part.span.first_block) * Layout::block_bytes(what),
                           span.blocks * Layout::block_bytes(what));
      };
      // Copied as bytes, which frames do not align.
      queue_->copy_in(exponents_.data() + span.first_block, of(part.exponents, What::kExponents));
      take_framed(span, of(part.parameters, framed()));
      seal_parameters(segment_ids(run));
      for (const SegmentId s : run)
        if (parameter_checksums_[s] != part.checksums[s - ranges[i].first]) return not_published(s);
      return ok();
    };
    SegmentRange run{ranges[i].first, 0};
    for (const SegmentId s : ranges[i]) {
      if (wanted(s)) {
        ++run.count;
        continue;
      }
      if (!run.empty()) {
        STARLING_TRY(take(run));
      }
      run = {s + 1, 0};
    }
    if (!run.empty()) {
      STARLING_TRY(take(run));
    }
  }
  return ranges;
}

Bytes State::proofs(SegmentRange segments) const {
  const Span span = span_of(segments);
  ByteWriter writer;
  for (const std::uint64_t checksum : published(segments)) writer.put(checksum);
  put(writer, exponents_, span.first_block, span.blocks);
  return std::move(writer).take();
}

Result<> State::take_parameters(SegmentRange segments, const float* staged, ByteView proofs,
                                const std::function<bool(SegmentId)>& wanted) {
  const Span span = span_of(segments);
  ByteReader reader(proofs);
  const std::vector<std::uint64_t> checksums = read_checksums(reader, segments);
  const ByteView exponents = reader.get_bytes(layout_.bytes_of(segments, What::kExponents));
  if (!reader.done()) return corrupt("proofs of another length; " + name(segments));
  STARLING_TRY(check_exponents(exponents));
  queue_->copy_in(arriving_exponents_.data() + span.first_block, exponents);
  const auto ids = segment_ids(segments);
  const SegmentList list(layout_, ids);
  const std::vector<std::uint64_t> seeds(ids.size());
  const std::uint64_t* const there = results(ids);
  queue_->checksum({.exponents = arriving_exponents_.data(),
                    .arrays = {staged, nullptr, nullptr},
                    .first_block = span.first_block,
                    .segments = list,
                    .seeds = seeds.data(),
                    .checksums = results(ids)});
  queue_->wait();
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (there[i] != checksums[i]) return not_published(ids[i]);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!wanted(ids[i])) continue;
    const Span one = span_of(ids[i]);
    queue_->copy(parameters_.data() + one.first(), staged + (one.first() - span.first()),
                 one.count() * sizeof(float));
    queue_->copy(exponents_.data() + one.first_block, arriving_exponents_.data() + one.first_block,
                 one.blocks * sizeof(std::int16_t));
    parameter_checksums_[ids[i]] = checksums[i];
  }
  queue_->wait();
  return ok();
}

Bytes State::state_bytes(SegmentRange range) const {
  const Span span = span_of(range);
  for (const SegmentId s : range) {
    STARLING_CHECK(holds(s));
    STARLING_CHECK(labels_[s] == labels_[range.first]);
    STARLING_CHECK(labels_[s] != kNoVersion);
  }
  ByteWriter writer(sizeof(Version) + sizeof(SegmentRange) + range.count * sizeof(std::uint64_t) +
                    layout_.bytes_of(range, What::kExponents) +
                    layout_.bytes_of(range, What::kWeights) +
                    moments_ * layout_.bytes_of(range, What::kMoment));
  writer.put(labels_[range.first]);
  writer.put(range);
  for (const SegmentId s : range) writer.put(checksums_[s]);
  put(writer, held_exponents_, span.first_block, span.blocks);
  put(writer, weights_, span.first(), span.count());
  put(writer, first_, span.first(), span.count());
  if (moments_ == 2) put(writer, second_, span.first(), span.count());
  return std::move(writer).take();
}

Result<SegmentRange> State::set_state(ByteView bytes, Version label) {
  ByteReader reader(bytes);
  const auto found = reader.get<Version>();
  STARLING_TRY(range, read_range(reader));
  if (found != label)
    return corrupt("state has label " + std::to_string(found) + ", expected " +
                   std::to_string(label) + "; " + name(range));
  for (const SegmentId s : range)
    if (!holds(s)) return corrupt("state of segment " + std::to_string(s) + ", which is not held");
  const Span span = span_of(range);
  const std::vector<std::uint64_t> checksums = read_checksums(reader, range);
  const auto exponents = reader.get_bytes(layout_.bytes_of(range, What::kExponents));
  Array<float>* arrays[] = {&weights_, &first_, &second_};
  ByteView views[3];
  for (unsigned i = 0; i < 1 + moments_; ++i)
    views[i] = reader.get_bytes(layout_.bytes_of(range, i == 0 ? What::kWeights : What::kMoment));
  if (!reader.done()) return corrupt("state is shorter or longer than its range; " + name(range));
  STARLING_TRY(check_exponents(exponents));
  for (unsigned i = 0; i < 1 + moments_; ++i) {
    STARLING_TRY(check_padding(span, views[i], What::kWeights));
  }

  queue_->copy_in(held_exponents_.data() + span.first_block, exponents);
  for (unsigned i = 0; i < 1 + moments_; ++i)
    queue_->copy_in(arrays[i]->data() + span.first(), views[i]);
  for (const SegmentId s : range) labels_[s] = label;
  seal(segment_ids(range));
  for (const SegmentId s : range) {
    if (checksums_[s] == checksums[s - range.first]) continue;
    for (const SegmentId none : range) labels_[none] = kNoVersion;
    return corrupt("state of segment " + std::to_string(s) + " is not what its holder had");
  }
  return range;
}

Result<SegmentRange> State::read_range(ByteReader& reader) const {
  SegmentRange range;
  range.first = reader.get<SegmentId>();
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

// Padding must be zero on all workers, or sums over whole blocks would differ between them.
Result<> State::check_padding(Span span, ByteView blocks, What what) const {
  const std::size_t bytes = Layout::block_bytes(what) / kBlock;
  for (std::uint32_t b = 0; b < span.blocks; ++b) {
    const std::size_t first = std::size_t{b} * kBlock, used = layout_.used(span.first_block + b);
    const ByteView padding = blocks.subspan((first + used) * bytes, (kBlock - used) * bytes);
    if (std::any_of(padding.begin(), padding.end(), [](std::uint8_t byte) { return byte != 0; }))
      return corrupt("padding of block " + std::to_string(span.first_block + b) + " is not zero");
  }
  return ok();
}

}  // namespace starling::kernels
