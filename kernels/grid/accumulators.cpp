#include "kernels/grid/accumulators.h"

#include <algorithm>
#include <tuple>

#include "core/base/check.h"

namespace starling::kernels {
namespace {

// Enough that a few threads seldom meet, few enough that a lock covers much work.
constexpr std::uint32_t kStripesMax = 64;

}  // namespace

Accumulators::Accumulators(const Layout& layout, MicroBatch micro_batches)
    : layout_(layout),
      grid_(micro_batches),
      sums_(layout.elements()),
      lanes_(layout.segments()),
      progress_(micro_batches) {
  const std::uint32_t each = (layout.segments() + kStripesMax - 1) / kStripesMax;
  for (SegmentId s = 0; s < layout.segments(); s += each) {
    stripes_.push_back(std::make_unique<Stripe>());
    stripes_.back()->segments = {s, std::min(each, layout.segments() - s)};
  }
}

Accumulators::Added Accumulators::add(std::span<const float> gradient,
                                      std::span<const std::int16_t> exponents, std::uint64_t seed,
                                      Version step, MicroBatch m) {
  STARLING_CHECK(gradient.size() == layout_.elements());
  STARLING_CHECK(exponents.size() == layout_.blocks());
  begin(step, m);

  const bool finite = all_finite(gradient);
  const std::uint64_t hash = micro_batch_hash(seed, step, m);
  std::vector<SideEntry> side;
  // Threads that add neighbouring micro-batches at once start apart.
  const std::size_t start = std::uint64_t{m} * stripes_.size() / grid_.micro_batches;
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    Stripe& stripe = *stripes_[(start + i) % stripes_.size()];
    const std::lock_guard lock(stripe.mutex);
    if (finite) add_segments(stripe.segments, gradient, exponents, m, side);
    count(stripe.segments, hash);
  }

  const std::lock_guard lock(mutex_);
  side_.insert(side_.end(), side.begin(), side.end());
  progress_[m] = Progress::kDone;
  return {finite, static_cast<std::uint32_t>(side.size())};
}

void Accumulators::begin(Version step, MicroBatch m) {
  const std::lock_guard lock(mutex_);
  STARLING_CHECK(m < progress_.size());
  STARLING_CHECK(progress_[m] == Progress::kNone);  // P2
  if (step_ != kNoVersion) STARLING_CHECK(step_ == step);
  step_ = step;
  progress_[m] = Progress::kBegun;
}

void Accumulators::add_segments(SegmentRange segments, std::span<const float> gradient,
                                std::span<const std::int16_t> exponents, MicroBatch m,
                                std::vector<SideEntry>& side) {
  const auto& kernels = block_kernels();
  for (SegmentId s = segments.first; s < segments.first + segments.count; ++s) {
    const std::uint32_t first = layout_.first_block(s);
    for (std::uint32_t b = first; b < first + layout_.block_count(s); ++b) {
      const std::uint64_t at = std::uint64_t{b} * kBlock;
      const GridScale scale = grid_scale(exponents[b]);
      if (kernels.add(gradient.data() + at, scale, grid_.limit(), static_cast<std::uint32_t>(at),
                      sums_.data() + at, &lanes_[s].weighted_sum))
        continue;
      SideEntry& entry = side.emplace_back();
      entry.block = b;
      entry.micro_batch = m;
      std::copy_n(gradient.data() + at, layout_.used(b), entry.values.begin());
      lanes_[s].side_entries += 1;
      lanes_[s].side_hashes += side_entry_hash(entry);
    }
  }
}

void Accumulators::count(SegmentRange segments, std::uint64_t hash) {
  for (SegmentId s = segments.first; s < segments.first + segments.count; ++s) {
    lanes_[s].micro_batches += 1;
    lanes_[s].micro_batch_hashes += hash;
  }
}

std::vector<MicroBatch> Accumulators::done() const {
  const std::lock_guard lock(mutex_);
  std::vector<MicroBatch> done;
  for (MicroBatch m = 0; m < progress_.size(); ++m)
    if (progress_[m] == Progress::kDone) done.push_back(m);
  return done;
}

void Accumulators::clear() {
  const std::lock_guard lock(mutex_);
  for (const Progress p : progress_) STARLING_CHECK(p != Progress::kBegun);  // R8
  if (step_ != kNoVersion) std::fill_n(sums_.data(), sums_.size(), 0);
  std::fill(lanes_.begin(), lanes_.end(), ProofLanes{});
  std::fill(progress_.begin(), progress_.end(), Progress::kNone);
  side_.clear();
  step_ = kNoVersion;
}

bool Accumulators::intact(SegmentId segment) const {
  if (step_ == kNoVersion) return true;
  const std::uint32_t first = layout_.first_block(segment);
  const auto sums = sums_.part(std::uint64_t{first} * kBlock,
                               std::uint64_t{layout_.block_count(segment)} * kBlock);
  return weigh(first, sums) == lanes_[segment].weighted_sum;
}

std::vector<SideEntry> Accumulators::side_of(SegmentRange segments) const {
  std::vector<SideEntry> chosen;
  for (const SideEntry& entry : side_) {
    const SegmentId s = layout_.segment_of(entry.block);
    if (s >= segments.first && s - segments.first < segments.count) chosen.push_back(entry);
  }
  std::sort(chosen.begin(), chosen.end(), [](const SideEntry& a, const SideEntry& b) {
    return std::tie(a.block, a.micro_batch) < std::tie(b.block, b.micro_batch);
  });
  return chosen;
}

}  // namespace starling::kernels
