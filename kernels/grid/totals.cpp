#include "kernels/grid/totals.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/quantise.h"
#include "kernels/grid/segment_list.h"

namespace starling::kernels {
namespace {

Error corrupt_entry(const SideEntry& entry, const std::string& what) {
  return Error(Code::kCorrupt, "side entry of block " + std::to_string(entry.block) +
                                   ", micro-batch " + std::to_string(entry.micro_batch) + ", use " +
                                   std::to_string(entry.use) + ": " + what);
}

// Doubles an array that is too small: pinned memory costs a device dearly to get.
template <class T>
void make_room(Device& device, Array<T>& array, std::size_t size) {
  if (array.size() < size) array = Array<T>::pinned(device, std::max(size, 2 * array.size()));
}

}  // namespace

Totals::Totals(const Layout& layout, std::uint32_t micro_batches, Device& device)
    : layout_(layout),
      device_(device),
      micro_batches_(micro_batches),
      queue_(device.make_queue()),
      sums_(Array<std::int32_t>::sparse(device, layout.elements())),
      held_(layout.segments()),
      added_here_(layout.segments()),
      lanes_(layout.segments()),
      weighted_(Array<std::uint64_t>::pinned(device, layout.segments())) {
  STARLING_CHECK(micro_batches >= 1);
  if (!sums_.host()) arriving_ = Array<std::int32_t>::pinned(device, layout.elements());
}

void Totals::hold(SegmentId segment) {
  if (held_[segment]) return;
  sums_.back(layout_.first_element(segment), layout_.elements(segment));
  held_[segment] = true;
}

void Totals::drop(SegmentId segment) {
  if (!held_[segment]) return;
  lanes_[segment] = {};
  added_here_[segment] = false;
  sums_.release(layout_.first_element(segment), layout_.elements(segment));
  held_[segment] = false;
}

void Totals::take(std::span<const SegmentId> segments) {
  if (sums_.host()) return;
  for (const SegmentId s : segments) {
    if (added_here_[s]) continue;
    hold(s);
    const std::uint64_t first = layout_.first_element(s);
    sums_.copy_in(*queue_, first, arriving_.part(first, layout_.elements(s)));
  }
  queue_->wait();
}

void Totals::add(SegmentRange segments, const std::int32_t* own,
                 std::span<const std::int32_t* const> received) {
  const std::uint64_t elements = layout_.elements(segments);
  if (received.empty()) return copy(segments, own);
  for (const SegmentId s : segments) hold(s);
  const std::int32_t* so_far = own;
  for (const std::int32_t* more : received) {
    queue_->sum({.sums = address(segments), .a = so_far, .b = more, .elements = elements});
    so_far = address(segments);
  }
  queue_->wait();
  for (const SegmentId s : segments) added_here_[s] = true;
}

void Totals::copy(SegmentRange segments, const std::int32_t* from) {
  for (const SegmentId s : segments) hold(s);
  queue_->copy(address(segments), from, layout_.bytes_of(segments, What::kSums));
  queue_->wait();
  for (const SegmentId s : segments) added_here_[s] = true;
}

void Totals::expect(const std::vector<bool>& segments) {
  expect_segments(sums_, layout_, segments);
}

void Totals::prepare(SegmentId segment, const std::stop_token& stop) const {
  const std::uint64_t first = layout_.first_element(segment), count = layout_.elements(segment);
  sums_.prepare(first, count, stop);
  if (!sums_.host()) arriving_.prepare(first, count, stop);
}

std::optional<SegmentId> Totals::damaged(std::span<const SegmentId> segments) const {
  STARLING_CHECK(segments.size() <= weighted_.size());
  for (const SegmentId s : segments) STARLING_CHECK(sums_.host() || held_[s]);
  const SegmentList list(layout_, segments);
  std::uint64_t* weighted = weighted_.data();
  queue_->weigh({.sums = sums_.data(), .segments = list, .weighted = weighted});
  queue_->wait();
  return wrong(segments, {weighted, segments.size()});
}

std::optional<SegmentId> Totals::wrong(std::span<const SegmentId> segments,
                                       std::span<const std::uint64_t> weighted) const {
  for (std::size_t i = 0; i < segments.size(); ++i)
    if (weighted[i] != lanes_[segments[i]].weighted_sum) return segments[i];
  return std::nullopt;
}

Result<> Totals::add_side(const SideEntry& entry) {
  if (entry.block >= layout_.blocks())
    return corrupt_entry(entry, "the layout has " + std::to_string(layout_.blocks()) + " blocks");
  if (entry.micro_batch >= micro_batches_)
    return corrupt_entry(entry, "a step has " + std::to_string(micro_batches_) + " micro-batches");
  if (const auto uses = layout_.uses(layout_.segment_of(entry.block)); entry.use >= uses)
    return corrupt_entry(entry, "the block has " + std::to_string(uses));
  const auto used = entry.values.begin() + layout_.used(entry.block);
  if (!std::all_of(entry.values.begin(), used, [](float x) { return std::isfinite(x); }))
    return corrupt_entry(entry, "a value is not finite");
  if (!std::all_of(used, entry.values.end(),
                   [](float x) { return std::bit_cast<std::uint32_t>(x) == 0; }))
    return corrupt_entry(entry, "padding is not zero");
  auto& entries = side_[entry.block];
  for (const SideEntry& other : entries)
    if (other.micro_batch == entry.micro_batch && other.use == entry.use)
      return corrupt_entry(entry, "received twice");
  entries.push_back(entry);
  ++side_entries_;
  return ok();
}

std::span<const SideEntry> Totals::side_of(std::uint32_t block) const {
  const auto found = side_.find(block);
  if (found == side_.end()) return {};
  return found->second;
}

float Totals::largest_side(std::uint32_t block) const {
  float largest = 0;
  for (const SideEntry& entry : side_of(block))
    for (const float x : entry.values) largest = std::max(largest, std::fabs(x));
  return largest;
}

WideMeans Totals::wide_means(Queue& queue, const std::int16_t* exponents,
                             std::span<const SegmentId> segments) const {
  std::vector<std::uint32_t> blocks;
  std::size_t entries = 0;
  for (const SegmentId s : segments) {
    const std::uint32_t end = layout_.first_block(s) + layout_.block_count(s);
    for (auto it = side_.lower_bound(layout_.first_block(s)); it != side_.end() && it->first < end;
         ++it) {
      blocks.push_back(it->first);
      entries += it->second.size();
    }
  }
  if (blocks.empty()) return {};
  std::sort(blocks.begin(), blocks.end());  // segments come in any order
  Wide& w = wide_;
  make_room(device_, w.blocks, blocks.size());
  make_room(device_, w.ends, blocks.size());
  make_room(device_, w.largest, blocks.size());
  make_room(device_, w.means, blocks.size() * kBlock);
  make_room(device_, w.entries, entries * kBlock);
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const SideEntry& entry : side_of(blocks[i]))
      std::copy(entry.values.begin(), entry.values.end(),
                w.entries.data() + std::size_t{end++} * kBlock);
    w.blocks.data()[i] = blocks[i];
    w.ends.data()[i] = end;
  }
  const auto count = static_cast<std::uint32_t>(blocks.size());
  queue.wide_means({.totals = sums_.data(),
                    .exponents = exponents,
                    .blocks = w.blocks.data(),
                    .ends = w.ends.data(),
                    .entries = w.entries.data(),
                    .count = count,
                    .micro_batches = micro_batches_,
                    .means = w.means.data(),
                    .largest = w.largest.data()});
  return {w.blocks.data(), w.means.data(), w.largest.data(), count};
}

void Totals::mean(std::uint32_t block, std::int16_t exponent, std::span<float> mean) const {
  STARLING_CHECK(block < layout_.blocks());
  STARLING_CHECK(mean.size() == kBlock);
  std::array<std::int32_t, kBlock> totals;
  sums_.copy_out(*queue_, std::uint64_t{block} * kBlock, totals);
  queue_->wait();
  const std::span<const SideEntry> side = side_of(block);
  if (side.empty()) {
    block_kernels().mean(totals.data(), std::ldexp(1.0, exponent), micro_batches_, mean.data());
    return;
  }
  for (std::uint32_t i = 0; i < kBlock; ++i) {
    WideSum sum;
    sum.add_total(totals[i], exponent);
    for (const SideEntry& entry : side) sum.add(entry.values[i]);
    mean[i] = sum.mean(micro_batches_);
  }
}

void Totals::clear() {
  added_here_.assign(layout_.segments(), false);
  std::fill(lanes_.begin(), lanes_.end(), ProofLanes{});
  side_.clear();
  side_entries_ = 0;
  pending_.reset();
}

}  // namespace starling::kernels
