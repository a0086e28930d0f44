#include "kernels/grid/accumulators.h"

#include <algorithm>
#include <tuple>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling::kernels {
namespace {

// Limits stripes of the host's memory: enough that a few threads seldom meet, few enough that a
// lock covers much work. Elsewhere a stripe would be one more wait for threads that only ask.
constexpr std::uint32_t kStripesMax = 64;

}  // namespace

Accumulators::Accumulators(const Layout& layout, std::uint32_t micro_batches, Device& device,
                           const NumbersSpec& numbers)
    : layout_(layout),
      micro_batches_(micro_batches),
      device_(device),
      numbers_(numbers),
      queue_(device.make_queue()),
      sums_(device, layout.elements()),
      lanes_(layout.segments()),
      weighted_(Array<std::uint64_t>::pinned(device, layout.segments())),
      weighed_(Array<std::uint64_t>::pinned(device, layout.segments())),
      added_(layout.parts().size()),
      progress_(micro_batches) {
  if (!sums_.host()) mirror_ = Array<std::int32_t>::pinned(device, layout.elements());
  cut_stripes(device);
}

void Accumulators::cut_stripes(Device& device) {
  const std::uint32_t stripes = sums_.host() ? kStripesMax : 1;
  const std::uint32_t each = (layout_.segments() + stripes - 1) / stripes;
  std::size_t count = 0;
  for (const Part& part : layout_.parts()) {
    auto& of_part = stripes_.emplace_back();
    for (std::uint32_t s = 0; s < part.segments.count; s += each)
      of_part.push_back(std::make_unique<Stripe>(
          layout_, SegmentRange{part.segments.first + s, std::min(each, part.segments.count - s)}));
    count += of_part.size();
  }
  outside_ = Array<std::uint32_t>::pinned(device, layout_.blocks() + 2 * count);
  std::uint32_t* free = outside_.data();
  for (auto& of_part : stripes_)
    for (auto& stripe : of_part) {
      stripe->weighted = weighted_.data() + stripe->segments.first;
      stripe->broken = free++;
      stripe->outside = free;
      free += 1 + layout_.block_count(stripe->segments);
    }
}

Accumulators::Adding::Adding(Accumulators& sums, Queue& queue, const std::int16_t* exponents,
                             std::uint64_t seed, Version step, MicroBatch m, bool counts)
    : sums_(sums),
      queue_(queue),
      exponents_(exponents),
      seed_(seed),
      step_(step),
      micro_batch_(m),
      counts_(counts),
      uses_(sums.layout_.parts().size()) {
  for (const Part& part : sums.layout_.parts()) uses_left_ += part.uses;
}

Accumulators::Adding Accumulators::begin(Queue& queue, const std::int16_t* exponents,
                                         std::uint64_t seed, Version step, MicroBatch m) {
  return {*this, queue, exponents, seed, step, m, /*counts=*/true};
}

Accumulators::Adding Accumulators::begin_again(Queue& queue, const std::int16_t* exponents,
                                               std::uint64_t seed, Version step, MicroBatch m) {
  STARLING_CHECK(m < micro_batches_);
  return {*this, queue, exponents, seed, step, m, /*counts=*/false};
}

void Accumulators::note_begun(Version step, MicroBatch m) {
  const MutexLock lock(mutex_);
  STARLING_CHECK(m < micro_batches_);
  STARLING_CHECK(progress_[m] == Progress::kNone);  // P2
  if (step_) STARLING_CHECK(*step_ == step);
  step_ = step;
  progress_[m] = Progress::kBegun;
}

void Accumulators::Adding::add(PartId p, std::uint32_t use, const float* gradient) {
  if (!begun_ && counts_) sums_.note_begun(step_, micro_batch_);
  begun_ = true;
  const Part& part = sums_.layout_.parts()[p];
  STARLING_CHECK(use < part.uses);
  STARLING_CHECK((uses_[p] >> use & 1) == 0);  // P2
  uses_[p] |= 1u << use;
  --uses_left_;
  auto& stripes = sums_.stripes_[p];
  // Threads that add neighbouring micro-batches at once start at different stripes.
  const std::size_t start = std::uint64_t{micro_batch_} * stripes.size() / sums_.micro_batches_;
  const NumbersSpec& numbers = sums_.numbers_;
  const Grid grid = Grid(sums_.micro_batches_, numbers.grid_bits).with_uses(part.uses);
  for (std::size_t i = 0; i < stripes.size(); ++i) {
    settle();
    Stripe& stripe = *stripes[(start + i) % stripes.size()];
    asked_.emplace(Asked{std::unique_lock(stripe.mutex), stripe, p, use, gradient,
                         /*last=*/i + 1 == stripes.size()});
    queue_.add({.gradient = gradient,
                .scale = scale_,
                .first_block = part.first_block,
                .exponents = exponents_,
                .sums = counts_ ? sums_.sums_.data() : nullptr,
                .limit = grid.limit(),
                .by_dice = numbers.rounding == GridRounding::kStochastic,
                .dice = {seed_, step_.value(), micro_batch_.value(), use},
                .segments = stripe.list,
                .weighted = stripe.weighted,
                .outside = stripe.outside,
                .broken = stripe.broken});
    queue_.mark();
    if (!ahead_) settle();
  }
}

void Accumulators::note_added(PartId part) {
  ++added_[part];
  if (told_ && complete(part)) told_(part);
}

void Accumulators::expect(std::uint32_t micro_batches) {
  STARLING_CHECK(micro_batches != kNoneExpected);
  expected_ = micro_batches;
  for (PartId p = 0; p < added_.size(); ++p)
    if (told_ && complete(p)) told_(p);
}

