#pragma once
// Working parameters and exponents of one version, from the owners to everybody
// (docs/design.md, section 5, step 5). Every frame carries the record of the step before.

#include <cstdint>
#include <vector>

#include "collectives/sums.h"
#include "collectives/transport.h"
#include "core/base/result.h"

namespace starling::collectives {

// Where the bytes come from and go to; how they are encoded is the caller's.
class GatherSource {
 public:
  virtual ~GatherSource() = default;
  // Segments that this rank owns, already at the gather's version: theirs become the working
  // parameters here.
  virtual void publish(SegmentRange segments) = 0;
  // What to send for them, afterwards.
  virtual Bytes params(SegmentRange segments) = 0;
  // What came for segments that others own. The bytes come from another process: check them.
  virtual Result<> set_params(Version version, SegmentRange segments, ByteView bytes) = 0;
};

struct GatherOptions {
  Rank self = 0;
  std::uint32_t world = 1;
  Version version = 0;  // kNoVersion: a joiner, who owns nothing; the first frame tells
  Bytes record;         // opaque, in front of every frame; at most kRecordBytesMax; equal on all
};

// Threads: one at a time; the caller serialises. Ownership: borrows `layout` and `source`.
class Gather {
 public:
  static constexpr std::size_t kRecordBytesMax = 64 * 1024;

  Gather(const Layout& layout, Holders holders, GatherOptions options, GatherSource& source);

  // Publishes and sends all segments that this rank owns. Once.
  void start(Transport& transport);
  // The same, bucket by bucket in any order, each once.
  void publish(std::uint32_t bucket, Transport& transport);

  static bool takes(FrameKind kind) { return kind == FrameKind::kGather; }
  // Errors; after one the gather is spent:
  //   kCorrupt  malformed, not from the owner, twice, another version or another record; names the
  //             peer. Also what set_params returns.
  Result<> on_frame(Rank from, const Frame& frame);

  // The own segments were sent and all others arrived.
  bool done() const { return buckets_missing_ == 0 && segments_missing_ == 0; }
  Version version() const { return options_.version; }
  // A joiner's: empty until the first frame.
  ByteView record() const { return options_.record; }

 private:
  Error malformed(Rank from, const char* what) const;

  const Layout& layout_;
  const Holders holders_;
  GatherOptions options_;
  GatherSource& source_;
  SharedBytes prefix_;             // length of the record and the record
  std::vector<SegmentRange> own_;  // in pieces
  std::vector<bool> arrived_;      // per segment
  std::vector<bool> published_;    // per bucket
  std::uint32_t buckets_missing_ = 0;
  std::uint32_t segments_missing_ = 0;
  bool first_seen_ = false;
};

}  // namespace starling::collectives
