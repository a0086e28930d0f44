#include "kernels/grid/state.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/optim/optimizer.h"

namespace starling::kernels {
namespace {

// Blocks updated together: few calls of the optimizer, gradient still in the first-level cache.
constexpr std::uint32_t kRunBlocks = 16;

}  // namespace

State::State(const Layout& layout, const Job& job)
    : layout_(layout),
      job_(job),
      grid_(job.micro_batches),
      moments_(moments(job.optimizer.kind)),
      parameters_(layout.elements()),
      exponents_(layout.blocks()),
      weights_(layout.elements()),
      first_(layout.elements()),
      second_(layout.elements()),
      held_exponents_(layout.blocks()),
      held_(layout.segments()),
      labels_(layout.segments(), kNoVersion),
      checksums_(layout.segments()),
      parameter_checksums_(layout.segments()) {}

State::Span State::span_of(SegmentId segment) const {
  STARLING_CHECK(segment < layout_.segments());
  return {layout_.first_block(segment), layout_.block_count(segment)};
}

State::Span State::span_of(SegmentRange range) const {
  STARLING_CHECK(range.count > 0);
  STARLING_CHECK(range.first < layout_.segments());
  STARLING_CHECK(range.count <= layout_.segments() - range.first);
  const SegmentId last = range.first + range.count - 1;
  const std::uint32_t first_block = layout_.first_block(range.first);
  return {first_block, layout_.first_block(last) + layout_.block_count(last) - first_block};
}

void State::hold(SegmentId segment) {
  STARLING_CHECK(segment < layout_.segments());
  held_[segment] = 1;
}

void State::drop(SegmentId segment) {
  const Span span = span_of(segment);
  for (LazyArray<float>* array : {&weights_, &first_, &second_})
    array->release(span.first(), span.count());
  std::fill_n(held_exponents_.begin() + span.first_block, span.blocks, std::int16_t{0});
  held_[segment] = 0;
  labels_[segment] = kNoVersion;
}

void State::prepare_parameters(const std::stop_token& stop) const {
  parameters_.prepare(0, parameters_.size(), stop);
}

void State::prepare(SegmentId segment, const std::stop_token& stop) const {
  const Span span = span_of(segment);
  weights_.prepare(span.first(), span.count(), stop);
  if (moments_ >= 1) first_.prepare(span.first(), span.count(), stop);
  if (moments_ == 2) second_.prepare(span.first(), span.count(), stop);
}

State::Segment State::segment(SegmentId segment) const {
  STARLING_CHECK(holds(segment));
  const Span span = span_of(segment);
  return {weights_.part(span.first(), span.count()), first_.part(span.first(), span.count()),
          second_.part(span.first(), span.count()),
          std::span(held_exponents_).subspan(span.first_block, span.blocks)};
}

void State::initialise(std::span<const float> parameters, std::span<const std::int16_t> exponents,
                       const std::function<void()>& between) {
  STARLING_CHECK(parameters.size() == layout_.elements());
  STARLING_CHECK(exponents.size() == layout_.blocks());
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    const Span span = span_of(s);
    std::copy_n(parameters.data() + span.first(), span.count(), parameters_.data() + span.first());
    std::copy_n(exponents.data() + span.first_block, span.blocks,
                exponents_.data() + span.first_block);
    seal_parameters({s, 1});
    if (holds(s)) {
      drop(s);  // zero moments
      hold(s);
      initialise_segment(s, parameters, exponents);
    }
    between();
  }
}

void State::initialise_segment(SegmentId s, std::span<const float> parameters,
                               std::span<const std::int16_t> exponents) {
  STARLING_CHECK(parameters.size() == layout_.elements());
  STARLING_CHECK(exponents.size() == layout_.blocks());
  STARLING_CHECK(holds(s));
  STARLING_CHECK(label(s) == kNoVersion);
  const Span span = span_of(s);
  std::copy_n(parameters.data() + span.first(), span.count(), weights_.data() + span.first());
  std::copy_n(exponents.data() + span.first_block, span.blocks,
              held_exponents_.data() + span.first_block);
  labels_[s] = 0;
  checksums_[s] = checksum(s);
}

std::uint64_t State::checksum(SegmentId segment) const {
  const Segment held = this->segment(segment);
  std::uint64_t hash = hash64(as_bytes(held.exponents), labels_[segment]);
  hash = hash64(as_bytes(held.weights), hash);
  hash = hash64(as_bytes(held.first), hash);
  return moments_ == 2 ? hash64(as_bytes(held.second), hash) : hash;
}

