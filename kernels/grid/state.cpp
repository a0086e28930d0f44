#include "kernels/grid/state.h"

#include <algorithm>
#include <iterator>

#include "core/base/check.h"
#include "kernels/device/element.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/segment_list.h"
#include "kernels/optim/optimizer.h"

namespace starling::kernels {

namespace {
constexpr std::size_t kNormAtOnce = 64;  // segments: bounds the memory for side entries

// Makes the optimizer's moment number i. Pinned memory is
// the host's, and the device reads and writes it there.
Array<float> moment(const Layout& layout, const Job& job, Device& device, unsigned i) {
  if (i >= moments(job.optimizer)) return {};
  if (job.offload == Offload::kMoments) return Array<float>::pinned(device, layout.elements());
  return Array<float>::sparse(device, layout.elements());
}
}  // namespace

State::State(const Layout& layout, const Job& job, Device& device)
    : layout_(layout),
      job_(job),
      grid_(job),
      moments_(moments(job.optimizer)),
      queue_(device.make_queue()),
      parameters_(Array<float>::exported(device, layout.elements())),
      exponents_(device, layout.blocks()),
      arriving_exponents_(device, layout.blocks()),
      weights_(Array<float>::sparse(device, layout.elements())),
      first_(moment(layout, job, device, 0)),
      second_(moment(layout, job, device, 1)),
      held_exponents_(device, layout.blocks()),
      blocks_(job.optimizer, layout, device, *queue_),
      results_(Array<std::uint64_t>::pinned(
          device, std::max<std::size_t>(2 * layout.segments(), SquareSum::kWords + kNormAtOnce))),
      held_(layout.segments()),
      labels_(layout.segments(), kNoVersion),
      checksums_(layout.segments()),
      parameter_checksums_(layout.segments()) {}

std::vector<Array<float>*> State::held_arrays() {
  std::vector<Array<float>*> arrays{&weights_};
  if (moments_ >= 1) arrays.push_back(&first_);
  if (moments_ == 2) arrays.push_back(&second_);
  return arrays;
}

State::Span State::span_of(SegmentRange range) const {
  return {layout_.first_block(range.first), layout_.block_count(range)};
}

std::vector<float> State::copy_parameters() const {
  std::vector<float> copy(parameters_.size());
  parameters_.copy_out(*queue_, 0, copy);
  queue_->wait();
  return copy;
}

std::vector<std::int16_t> State::copy_exponents() const {
  std::vector<std::int16_t> copy(exponents_.size());
  exponents_.copy_out(*queue_, 0, copy);
  queue_->wait();
  return copy;
}

// ---- Holding ------------------------------------------------------------------------------------

void State::hold(SegmentId segment) {
  STARLING_CHECK(segment < layout_.segments());
  if (holds(segment)) return;
  const Span span = span_of(segment);
  // Where there is no room for all of them, none stays.
  struct Backed {
    ~Backed() {
      for (Array<float>* array : arrays) array->release(span.first(), span.count());
    }
    const Span span;
    std::vector<Array<float>*> arrays{};
  } backed{span};
  const std::vector<Array<float>*> arrays = held_arrays();
  backed.arrays.reserve(arrays.size());
  for (Array<float>* array : arrays) {
    array->back(span.first(), span.count());
    backed.arrays.push_back(array);
  }
  backed.arrays.clear();
  held_[segment] = 1;
}

void State::drop(SegmentId segment) {
  STARLING_CHECK(holds(segment));
  const Span span = span_of(segment);
  for (Array<float>* array : held_arrays()) array->release(span.first(), span.count());
  held_exponents_.release(span.first_block, span.blocks);
  held_[segment] = 0;
  labels_[segment] = kNoVersion;
}

void State::expect(const std::vector<bool>& segments) {
  expect_segments(weights_, layout_, segments);
  if (moments_ >= 1) expect_segments(first_, layout_, segments);
  if (moments_ == 2) expect_segments(second_, layout_, segments);
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

void State::initialise(std::span<const float> parameters, std::span<const std::int16_t> exponents) {
  STARLING_CHECK(parameters.size() == layout_.elements());
  for (PartId p = 0; p < layout_.parts().size(); ++p) {
    const Part& part = layout_.parts()[p];
    initialise_part(p, parameters.subspan(part.first(), part.elements()), exponents);
  }
}

void State::initialise_part(PartId p, std::span<const float> parameters,
                            std::span<const std::int16_t> exponents) {
  const Part& part = layout_.parts()[p];
  STARLING_CHECK(parameters.size() == part.elements());
  STARLING_CHECK(exponents.size() == layout_.blocks());
  for (const SegmentId s : part.segments) {
    const Span span = span_of(s);
    const auto given = parameters.subspan(span.first() - part.first(), span.count());
    std::vector<float> values(given.begin(), given.end());
    for (float& value : values) value = rounded(value, job_.precision);
    parameters_.copy_in(*queue_, span.first(), values);
    exponents_.copy_in(*queue_, span.first_block, exponents.subspan(span.first_block, span.blocks));
    seal_parameters({&s, 1});
    if (holds(s)) {
      drop(s);  // zero moments
      hold(s);
      initialise_segment(s, parameters, exponents);
    }
  }
}

void State::initialise_segment(SegmentId s, std::span<const float> parameters,
                               std::span<const std::int16_t> exponents) {
  const Part& part = layout_.parts()[layout_.part_of(s)];
  STARLING_CHECK(parameters.size() == part.elements());
  STARLING_CHECK(exponents.size() == layout_.blocks());
  STARLING_CHECK(holds(s));
  STARLING_CHECK(label(s) == kNoVersion);
  const Span span = span_of(s);
  weights_.copy_in(*queue_, span.first(),
                   parameters.subspan(span.first() - part.first(), span.count()));
  held_exponents_.copy_in(*queue_, span.first_block,
                          exponents.subspan(span.first_block, span.blocks));
  labels_[s] = 0;
  seal({&s, 1});
}

// ---- Integrity ----------------------------------------------------------------------------------

std::uint64_t* State::results(std::span<const SegmentId> segments) const {
  STARLING_CHECK(segments.size() <= layout_.segments());
  return results_.data();
}

std::span<const std::uint64_t> State::checksums(std::span<const SegmentId> segments) const {
  std::vector<std::uint64_t> labels;
  for (const SegmentId s : segments) {
    STARLING_CHECK(holds(s));
    labels.push_back(labels_[s]);
  }
  const SegmentList list(layout_, segments);
  std::uint64_t* sums = results(segments);
  queue_->checksum(
      {.exponents = held_exponents_.data(),
       .arrays = {weights_.data(), first_.data(), moments_ == 2 ? second_.data() : nullptr},
       .segments = list,
       .seeds = labels.data(),
       .checksums = sums});
  queue_->wait();
  return {sums, segments.size()};
}

std::span<const std::uint64_t> State::parameter_checksums(
    std::span<const SegmentId> segments) const {
  const std::vector<std::uint64_t> seeds(segments.size());
  const SegmentList list(layout_, segments);
  std::uint64_t* sums = results(segments);
  queue_->checksum({.exponents = exponents_.data(),
                    .arrays = {parameters_.data(), nullptr, nullptr},
                    .segments = list,
                    .seeds = seeds.data(),
                    .checksums = sums});
  queue_->wait();
  return {sums, segments.size()};
}

void State::seal(std::span<const SegmentId> segments) {
  const auto now = checksums(segments);
  for (std::size_t i = 0; i < segments.size(); ++i) checksums_[segments[i]] = now[i];
}

void State::seal_parameters(std::span<const SegmentId> segments) {
  const auto now = parameter_checksums(segments);
  for (std::size_t i = 0; i < segments.size(); ++i) parameter_checksums_[segments[i]] = now[i];
}

std::optional<SegmentId> State::damaged(std::span<const SegmentId> segments) const {
  for (const SegmentId s : segments) STARLING_CHECK(label(s) != kNoVersion);
  const auto now = checksums(segments);
  for (std::size_t i = 0; i < segments.size(); ++i)
    if (checksums_[segments[i]] != now[i]) return segments[i];
  return std::nullopt;
}

std::optional<SegmentId> State::exponents_differ(std::span<const SegmentId> segments) const {
  const std::vector<std::uint64_t> seeds(segments.size());
  const SegmentList list(layout_, segments);
  const auto checksums = [&](const Array<std::int16_t>& exponents) {
    std::uint64_t* sums = results(segments);
    queue_->checksum({.exponents = exponents.data(),
                      .arrays = {nullptr, nullptr, nullptr},
                      .segments = list,
                      .seeds = seeds.data(),
                      .checksums = sums});
    queue_->wait();
    return std::vector<std::uint64_t>(sums, sums + segments.size());
  };
  const auto held = checksums(held_exponents_), working = checksums(exponents_);
  const auto [first, other] = std::ranges::mismatch(held, working);
  if (first == held.end()) return std::nullopt;
  return segments[static_cast<std::size_t>(first - held.begin())];
}

std::optional<SegmentId> State::parameters_damaged(std::span<const SegmentId> segments) const {
  const auto now = parameter_checksums(segments);
  for (std::size_t i = 0; i < segments.size(); ++i)
    if (parameter_checksums_[segments[i]] != now[i]) return segments[i];
  return std::nullopt;
}

// ---- A step -------------------------------------------------------------------------------------

State::Norm State::partial_norm(const Totals& totals, std::span<const SegmentId> segments) const {
  const std::span<std::uint64_t, SquareSum::kWords> bins(results_.data(), SquareSum::kWords);
  std::fill(bins.begin(), bins.end(), 0);
  Norm norm;
  for (std::size_t i = 0; i < segments.size(); i += kNormAtOnce) {
    const auto part = segments.subspan(i, std::min(kNormAtOnce, segments.size() - i));
    for (const SegmentId s : part) STARLING_CHECK(holds(s));
    const SegmentList list(layout_, part);
    queue_->squares({.totals = totals.address(),
                     .exponents = held_exponents_.data(),
                     .used = blocks_.in_norm.data(),
                     .wide = totals.wide_means(*queue_, held_exponents_.data(), part),
                     .micro_batches = job_.micro_batches,
                     .segments = list,
                     .bins = bins.data(),
                     .weighted = results_.data() + SquareSum::kWords});
    queue_->wait();
    if (!norm.damaged)
      norm.damaged = totals.wrong(part, {results_.data() + SquareSum::kWords, part.size()});
  }
  norm.squares = SquareSum::sum_of(bins);
  return norm;
}

void State::apply(const Totals& totals, const StepRecord& record,
                  std::span<const SegmentId> segments, double peak_rate) {
  STARLING_CHECK(totals.pending() == record.version);  // R6
  for (const SegmentId s : segments) {
    STARLING_CHECK(holds(s));
    STARLING_CHECK_MSG(labels_[s] == record.version,
                       "segment " << s << " at " << labels_[s] << ", step " << record.version);
  }
  const double rate = learning_rate(job_.optimizer, record.version, job_.steps, peak_rate);
  for (std::uint32_t uses = 1; uses <= layout_.uses_max(); ++uses) {
    std::vector<SegmentId> alike;
    std::ranges::copy_if(segments, std::back_inserter(alike),
                         [&](SegmentId s) { return layout_.uses(s) == uses; });
    if (!alike.empty()) apply(totals, record, alike, grid_.with_uses(uses), rate);
  }
}

void State::apply(const Totals& totals, const StepRecord& record,
                  std::span<const SegmentId> segments, const Grid& grid, double rate) {
  StepScale scale;
  scale.rate = rate;
  scale.clip_scale = clip_factor(record.norm, job_.optimizer.clip);
  scale.t = record.version + 1;
  const SegmentList list(layout_, segments);
  std::uint64_t* sums = results(segments);
  queue_->apply({.totals = totals.address(),
                 .used = blocks_.used.data(),
                 .groups = blocks_.group_of.data(),
                 .wide = totals.wide_means(*queue_, held_exponents_.data(), segments),
                 .exponents = held_exponents_.data(),
                 .weights = weights_.data(),
                 .first = first_.data(),
                 .second = moments_ == 2 ? second_.data() : nullptr,
                 .numbers = update_numbers(job_.optimizer, scale, blocks_.groups),
                 .micro_batches = job_.micro_batches,
                 .limit_bits = grid.limit_bits,
                 .headroom_bits = grid.headroom_bits,
                 .step = record.version,
                 .skipped = record.skipped,
                 .segments = list,
                 .checksums = sums});
  queue_->wait();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    labels_[segments[i]] = record.version + 1;
    checksums_[segments[i]] = sums[i];
  }
}

void State::publish(std::span<const SegmentId> segments) {
  for (const SegmentId s : segments) STARLING_CHECK(holds(s));
  const SegmentList list(layout_, segments);
  std::uint64_t* sums = results(segments);
  queue_->publish({.weights = weights_.data(),
                   .held_exponents = held_exponents_.data(),
                   .parameters = parameters_.data(),
                   .precision = job_.precision,
                   .exponents = exponents_.data(),
                   .segments = list,
                   .checksums = sums});
  queue_->wait();
  for (std::size_t i = 0; i < segments.size(); ++i) parameter_checksums_[segments[i]] = sums[i];
}

std::vector<std::uint64_t> State::published(SegmentRange segments) const {
  const auto first = parameter_checksums_.begin() + segments.first;
  return {first, first + segments.count};
}

Digest State::sum_of_digests(std::size_t count) const {
  queue_->wait();
  Digest sum{};
  for (std::size_t i = 0; i < count; ++i)
    sum = sum + Digest{results_.data()[2 * i], results_.data()[2 * i + 1]};
  return sum;
}

Digest State::digest_part(std::span<const SegmentId> segments) const {
  for (const SegmentId s : segments) STARLING_CHECK(holds(s));
  const SegmentList list(layout_, segments);
  queue_->digest(
      {.exponents = held_exponents_.data(),
       .arrays = {weights_.data(), first_.data(), moments_ == 2 ? second_.data() : nullptr},
       .used = blocks_.used.data(),
       .segments = list,
       .digests = results(segments)});
  return sum_of_digests(segments.size());
}

Digest State::parameters_part(std::span<const SegmentId> segments) const {
  const SegmentList list(layout_, segments);
  queue_->digest({.exponents = nullptr,
                  .arrays = {parameters_.data(), nullptr, nullptr},
                  .used = blocks_.used.data(),
                  .segments = list,
                  .digests = results(segments)});
  return sum_of_digests(segments.size());
}

}  // namespace starling::kernels
