#include "kernels/grid/accumulators.h"

#include <algorithm>
#include <tuple>

#include "core/base/check.h"

namespace starling::kernels {
namespace {

// Of the host's memory: enough that a few threads seldom meet, few enough that a lock covers much
// work. Elsewhere each stripe would be one more wait, for threads that only ask.
constexpr std::uint32_t kStripesMax = 64;

}  // namespace

Accumulators::Accumulators(const Layout& layout, std::uint32_t micro_batches, Device& device)
    : layout_(layout),
      grid_(micro_batches),
      queue_(device.make_queue()),
      sums_(device, layout.elements()),
      lanes_(layout.segments()),
      weighted_(Array<std::uint64_t>::pinned(device, layout.segments())),
      outside_(Array<std::uint32_t>::pinned(device, layout.blocks() + kStripesMax)),
      broken_(Array<std::uint32_t>::pinned(device, micro_batches)),
      progress_(micro_batches) {
  if (!sums_.host()) mirror_ = Array<std::int32_t>::pinned(device, layout.elements());
  const std::uint32_t stripes = sums_.host() ? kStripesMax : 1;
  const std::uint32_t each = (layout.segments() + stripes - 1) / stripes;
  for (SegmentId s = 0; s < layout.segments(); s += each) {
    const SegmentRange segments{s, std::min(each, layout.segments() - s)};
    auto stripe = std::make_unique<Stripe>(layout, segments);
    stripe->weighted = weighted_.data() + s;
    stripe->outside = outside_.data() + layout.first_block(s) + stripes_.size();
    stripes_.push_back(std::move(stripe));
  }
}

Accumulators::Added Accumulators::add(Queue& queue, const float* gradient,
                                      const std::int16_t* exponents, std::uint64_t seed,
                                      Version step, MicroBatch m) {
  begin(step, m);

  const bool is_finite = finite(queue, gradient, m);
  const std::uint64_t hash = micro_batch_hash(seed, step, m);
  std::vector<SideEntry> side;
  // Threads that add neighbouring micro-batches at once start apart.
  const std::size_t start = std::uint64_t{m} * stripes_.size() / grid_.micro_batches;
  for (std::size_t i = 0; i < stripes_.size(); ++i) {
    Stripe& stripe = *stripes_[(start + i) % stripes_.size()];
    const std::lock_guard lock(stripe.mutex);
    if (is_finite) add_stripe(stripe, queue, gradient, exponents, m, side);
    count(stripe.segments, hash);
  }
  queue.wait();

  const std::lock_guard lock(mutex_);
  side_.insert(side_.end(), side.begin(), side.end());
  progress_[m] = Progress::kDone;
  return {is_finite, static_cast<std::uint32_t>(side.size())};
}

void Accumulators::begin(Version step, MicroBatch m) {
  const std::lock_guard lock(mutex_);
  STARLING_CHECK(m < progress_.size());
  STARLING_CHECK(progress_[m] == Progress::kNone);  // P2
  if (step_) STARLING_CHECK(*step_ == step);
  step_ = step;
  progress_[m] = Progress::kBegun;
}

bool Accumulators::finite(Queue& queue, const float* gradient, MicroBatch m) {
  std::uint32_t& broken = broken_.data()[m];
  queue.finite({.values = gradient, .elements = layout_.elements(), .broken = &broken});
  queue.wait();
  return broken == 0;
}

void Accumulators::add_stripe(Stripe& stripe, Queue& queue, const float* gradient,
                              const std::int16_t* exponents, MicroBatch m,
                              std::vector<SideEntry>& side) {
  queue.add({.gradient = gradient,
             .exponents = exponents,
             .sums = sums_.data(),
             .limit = grid_.limit(),
             .segments = stripe.list,
             .weighted = stripe.weighted,
             .outside = stripe.outside});
  queue.wait();
  for (std::uint32_t i = 0; i < stripe.segments.count; ++i)
    lanes_[stripe.segments.first + i].weighted_sum += stripe.weighted[i];

  const std::span<std::uint32_t> outside(stripe.outside + 1, stripe.outside[0]);
  const std::size_t before = side.size();
  side.reserve(before + outside.size());  // entries stay where they are until they are filled
  for (const std::uint32_t b : outside) {
    SideEntry& entry = side.emplace_back();
    entry.block = b;
    entry.micro_batch = m;
    queue.copy_out(writable_bytes(std::span(entry.values).first(layout_.used(b))),
                   gradient + std::uint64_t{b} * kBlock);
  }
  if (!outside.empty()) queue.wait();
  for (std::size_t i = before; i < side.size(); ++i) {
    ProofLanes& lanes = lanes_[layout_.segment_of(side[i].block)];
    lanes.side_entries += 1;
    lanes.side_hashes += side_entry_hash(side[i]);
  }
}

void Accumulators::count(SegmentRange segments, std::uint64_t hash) {
  for (const SegmentId s : segments) {
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
  if (step_) {
    queue_->zero(sums_.data(), layout_.bytes_of(What::kSums));
    queue_->wait();
  }
  std::fill(lanes_.begin(), lanes_.end(), ProofLanes{});
  std::fill(progress_.begin(), progress_.end(), Progress::kNone);
  side_.clear();
  step_.reset();
}

std::optional<SegmentId> Accumulators::damaged(std::span<const SegmentId> segments) const {
  STARLING_CHECK(segments.size() <= weighted_.size());
  if (!step_) return std::nullopt;
  const SegmentList list(layout_, segments);
  std::uint64_t* weighted = weighted_.data();  // no add() runs
  queue_->weigh({.sums = sums_.data(), .segments = list, .weighted = weighted});
  queue_->wait();
  for (std::size_t i = 0; i < segments.size(); ++i)
    if (weighted[i] != lanes_[segments[i]].weighted_sum) return segments[i];
  return std::nullopt;
}

void Accumulators::mirror(SegmentRange segments) {
  if (sums_.host()) return;
  const std::uint64_t first = layout_.first_element(segments.first);
  sums_.copy_out(*queue_, first, mirror_.part(first, layout_.elements(segments)));
  queue_->wait();
}

std::vector<SideEntry> Accumulators::side_of(SegmentRange segments) const {
  std::vector<SideEntry> chosen;
  for (const SideEntry& entry : side_) {
    const SegmentId s = layout_.segment_of(entry.block);
    if (segments.contains(s)) chosen.push_back(entry);
  }
  std::sort(chosen.begin(), chosen.end(), [](const SideEntry& a, const SideEntry& b) {
    return std::tie(a.block, a.micro_batch) < std::tie(b.block, b.micro_batch);
  });
  return chosen;
}

}  // namespace starling::kernels
