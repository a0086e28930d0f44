#pragma once
// Reduce is one step's reduction: it brings the sums of all members to every holder of each segment
// (docs/design.md, section 5, step 2; why direct and no ring: docs/decisions/001-direct-reduce.md).
//
// Each contributor sends its sums of a segment to the owner, which adds integers and sends the total
// to the replicas; a rank that computed nothing sends no sums (R18). In a step on the device
// transport the sums go otherwise (device_reduce.h), and the same frames carry their lanes alone.
// Side entries go from their maker to every holder, in bounded frames; the last of them, which may
// have none, says that the sender's share has ended. The order of arrival does not matter. What is
// summed, and when, is decided in elastic/.

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/frame_sender.h"
#include "collectives/sums.h"
#include "core/base/result.h"

namespace starling::collectives {

struct ReduceOptions {
  Rank self = 0;
  std::uint32_t world = 1;
  Version version = 0;  // the step
  // By rank: who adds to the sums of this step (R18). At least one does; another's accumulators are
  // zeros and stay where they are, and a contribution from it is an error.
  std::vector<bool> contributors;
  CompleteLanes complete;  // what an accepted total shows (R3)
  bool on_device =
      false;  // sums go over the device transport: they are neither read nor written here
};

// Threads: one at a time; the caller serialises. Ownership: borrows what `sums` points at, until
// it is destroyed, and for the frames that it sent until they have arrived or their sender
// stopped.
//
// Construct it when the totals of the step before have been applied: from then on frames of faster
// peers may be handed in and are added to `totals` at once, before the own sums are final.
class Reduce {
 public:
  Reduce(const Sums& sums, Holders holders, const ReduceOptions& options);

  // Sends the own contribution to all segments. Once. `side`: as in end_share().
  Result<> start(std::span<const SideEntry> side, FrameSender& sender);
  // Sends the own contribution bucket by bucket in any order, each once, as the last backward ends.
  Result<> contribute(std::uint32_t bucket, FrameSender& sender);
  // Sends the own side entries, any order, all of them. Once, before or after the last bucket.
  Result<> end_share(std::span<const SideEntry> side, FrameSender& sender);

  static bool takes(FrameKind kind) {
    return kind == FrameKind::kContribution || kind == FrameKind::kSide ||
           kind == FrameKind::kTotal;
  }
  // Takes frames of this step and of the kinds above, of any rank, in each connection's order.
  // Errors, here and in those above; after one the reduction is spent:
  //   kCorrupt  a malformed or unexpected frame, naming the peer; or everything arrived and the
  //             proof lanes do not hold (R3), naming the segment and the counts
  // Totals are then unspecified, accumulators untouched (R2): another Reduce may start afresh.
  Result<> on_frame(Rank from, const Frame& frame, FrameSender& sender);

  // Own contribution sent, if any, all totals of held segments accepted (R3), all side entries there.
  bool done() const { return done_; }
  // The shares of all ranks have ended, own too. In a step on the device transport each rank hears
  // it from all others, also a rank that holds nothing.
  bool shares_ended() const { return share_ended_ && sides_missing_ == 0; }
  Version version() const { return options_.version; }

 private:
  enum class Role : std::uint8_t { kNone, kReplica, kOwner };
  struct Segment {  // what this rank knows of one segment
    Role role = Role::kNone;
    bool begun = false;              // totals hold at least one contribution
    std::uint32_t missing = 0;       // contributions still to come, the own one too; owner only
    std::uint64_t side_entries = 0;  // received, own too
    std::uint64_t side_hashes = 0;
  };

  Result<> on_contribution(Rank from, const Frame& frame, FrameSender& sender);
  Result<> on_total(Rank from, const Frame& frame);
  Result<> on_side(Rank from, const Frame& frame);
  Result<SegmentRange> take_range(Rank from, const Frame& frame);
  void add(SegmentId segment, ByteView sums, const ProofLanes& lanes);
  std::size_t frame_bytes(SegmentRange range) const;  // of sums that are no packed ones
  bool packed() const { return sums_.grid_bits > 0 && !options_.on_device; }
  std::uint8_t flags() const { return options_.on_device ? kOnDevice : packed() ? kPacked : 0; }
  // Takes a contribution's packed sums of a segment to unpacked_, those of so many micro-batches and uses.
  Result<> take_packed(Rank from, ByteView& bytes, SegmentId segment, std::uint64_t count);
  Result<> add_own(SegmentRange range, FrameSender& sender);
  Result<> one_more(SegmentRange range, FrameSender& sender);
  void take_side_entry(const SideEntry& entry);
  void send_sums(SegmentRange range, std::span<const Rank> to, FrameKind kind,
                 FrameSender& sender) const;
  void send_side_entries(std::span<const SideEntry> side, Rank to, FrameSender& sender) const;
  Result<> finish_if_complete();
  Error lanes_wrong(SegmentId segment) const;
  Error malformed(Rank from, const char* what) const;
  bool holds_segment(Rank rank, SegmentId segment) const;
  const ProofLanes& wanted(SegmentId segment) const {
    return options_.complete.of(sums_.layout->uses(segment));
  }
  // Whether the own sums of the segment are final, and not nothing.
  bool contributed(SegmentId segment) const {
    return contributes_ && contributed_[segment / bucket_segments_];
  }

  const Sums sums_;
  const Holders holders_;
  const ReduceOptions options_;
  const std::uint32_t contributors_;     // how many
  const bool contributes_;               // this rank
  std::vector<SegmentRange> ranges_;     // of all segments
  std::vector<Segment> segments_;        // per segment
  std::vector<std::vector<bool>> seen_;  // per rank, per segment: contribution or total arrived
  std::vector<bool> contributed_;        // per bucket
  std::vector<bool> side_complete_;      // per rank: its last side frame arrived
  std::vector<Rank> side_targets_;       // other ranks that hold something
  std::uint64_t side_entries_max_ = 0;   // M by every use per held block
  std::uint32_t bucket_segments_ = 1;
  std::uint32_t buckets_missing_ = 0;   // own contributions still to send
  std::uint32_t totals_missing_ = 0;    // held segments whose total is not there
  std::uint32_t sides_missing_ = 0;     // ranks whose side entries are not complete
  std::vector<std::int32_t> unpacked_;  // of one segment
  bool share_ended_ = false;
  bool done_ = false;
};

}  // namespace starling::collectives
