#include "collectives/reduce.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/add.h"
#include "collectives/pack.h"
#include "collectives/ranges.h"
#include "core/base/check.h"

namespace starling::collectives {

namespace {
// Flag of a kSide frame: the sender has no more side entries for this receiver in this step.
constexpr std::uint8_t kLastSide = 1;
constexpr std::uint32_t kSumBits = 32;
}  // namespace

Reduce::Reduce(const Sums& sums, Holders holders, const ReduceOptions& options)
    : sums_(sums),
      holders_(std::move(holders)),
      options_(options),
      contributors_(static_cast<std::uint32_t>(std::ranges::count(options.contributors, true))),
      contributes_(options.contributors.at(options.self)),
      segments_(sums.layout->segments()),
      seen_(options.world, std::vector<bool>(sums.layout->segments())),
      contributed_(sums.layout->buckets()),
      side_complete_(options.world),
      bucket_segments_(sums.layout->bucket(0).count),
      buckets_missing_(sums.layout->buckets()) {
  const Layout& layout = *sums_.layout;
  STARLING_CHECK(options.self < options.world);
  STARLING_CHECK(options.contributors.size() == options.world && contributors_ > 0);
  STARLING_CHECK(options.on_device || sums.accumulators.size() == layout.elements());
  STARLING_CHECK(sums.accumulator_lanes.size() == layout.segments());
  STARLING_CHECK(options.on_device || sums.totals.size() == layout.elements());
  STARLING_CHECK(sums.total_lanes.size() == layout.segments());
  STARLING_CHECK(sums.received != nullptr);
  check_holders(layout, *holders_, options.world);
  sums_.received->clear();
  // In a step on the device transport frames carry lanes alone, which are short: a bucket's go
  // together.
  ranges_ = equal_ranges(layout, *holders_, options.on_device ? ~std::size_t{0} : kFrameBytes);

  std::vector<bool> holds_any(options.world);
  for (SegmentId s = 0; s < layout.segments(); ++s) {
    for (const Rank rank : (*holders_)[s]) holds_any[rank] = true;
    if (!holds_segment(options.self, s)) continue;
    const bool owner = (*holders_)[s].front() == options.self;
    segments_[s].role = owner ? Role::kOwner : Role::kReplica;
    segments_[s].missing = owner ? contributors_ : 0;
    ++totals_missing_;
    side_entries_max_ +=
        std::uint64_t{layout.block_count(s)} * layout.uses(s) * options.complete.micro_batches();
  }
  for (const Rank rank : others(options.self, options.world))
    if (holds_any[rank] || options.on_device) side_targets_.push_back(rank);
  sides_missing_ = holds_any[options.self] || options.on_device ? options.world - 1 : 0;
}

Result<> Reduce::start(std::span<const SideEntry> side, FrameSender& sender) {
  for (std::uint32_t b = 0; b < sums_.layout->buckets(); ++b) {
    STARLING_TRY(contribute(b, sender));
  }
  return end_share(side, sender);
}

Result<> Reduce::contribute(std::uint32_t bucket, FrameSender& sender) {
  STARLING_CHECK(bucket < contributed_.size());
  STARLING_CHECK(!contributed_[bucket]);
  contributed_[bucket] = true;
  --buckets_missing_;
  if (!contributes_) return finish_if_complete();
  const SegmentRange all = sums_.layout->bucket(bucket);
  const auto before = [](const SegmentRange& range, SegmentId s) { return range.first < s; };
  auto range = std::lower_bound(ranges_.begin(), ranges_.end(), all.first, before);
  for (; range != ranges_.end() && range->first < all.past(); ++range) {
    const Rank owner = (*holders_)[range->first].front();
    if (owner == options_.self) {
      STARLING_TRY(add_own(*range, sender));
    } else {
      send_sums(*range, {&owner, 1}, FrameKind::kContribution, sender);
    }
  }
  return finish_if_complete();
}

Result<> Reduce::end_share(std::span<const SideEntry> side, FrameSender& sender) {
  STARLING_CHECK(!share_ended_);
  share_ended_ = true;
  for (const SideEntry& entry : side) {
    STARLING_CHECK(entry.block < sums_.layout->blocks());
    if (segments_[sums_.layout->segment_of(entry.block)].role != Role::kNone)
      take_side_entry(entry);
  }
  for (const Rank to : side_targets_) send_side_entries(side, to, sender);
  return finish_if_complete();
}

Result<> Reduce::on_frame(Rank from, const Frame& frame, FrameSender& sender) {
  STARLING_CHECK(from < options_.world);
  STARLING_CHECK(from != options_.self);
  if (frame.header.version != options_.version) return malformed(from, "another step's");
  const FrameKind kind = frame.header.kind;
  if (!takes(kind)) return malformed(from, "of a kind that is not used here");
  auto taken = kind == FrameKind::kContribution ? on_contribution(from, frame, sender)
               : kind == FrameKind::kTotal      ? on_total(from, frame)
                                                : on_side(from, frame);
  if (!taken) return taken;
  return finish_if_complete();
}

Result<> Reduce::on_contribution(Rank from, const Frame& frame, FrameSender& sender) {
  if (!options_.contributors[from]) return malformed(from, "of a rank without a share");
  STARLING_TRY(range, take_range(from, frame));
  const ByteView bytes = *frame.payload;
  const std::size_t lanes_size = range.count * sizeof(ProofLanes);
  ByteReader lanes(bytes.first(lanes_size));
  ByteView sums = bytes.subspan(lanes_size);
  for (const SegmentId s : range) {
    const auto of_segment = lanes.get<ProofLanes>();
    ByteView words;
    if (packed()) {
      STARLING_TRY(take_packed(from, sums, s, of_segment.micro_batches));
      words = as_bytes(std::span<const std::int32_t>(unpacked_));
    } else if (!options_.on_device) {
      words = sums.first(sums_.layout->bytes_of(s, What::kSums));
      sums = sums.subspan(words.size());
    }
    add(s, words, of_segment);
  }
  if (!sums.empty()) return malformed(from, "longer than its segments");
  return one_more(range, sender);
}

Result<> Reduce::take_packed(Rank from, ByteView& bytes, SegmentId s, std::uint64_t count) {
  if (count > wanted(s).micro_batches)
    return malformed(from, "of more micro-batches than there are");
  unpacked_.resize(sums_.layout->elements(s));
  if (!unpack(bytes, width_of_sums(sums_.grid_bits, count), unpacked_))
    return malformed(from, "with packed sums that are none of its micro-batches");
  return ok();
}

void Reduce::add(SegmentId s, ByteView in, const ProofLanes& lanes) {
  ProofLanes& total_lanes = sums_.total_lanes[s];
  const bool begun = std::exchange(segments_[s].begun, true);
  // The own sums join on the way: no copy of their own (add_own).
  const bool own_joins = !begun && contributed(s) && contributors_ > 1;
  if (own_joins) total_lanes = sums_.accumulator_lanes[s];
  if (begun || own_joins)
    total_lanes += lanes;
  else
    total_lanes = lanes;
  if (options_.on_device) return;
  const std::size_t first = sums_.layout->first_element(s);
  const auto total = sums_.totals.subspan(first, sums_.layout->elements(s));
  if (begun)
    add_sums(total, total, in);
  else if (own_joins)
    add_sums(total, sums_.accumulators.subspan(first, total.size()), in);
  else
    copy_sums(total, in);
}

// If there is nothing to add to, the own sums wait in the accumulators for the first frame.
Result<> Reduce::add_own(SegmentRange range, FrameSender& sender) {
  for (const SegmentId s : range) {
    std::span<const std::int32_t> own;
    if (!options_.on_device)
      own = sums_.accumulators.subspan(sums_.layout->first_element(s), sums_.layout->elements(s));
    if (segments_[s].begun || contributors_ == 1) add(s, as_bytes(own), sums_.accumulator_lanes[s]);
  }
  return one_more(range, sender);
}

// Counts a contribution to owned segments and sends the totals that it completes to the replicas.
Result<> Reduce::one_more(SegmentRange range, FrameSender& sender) {
  const auto& holders = *holders_;
  SegmentRange whole{range.first, 0};  // complete ones with equal holders, not sent yet
  const auto flush = [&](SegmentId next) {
    if (whole.count > 0)
      send_sums(whole, std::span(holders[whole.first]).subspan(1), FrameKind::kTotal, sender);
    whole = {next, 0};
  };
  for (const SegmentId s : range) {
    STARLING_CHECK(segments_[s].missing > 0);
    const bool complete = --segments_[s].missing == 0;
    if (whole.count > 0 && (!complete || holders[s] != holders[whole.first])) flush(s);
    if (!complete) {
      whole = {s + 1, 0};
      continue;
    }
    // A wrong sum must not reach the replicas; the side lanes are looked at when all is there.
    if (!sums_complete(sums_.total_lanes[s], wanted(s))) return lanes_wrong(s);  // R3
    --totals_missing_;
    ++whole.count;
  }
  flush(range.past());
  return ok();
}

Result<> Reduce::on_total(Rank from, const Frame& frame) {
  STARLING_TRY(range, take_range(from, frame));
  const ByteView bytes = *frame.payload;
  const std::size_t lanes_size = range.count * sizeof(ProofLanes);
  std::memcpy(sums_.total_lanes.data() + range.first, bytes.data(), lanes_size);
  if (packed()) {
    ByteView sums = bytes.subspan(lanes_size);
    for (const SegmentId s : range) {
      const auto to =
          sums_.totals.subspan(sums_.layout->first_element(s), sums_.layout->elements(s));
      // As wide as it comes: what damage in a worker's memory makes of a total, its lanes show.
      if (!unpack(sums, kSumBits, to)) return malformed(from, "with packed sums that are none");
    }
    if (!sums.empty()) return malformed(from, "longer than its segments");
  } else if (!options_.on_device) {
    copy_sums(sums_.totals.subspan(sums_.layout->first_element(range.first),
                                   sums_.layout->elements(range)),
              bytes.subspan(lanes_size));
  }
  totals_missing_ -= range.count;
  return ok();
}

// The segments of a contribution to segments that we own, or of a total from their owner; each
// comes once from a peer.
Result<SegmentRange> Reduce::take_range(Rank from, const Frame& frame) {
  const FrameHeader& header = frame.header;
  const Layout& layout = *sums_.layout;
  if (!fits(layout, header.first, header.count)) return malformed(from, "of no segments");
  const SegmentRange range{header.first, header.count};
  if ((header.flags & kOnDevice) != (flags() & kOnDevice))
    return malformed(from, "of the other transport");
  if ((header.flags & kPacked) != (flags() & kPacked))
    return malformed(from, packed() ? "whose sums are not packed" : "whose sums are packed");
  const std::size_t size = frame.payload->size(), lanes = range.count * sizeof(ProofLanes);
  if (packed() ? size < lanes : size != frame_bytes(range))
    return malformed(from, "not as long as its segments");
  const bool total = header.kind == FrameKind::kTotal;
  for (const SegmentId s : range) {
    if (segments_[s].role != (total ? Role::kReplica : Role::kOwner))
      return malformed(from, "of segments that are not for this rank");
    if (total && (*holders_)[s].front() != from) return malformed(from, "not from the owner");
    if (seen_[from][s]) return malformed(from, "of segments that it sent before");
    seen_[from][s] = true;
  }
  return range;
}

std::size_t Reduce::frame_bytes(SegmentRange range) const {
  const std::size_t sums = options_.on_device ? 0 : sums_.layout->bytes_of(range, What::kSums);
  return range.count * sizeof(ProofLanes) + sums;
}

Result<> Reduce::on_side(Rank from, const Frame& frame) {
  if (side_complete_[from] || sides_missing_ == 0) return malformed(from, "one too many");
  const ByteView bytes = *frame.payload;
  if (bytes.size() != frame.header.count * sizeof(SideEntry))
    return malformed(from, "not as long as its entries");
  ByteReader reader(bytes);
  for (std::uint32_t i = 0; i < frame.header.count; ++i) {
    const auto entry = reader.get<SideEntry>();
    const Layout& layout = *sums_.layout;
    if (entry.block >= layout.blocks() || entry.micro_batch >= options_.complete.micro_batches() ||
        entry.use >= layout.uses(layout.segment_of(entry.block)))
      return malformed(from, "with an entry of no block or micro-batch");
    if (segments_[layout.segment_of(entry.block)].role == Role::kNone)
      return malformed(from, "with an entry that is not for this rank");
    if (sums_.received->size() >= side_entries_max_)
      return malformed(from, "with more entries than there can be");
    take_side_entry(entry);
  }
  if (frame.header.flags & kLastSide) {
    side_complete_[from] = true;
    --sides_missing_;
  }
  return ok();
}

void Reduce::take_side_entry(const SideEntry& entry) {
  Segment& known = segments_[sums_.layout->segment_of(entry.block)];
  ++known.side_entries;
  known.side_hashes += side_entry_hash(entry);
  sums_.received->push_back(entry);
}

void Reduce::send_sums(SegmentRange range, std::span<const Rank> to, FrameKind kind,
                       FrameSender& sender) const {
  const bool total = kind == FrameKind::kTotal;
  const std::span<const std::int32_t> sums = total ? sums_.totals : sums_.accumulators;
  const std::span<const ProofLanes> lanes = total ? sums_.total_lanes : sums_.accumulator_lanes;
  FrameHeader header;
  header.kind = kind;
  header.version = options_.version;
  header.first = range.first;
  header.count = range.count;
  Payload payload;
  payload.append_borrowed(as_bytes(lanes.subspan(range.first, range.count)));
  header.flags = flags();
  if (packed()) {
    Bytes bytes;
    for (const SegmentId s : range)
      pack(sums.subspan(sums_.layout->first_element(s), sums_.layout->elements(s)), bytes);
    payload.append(share(std::move(bytes)));
  } else if (!options_.on_device) {
    payload.append_borrowed(as_bytes(
        sums.subspan(sums_.layout->first_element(range.first), sums_.layout->elements(range))));
  }
  sender.send_all(to, header, payload);
}

void Reduce::send_side_entries(std::span<const SideEntry> side, Rank to,
                               FrameSender& sender) const {
  constexpr std::uint32_t kEntriesMax = kFrameBytes / sizeof(SideEntry);
  FrameHeader header;
  header.kind = FrameKind::kSide;
  header.version = options_.version;
  ByteWriter entries;
  for (const SideEntry& entry : side) {
    if (!holds_segment(to, sums_.layout->segment_of(entry.block))) continue;
    if (header.count == kEntriesMax) {
      sender.send(to, header, share(std::exchange(entries, {}).take()));
      header.count = 0;
    }
    entries.put(entry);
    ++header.count;
  }
  header.flags = kLastSide;  // also when there is none: it says that none is missing
  sender.send(to, header, share(std::move(entries).take()));
}

Result<> Reduce::finish_if_complete() {
  if (buckets_missing_ > 0 || !share_ended_ || totals_missing_ > 0 || sides_missing_ > 0)
    return ok();
  for (SegmentId s = 0; s < segments_.size(); ++s) {
    const Segment& known = segments_[s];
    if (known.role != Role::kNone &&
        !accepted(sums_.total_lanes[s], wanted(s), known.side_entries, known.side_hashes))
      return lanes_wrong(s);  // R3
  }
  done_ = true;
  return ok();
}

Error Reduce::lanes_wrong(SegmentId segment) const {
  const ProofLanes& lanes = sums_.total_lanes[segment];
  const Segment& known = segments_[segment];
  const auto n = [](std::uint64_t value) { return std::to_string(value); };
  return {Code::kCorrupt, "the proof lanes of segment " + n(segment) + " do not hold; " +
                              n(lanes.micro_batches) + " micro-batches added, expected " +
                              n(wanted(segment).micro_batches) + "; " + n(known.side_entries) +
                              " side entries received, expected " + n(lanes.side_entries) +
                              "; or their hashes differ; step " + n(options_.version)};
}

Error Reduce::malformed(Rank from, const char* what) const {
  return {Code::kCorrupt, std::string("a frame ") + what + "; reduce frame from rank " +
                              std::to_string(from) + ", step " + std::to_string(options_.version)};
}

bool Reduce::holds_segment(Rank rank, SegmentId segment) const {
  const auto& holders = (*holders_)[segment];
  return std::find(holders.begin(), holders.end(), rank) != holders.end();
}

}  // namespace starling::collectives
