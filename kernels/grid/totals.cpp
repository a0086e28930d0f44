#include "kernels/grid/totals.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/check.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/quantise.h"

namespace starling::kernels {
namespace {

Error corrupt(const SideEntry& entry, const std::string& what) {
  return Error(Code::kCorrupt, "side entry of block " + std::to_string(entry.block) +
                                   ", micro-batch " + std::to_string(entry.micro_batch) + ": " +
                                   what);
}

}  // namespace

Totals::Totals(const Layout& layout, MicroBatch micro_batches)
    : layout_(layout),
      micro_batches_(micro_batches),
      sums_(layout.elements()),
      lanes_(layout.segments()) {
  STARLING_CHECK(micro_batches >= 1);
}

void Totals::prepare(SegmentId segment, const std::stop_token& stop) const {
  sums_.prepare(std::uint64_t{layout_.first_block(segment)} * kBlock,
                std::uint64_t{layout_.block_count(segment)} * kBlock, stop);
}

bool Totals::intact(SegmentId segment) const {
  const std::uint32_t first = layout_.first_block(segment);
  const auto sums = sums_.part(std::uint64_t{first} * kBlock,
                               std::uint64_t{layout_.block_count(segment)} * kBlock);
  return weigh(first, sums) == lanes_[segment].weighted_sum;
}

Result<> Totals::add_side(const SideEntry& entry) {
  if (entry.block >= layout_.blocks())
    return corrupt(entry, "the layout has " + std::to_string(layout_.blocks()) + " blocks");
  if (entry.micro_batch >= micro_batches_)
    return corrupt(entry, "a step has " + std::to_string(micro_batches_) + " micro-batches");
  const auto used = entry.values.begin() + layout_.used(entry.block);
  if (!std::all_of(entry.values.begin(), used, [](float x) { return std::isfinite(x); }))
    return corrupt(entry, "a value is not finite");
  if (!std::all_of(used, entry.values.end(),
                   [](float x) { return std::bit_cast<std::uint32_t>(x) == 0; }))
    return corrupt(entry, "padding is not zero");
  auto& entries = side_[entry.block];
  for (const SideEntry& other : entries)
    if (other.micro_batch == entry.micro_batch) return corrupt(entry, "received twice");
  entries.push_back(entry);
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

void Totals::mean(std::uint32_t block, std::int16_t exponent, std::span<float> mean) const {
  STARLING_CHECK(block < layout_.blocks());
  STARLING_CHECK(mean.size() == kBlock);
  const std::int32_t* totals = sums_.data() + std::uint64_t{block} * kBlock;
  const std::span<const SideEntry> side = side_of(block);
  if (side.empty()) {
    const double scale = std::ldexp(1.0, exponent);
    block_kernels().mean(totals, scale, micro_batches_, mean.data());
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
  std::fill(lanes_.begin(), lanes_.end(), ProofLanes{});
  side_.clear();
  pending_.reset();
}

}  // namespace starling::kernels
