#include "tests/sim/numbers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <tuple>

#include "tests/sim/random.h"

namespace starling::sim {
namespace {

// Parts of one and of two segments, so that buckets of two lie across them; one that is used twice.
std::vector<TensorSpec> toy(std::uint32_t segments) {
  std::vector<TensorSpec> tensors;
  for (std::uint32_t first = 0, layer = 0; first < segments; ++layer) {
    const std::uint32_t blocks = std::min(1 + layer % 2, segments - first);
    // The last block is short, as most tensors' are.
    tensors.push_back({.name = "toy" + std::to_string(layer),
                       .shape = {std::uint64_t{blocks} * kBlock - 9},
                       .layer = layer,
                       .uses = layer == 1 ? 2u : 1u});
    first += blocks;
  }
  return tensors;
}

void fill_side_entry(SideEntry& entry, Random& random, bool finite) {
  for (float& value : entry.values) value = static_cast<float>(random.next() >> 40) * 1024.0f;
  if (!finite) entry.values[random.below(kBlock)] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

Numbers::Numbers(std::uint64_t seed, std::uint32_t micro_batches, std::uint64_t steps,
                 std::uint32_t segments, const LossScaleRule& loss_scale)
    : seed_(seed),
      micro_batches_(micro_batches),
      steps_(steps),
      layout_(toy(segments), /*segment_blocks=*/1, /*bucket_segments=*/2),
      loss_scale_(loss_scale) {}

SegmentState Numbers::initial(SegmentId segment) const {
  return {mix64(mix64(seed_, segment), 1), mix64(mix64(seed_, segment), 2), 0};
}

SegmentParams Numbers::params_of(const SegmentState& state) {
  return {mix64(state.weights, 3), mix64(state.exponents, 4)};
}

std::uint64_t Numbers::hash_of(std::span<const SegmentParams> params) {
  std::uint64_t hash = 5;
  for (const SegmentParams& p : params) hash = mix64(mix64(hash, p.weights), p.exponents);
  return hash;
}

Contribution Numbers::contribution(Version step, MicroBatch m, std::uint64_t params_hash,
                                   LossScale scale) const {
  Random random(mix64(mix64(seed_, step), m), params_hash + scale.log2);
  Contribution out;
  out.sums.resize(layout_.elements());
  out.row.micro_batch = m;
  out.row.finite = !random.chance(0.02);
  out.row.loss = static_cast<double>(random.next() >> 20) * 0x1p-40;
  out.row.tokens = random.range(1, 1000);
  out.row.metrics = {static_cast<double>(out.row.tokens) / 8, static_cast<double>(m)};
  if (step % 2 == 1 && m % 2 == 1)  // a step that evaluates, a micro-batch with held-out batches
    for (std::uint64_t i = 0; i <= m; ++i)
      std::ranges::copy(evaluation(mix64(params_hash, m + i)),
                        std::back_inserter(out.row.held_out));
  if (!out.row.finite && random.chance(0.5))
    out.row.loss = std::numeric_limits<double>::quiet_NaN();
  const auto unlucky = static_cast<SegmentId>(random.below(layout_.segments()));
  for (SegmentId s = 0; s < layout_.segments(); ++s)
    for (std::uint32_t use = 0; use < layout_.uses(s); ++use) {
      if ((!out.row.finite && s == unlucky) || random.chance(0.05)) {
        SideEntry& entry = out.side.emplace_back();
        entry.block = layout_.first_block(s);
        entry.micro_batch = m;
        entry.use = use;
        fill_side_entry(entry, random, out.row.finite || s != unlucky);
        continue;
      }
      const std::span block(out.sums.data() + std::size_t{s} * kBlock, kBlock);
      for (std::size_t i = 0; i < kBlock; i += 4) {
        const std::uint64_t bits = random.next();
        for (std::size_t k = 0; k < 4; ++k)
          block[i + k] += static_cast<std::int16_t>(bits >> (16 * k));
      }
    }
  out.row.contribution = hash64(as_bytes(std::span<const SideEntry>(out.side)),
                                hash64(as_bytes(std::span<const std::int32_t>(out.sums))));
  return out;
}

std::uint64_t Numbers::total_hash(std::span<const std::int32_t> total,
                                  std::vector<SideEntry> side) const {
  std::sort(side.begin(), side.end(), [](const SideEntry& a, const SideEntry& b) {
    return std::tie(a.block, a.micro_batch, a.use) < std::tie(b.block, b.micro_batch, b.use);
  });
  return hash64(as_bytes(std::span<const SideEntry>(side)), hash64(as_bytes(total)));
}

void Numbers::add_norm(ExactSum& norm, std::span<const std::int32_t> total) const {
  // |total| < 2^15 * 2^7, so 256 squares stay below 2^53: exact in a double. The scales are so far
  // apart that the sum over segments is not, so rounding a partial sum would show.
  std::uint64_t squares = 0;  // of garbage too, whose sum wraps
  for (const std::int64_t t : total) squares += static_cast<std::uint64_t>(t * t);
  norm.add(std::ldexp(static_cast<double>(static_cast<std::int64_t>(squares)),
                      static_cast<int>(mix64(squares) % 64) - 32));
}

void Numbers::apply(SegmentState& state, std::uint64_t total_hash, double norm, double peak_rate,
                    bool skipped) {
  if (!skipped)
    state.weights = mix64(mix64(state.weights, total_hash), std::bit_cast<std::uint64_t>(norm));
  if (!skipped && peak_rate != 0)
    state.weights = mix64(state.weights, std::bit_cast<std::uint64_t>(peak_rate));
  state.exponents = mix64(state.exponents, total_hash);
  ++state.label;
}

Digest Numbers::digest_of(SegmentId segment, const SegmentState& state) {
  const std::uint64_t low =
      mix64(mix64(mix64(segment, state.label), state.weights), state.exponents);
  return {low, mix64(low)};
}

std::vector<double> Numbers::evaluation(std::uint64_t params_hash) {
  return {static_cast<double>(mix64(params_hash, 6) >> 20) * 0x1p-40,
          static_cast<double>(mix64(params_hash, 7) >> 20) * 0x1p-30};
}

Reference::Reference(const Numbers& numbers, const std::vector<RateChange>& rates) {
  const Layout& layout = numbers.layout();
  std::vector<SegmentState> state;
  for (SegmentId s = 0; s < layout.segments(); ++s) state.push_back(numbers.initial(s));
  for (Version v = 0;; ++v) {
    std::vector<SegmentParams> params;
    for (const SegmentState& s : state) params.push_back(Numbers::params_of(s));
    states_.push_back(state);
    params_hashes_.push_back(Numbers::hash_of(params));
    if (v == numbers.steps()) return;

    std::vector<std::int32_t> total(layout.elements());
    std::vector<std::vector<SideEntry>> side(layout.segments());
    StepRecord record;
    record.version = v;
    if (v > 0) record.scale = records_[v - 1].scale;
    record.scale = next_scale(numbers.loss_scale(), record.scale, v > 0 && records_[v - 1].skipped);
    ExactSum loss, norm;
    std::array<ExactSum, kEvaluationWidth> held_out;
    std::size_t numbers_held_out = 0;
    double sum_of_numbers = 0;
    rows_.emplace_back();
    for (MicroBatch m = 0; m < numbers.micro_batches(); ++m) {
      const Contribution c = numbers.contribution(v, m, params_hashes_[v], record.scale);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += c.sums[i];
      for (const SideEntry& e : c.side) side[layout.segment_of(e.block)].push_back(e);
      if (c.row.finite) loss.add(c.row.loss);
      record.tokens += c.row.tokens;
      sum_of_numbers += m;
      record.skipped |= !c.row.finite;
      for (const double value : c.row.held_out)
        held_out[numbers_held_out++ % kEvaluationWidth].add(value);
      rows_.back().push_back(c.row);
    }
    record.metrics = {static_cast<double>(record.tokens) / 8 / numbers.micro_batches(),
                      sum_of_numbers / numbers.micro_batches()};
    record.loss = record.skipped ? std::numeric_limits<double>::quiet_NaN()
                                 : loss.value() / numbers.micro_batches();
    for (SegmentId s = 0; s < layout.segments(); ++s)
      numbers.add_norm(norm, std::span(total).subspan(std::size_t{s} * kBlock, kBlock));
    if (numbers_held_out > 0)
      for (const ExactSum& sum : held_out)
        record.evaluation.push_back(sum.value() /
                                    static_cast<double>(numbers_held_out / kEvaluationWidth));
    record.norm = std::sqrt(norm.value());
    records_.push_back(record);
    for (SegmentId s = 0; s < layout.segments(); ++s)
      Numbers::apply(
          state[s],
          numbers.total_hash(std::span(total).subspan(std::size_t{s} * kBlock, kBlock), side[s]),
          record.norm, changed_rate(rates, v), record.skipped);
  }
}

Digest Numbers::digest_of(SegmentId segment, const SegmentParams& params) {
  return {mix64(mix64(segment, params.weights), params.exponents),
          mix64(mix64(params.exponents, segment), params.weights)};
}

Digest Reference::parameters(Version v) const {
  Digest digest{};
  for (SegmentId s = 0; s < states_[v].size(); ++s)
    digest = digest + Numbers::digest_of(s, Numbers::params_of(states_[v][s]));
  return digest;
}

Digest Reference::digest(Version v) const {
  Digest sum{};
  for (SegmentId s = 0; s < states_[v].size(); ++s)
    sum = sum + Numbers::digest_of(s, states_[v][s]);
  return sum;
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace starling::sim