std::uint64_t State::parameter_checksum(SegmentId segment) const {
  const Span span = span_of(segment);
  return hash64(as_bytes(parameters_.part(span.first(), span.count())),
                hash64(as_bytes(std::span(exponents_).subspan(span.first_block, span.blocks))));
}

bool State::intact(SegmentId segment) const {
  STARLING_CHECK(label(segment) != kNoVersion);
  return checksums_[segment] == checksum(segment);
}

void State::seal_parameters(SegmentRange range) {
  for (SegmentId s = range.first; s < range.first + range.count; ++s)
    parameter_checksums_[s] = parameter_checksum(s);
}

bool State::parameters_intact(SegmentId segment) const {
  return parameter_checksums_[segment] == parameter_checksum(segment);
}

ExactSum State::partial_norm(const Totals& totals, std::span<const SegmentId> segments) const {
  SquareSum squares;
  std::array<float, kBlock> mean;
  for (const SegmentId s : segments) {
    STARLING_CHECK(holds(s));
    const Span span = span_of(s);
    for (std::uint32_t b = span.first_block; b < span.first_block + span.blocks; ++b) {
      totals.mean(b, held_exponents_[b], mean);
      squares.add(std::span<const float>(mean).first(layout_.used(b)));
    }
  }
  return squares.sum();
}

void State::apply(const Totals& totals, const StepRecord& record,
                  std::span<const SegmentId> segments) {
  STARLING_CHECK(totals.pending() == record.version);  // R6
  for (const SegmentId s : segments) {
    STARLING_CHECK(holds(s));
    STARLING_CHECK_MSG(labels_[s] == record.version,
                       "segment " << s << " at " << labels_[s] << ", step " << record.version);
    const Span span = span_of(s);
    // Runs of blocks of one tensor, which decay alike.
    const std::uint32_t end = span.first_block + span.blocks;
    for (std::uint32_t b = span.first_block; b < end;) {
      const std::uint32_t tensor = layout_.tensor_of(b);
      std::uint32_t n = 1;
      while (n < kRunBlocks && b + n < end && layout_.tensor_of(b + n) == tensor) ++n;
      update_run(totals, record, b, n);
      b += n;
    }
    labels_[s] = record.version + 1;
    checksums_[s] = checksum(s);
  }
}

void State::update_run(const Totals& totals, const StepRecord& record, std::uint32_t first_block,
                       std::uint32_t blocks) {
  std::array<float, std::size_t{kRunBlocks} * kBlock> gradient;
  std::uint64_t used = 0;  // only the last block of a tensor is shorter
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const std::uint32_t b = first_block + i;
    const std::span<float> mean(gradient.data() + std::size_t{i} * kBlock, kBlock);
    totals.mean(b, held_exponents_[b], mean);
    used += layout_.used(b);
    const auto largest = std::bit_cast<float>(block_kernels().largest(mean.data()));
    held_exponents_[b] =
        next_exponent(grid_, held_exponents_[b], largest, totals.largest_side(b), record.version);
  }
  if (record.skipped) return;

  StepScale scale;
  scale.rate = learning_rate(job_.optimizer, record.version, job_.steps);
  scale.clip_scale = clip_factor(record.norm, job_.optimizer.clip);
  scale.t = record.version + 1;
  const TensorSpec& tensor = layout_.tensors()[layout_.tensor_of(first_block)].spec;
  const std::uint64_t at = std::uint64_t{first_block} * kBlock;
  update(job_.optimizer, scale, /*decay=*/tensor.shape.size() >= 2,
         std::span<const float>(gradient).first(used), weights_.part(at, used),
         first_.part(at, used), moments_ == 2 ? second_.part(at, used) : std::span<float>());
}

void State::publish(std::span<const SegmentId> segments) {
  for (const SegmentId s : segments) {
    STARLING_CHECK(holds(s));
    const Span span = span_of(s);
    std::copy_n(weights_.data() + span.first(), span.count(), parameters_.data() + span.first());
    std::copy_n(held_exponents_.data() + span.first_block, span.blocks,
                exponents_.data() + span.first_block);
    seal_parameters({s, 1});
  }
}

}  // namespace starling::kernels
