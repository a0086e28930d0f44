#include "tests/sim/store.h"

#include <algorithm>

#include "core/base/weight.h"

namespace starling::sim {
namespace {
std::uint64_t weigh(std::span<const std::int32_t> sums, SegmentId s) {
  std::uint64_t sum = 0;
  const std::size_t first = std::size_t{s} * kBlock;
  for (std::size_t i = first; i < first + kBlock; ++i)
    sum += weight_of(static_cast<std::uint32_t>(i)) *
           static_cast<std::uint64_t>(std::int64_t{sums[i]});
  return sum;
}
}  // namespace

Store::Store(const Numbers& n) : numbers(n) {
  const Layout& layout = numbers.layout();
  accumulators.resize(layout.elements());
  lanes.resize(layout.segments());
  totals.resize(layout.elements());
  total_lanes.resize(layout.segments());
  accepted.resize(layout.segments());
  held.resize(layout.segments());
  states.resize(layout.segments());
  params.resize(layout.segments());
  params_sums.resize(layout.segments());
  params_versions.assign(layout.segments(), kNoVersion);
}

collectives::Sums Store::sums() {
  return {&numbers.layout(), accumulators, lanes, totals, total_lanes, &received};
}

void Store::add(const Contribution& c, Version version, PartId p) {
  const Layout& layout = numbers.layout();
  const Part& part = layout.parts()[p];
  adding = version;
  for (std::uint64_t i = part.first(); i < part.first() + part.elements(); ++i)
    accumulators[i] += c.sums[i];
  for (const SegmentId s : part.segments) lanes[s].weighted_sum += weigh(c.sums, s);
  for (const SegmentId s : part.segments)
    for (std::uint32_t use = 0; use < part.uses; ++use) {
      ++lanes[s].micro_batches;
      lanes[s].micro_batch_hashes +=
          micro_batch_hash(numbers.seed(), version, c.row.micro_batch, use);
    }
  for (const SideEntry& entry : c.side) {
    const SegmentId s = layout.segment_of(entry.block);
    if (layout.part_of(s) != p) continue;
    ++lanes[s].side_entries;
    lanes[s].side_hashes += side_entry_hash(entry);
    side.push_back(entry);
  }
}

void Store::count_again(PartId p) {
  const Part& part = numbers.layout().parts()[p];
  if (part.uses == 1) return;
  for (const SegmentId s : part.segments) ++lanes[s].micro_batches;
}

bool Store::added_to(SegmentRange segments, std::uint32_t micro_batches) const {
  for (const SegmentId s : segments)
    if (lanes[s].micro_batches != std::uint64_t{micro_batches} * numbers.layout().uses(s))
      return false;
  return true;
}

void Store::set_params(SegmentId s, const SegmentParams& p, Version version) {
  if (params_versions[s] == version) return;
  params[s] = p;
  params_sums[s] = Numbers::hash_of({&p, 1});
  params_versions[s] = version;
}

bool Store::has_params(SegmentRange segments, Version version) const {
  return std::all_of(segments.begin(), segments.end(),
                     [&](SegmentId s) { return params_versions[s] == version; });
}

bool Store::params_intact(Version version) const {
  for (SegmentId s = 0; s < params.size(); ++s) {
    const bool counts =
        version == kNoVersion ? params_versions[s] != kNoVersion : params_versions[s] == version;
    if (counts && Numbers::hash_of({&params[s], 1}) != params_sums[s]) return false;
  }
  return true;
}

void Store::clear_accumulators() {
  adding = kNoVersion;
  std::fill(accumulators.begin(), accumulators.end(), 0);
  std::fill(lanes.begin(), lanes.end(), ProofLanes{});
  side.clear();
}

void Store::clear_totals() {
  accepted_version = kNoVersion;
  std::fill(accepted.begin(), accepted.end(), false);
  std::fill(totals.begin(), totals.end(), 0);
  std::fill(total_lanes.begin(), total_lanes.end(), ProofLanes{});
  received.clear();
}

std::vector<SideEntry> Store::side_of(SegmentId segment) const {
  std::vector<SideEntry> out;
  for (const SideEntry& entry : received)
    if (numbers.layout().segment_of(entry.block) == segment) out.push_back(entry);
  return out;
}

std::span<const std::int32_t> Store::total_of(SegmentId segment) const {
  return std::span(totals).subspan(std::size_t{segment} * kBlock, kBlock);
}

std::optional<SegmentId> Store::wrong_total(const std::vector<std::vector<Rank>>& holders,
                                            Rank self) const {
  for (SegmentId s = 0; s < holders.size(); ++s)
    if (std::ranges::find(holders[s], self) != holders[s].end() &&
        weigh(totals, s) != total_lanes[s].weighted_sum)
      return s;
  return std::nullopt;
}

std::uint64_t Store::total_hash(SegmentId segment) const {
  return numbers.total_hash(total_of(segment), side_of(segment));
}

}  // namespace starling::sim