bool Accumulators::complete(PartId part) const {
  const std::uint32_t expected = expected_;
  return expected != kNoneExpected && added_[part] == expected * layout_.parts()[part].uses;
}

Accumulators::Added Accumulators::Adding::finish() {
  STARLING_CHECK(uses_left_ == 0);
  settle();
  queue_.wait();
  const Added added{finite_, static_cast<std::uint32_t>(side_.size()), contribution_};
  if (!counts_) return added;
  const MutexLock lock(sums_.mutex_);
  sums_.side_.insert(sums_.side_.end(), side_.begin(), side_.end());
  sums_.progress_[micro_batch_] = Progress::kDone;
  return added;
}

Accumulators::Added Accumulators::add(Queue& queue, const float* gradient,
                                      const std::int16_t* exponents, std::uint64_t seed,
                                      Version step, MicroBatch m) {
  Adding adding = begin(queue, exponents, seed, step, m);
  for (PartId p = 0; p < layout_.parts().size(); ++p)
    adding.add(p, /*use=*/0, gradient + layout_.parts()[p].first());
  return adding.finish();
}

// Counts what was asked for: lanes, blocks that are broken, values that go to the side list.
void Accumulators::Adding::settle() {
  if (!asked_) return;
  queue_.wait_marked();
  const Layout& layout = sums_.layout_;
  Stripe& stripe = asked_->stripe;
  const std::uint32_t use = asked_->use;
  finite_ = finite_ && *stripe.broken == 0;
  const std::uint64_t hash = micro_batch_hash(seed_, step_, micro_batch_, use);
  for (std::uint32_t i = 0; i < stripe.segments.count; ++i) {
    const std::uint64_t words[] = {stripe.segments.first + i, use, stripe.weighted[i]};
    contribution_ += hash64(as_bytes(std::span<const std::uint64_t>(words)));
    if (!counts_) continue;
    ProofLanes& lanes = sums_.lanes_[stripe.segments.first + i];
    lanes.weighted_sum += stripe.weighted[i];
    lanes.micro_batches += 1;
    lanes.micro_batch_hashes += hash;
  }

  const std::uint32_t first_block = layout.parts()[asked_->part].first_block;
  const std::span<std::uint32_t> outside(stripe.outside + 1, stripe.outside[0]);
  const std::size_t before = side_.size();
  if (!outside.empty()) {
    Array<float> values = sums_.take_staging(outside.size() * kBlock);
    queue_.gather({.gradient = asked_->gradient,
                   .first_block = first_block,
                   .blocks = outside.data(),
                   .count = static_cast<std::uint32_t>(outside.size()),
                   .values = values.data()});
    queue_.wait();
    const float* from = values.data();
    for (const std::uint32_t b : outside) {
      SideEntry& entry = side_.emplace_back();
      entry.block = b;
      entry.micro_batch = micro_batch_;
      entry.use = use;
      std::copy_n(from, layout.used(b), entry.values.begin());
      from += kBlock;
    }
    sums_.give_staging(std::move(values));
  }
  for (std::size_t i = before; i < side_.size(); ++i) {
    for (float& value : side_[i].values) value *= inverse_power_of_two(scale_);
    const std::uint64_t entry_hash = side_entry_hash(side_[i]);
    contribution_ += entry_hash;
    if (!counts_) continue;
    ProofLanes& lanes = sums_.lanes_[layout.segment_of(side_[i].block)];
    lanes.side_entries += 1;
    lanes.side_hashes += entry_hash;
  }
  const PartId part = asked_->part;
  const bool whole = asked_->last;
  asked_.reset();
  if (whole && counts_) sums_.note_added(part);
}

Array<float> Accumulators::take_staging(std::size_t size) {
  Array<float> taken;
  {
    const MutexLock lock(mutex_);
    if (!staging_.empty()) {
      taken = std::move(staging_.back());
      staging_.pop_back();
    }
  }
  // Pinned memory costs a device dearly to get, so it grows by much.
  if (taken.size() < size) taken = Array<float>::pinned(device_, std::max(size, 2 * taken.size()));
  return taken;
}

void Accumulators::give_staging(Array<float> staging) {
  const MutexLock lock(mutex_);
  staging_.push_back(std::move(staging));
}

std::vector<MicroBatch> Accumulators::done() const {
  const MutexLock lock(mutex_);
  std::vector<MicroBatch> done;
  for (MicroBatch m = 0; m < progress_.size(); ++m)
    if (progress_[m] == Progress::kDone) done.push_back(m);
  return done;
}

void Accumulators::clear() {
  const MutexLock lock(mutex_);
  for (const Progress p : progress_) STARLING_CHECK(p != Progress::kBegun);  // R8
  expected_ = kNoneExpected;
  for (auto& added : added_) added = 0;
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
  const SegmentList list(layout_, segments);
  std::uint64_t* const weighted = weighed_.data();
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
  const MutexLock lock(mutex_);
  std::vector<SideEntry> chosen;
  for (const SideEntry& entry : side_) {
    const SegmentId s = layout_.segment_of(entry.block);
    if (segments.contains(s)) chosen.push_back(entry);
  }
  std::sort(chosen.begin(), chosen.end(), [](const SideEntry& a, const SideEntry& b) {
    return std::tie(a.block, a.micro_batch, a.use) < std::tie(b.block, b.micro_batch, b.use);
  });
  return chosen;
}

}  // namespace starling::kernels
