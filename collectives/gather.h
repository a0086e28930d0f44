#pragma once
// Gather brings one version's working parameters and exponents to all ranks (docs/design.md,
// section 5, step 5): a holder makes its own, all others get the owner's. Replicas get the owner's
// checksums, so all copies are compared. Every frame carries the record of the step before.

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/frame_sender.h"
#include "collectives/sums.h"
#include "core/base/result.h"

namespace starling::collectives {

// GatherSource gives and takes the bytes, and decides how they are encoded.
class GatherSource {
 public:
  virtual ~GatherSource() = default;
  // Makes the working parameters of segments that this rank holds, already at this version, from
  // its own copy.
  virtual void publish(Version version, SegmentRange segments) = 0;
  // Encodes published segments: their parameters, or a checksum of 64 bits for each.
  virtual Bytes params(SegmentRange segments) = 0;
  virtual std::vector<std::uint64_t> checksums(SegmentRange segments) = 0;
  // Takes parameters of segments not held here. The bytes come from another process: check them.
  virtual Result<> set_params(Version version, SegmentRange segments, ByteView bytes) = 0;
};

struct GatherOptions {
  Rank self = 0;
  std::uint32_t world = 1;
  Version version = 0;  // kNoVersion: a joiner, which owns nothing; the first frame tells
  Bytes record;         // opaque, in front of every frame; at most kRecordBytesMax; equal on all
  bool on_device =
      false;  // frames say so: params() are proofs of what goes over the device transport
  std::size_t frame_bytes = kFrameBytes;  // of sums, of the segments in one frame
};

// Threads: one at a time; the caller serialises. Ownership: borrows `layout` and `source`.
class Gather {
 public:
  static constexpr std::size_t kRecordBytesMax = 64 * 1024;

  // `holders`: the ranks with a copy at the gather's version; a move's target of this step has none
  // yet.
  Gather(const Layout& layout, Holders holders, GatherOptions options, GatherSource& source);

  // Publishes all segments that this rank holds and sends those that it owns, range by range. Once, and
  // before any frame but a joiner's.
  void start(FrameSender& sender);

  static bool takes(FrameKind kind) { return kind == FrameKind::kGather; }
  // Errors; after one the gather is spent:
  //   kCorrupt  malformed, not from the owner, twice, another version or another record; names the
  //             peer. Also what set_params returns.
  Result<> on_frame(Rank from, const Frame& frame);

  // The held segments were published; for all segments of others the parameters came or, where they
  // are held here, checksums equal to those of the own copies.
  bool done() const { return started_ && segments_missing_ == 0 && !differs_; }
  // A segment whose copy here differs from the owner's.
  std::optional<SegmentId> differs() const { return differs_; }
  Version version() const { return options_.version; }
  // The record that a joiner took from the first frame; empty before that.
  ByteView record() const { return options_.record; }

 private:
  bool held(SegmentId segment) const;
  void send(SegmentRange range, FrameSender& sender);
  Result<> compare(SegmentRange range, Rank from, ByteView checksums);
  Error malformed(Rank from, const char* what) const;

  const Layout& layout_;
  const Holders holders_;
  GatherOptions options_;
  GatherSource& source_;
  SharedBytes prefix_;              // length of the record and the record
  std::vector<SegmentRange> held_;  // of this rank
  std::vector<bool> arrived_;       // per segment
  bool started_ = false;
  std::uint32_t segments_missing_ = 0;
  bool first_seen_ = false;
  std::optional<SegmentId> differs_;
};

}  // namespace starling::collectives
