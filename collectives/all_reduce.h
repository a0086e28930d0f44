#pragma once
// All-reduce of int32: every rank gets the sum over all ranks. For embedders, tools and the bench;
// a training step uses reduce.h and gather.h, which know about owners and replicas.
//
// Every rank sends a short array to all others in one hop. Longer arrays are a reduce-scatter and
// an all-gather over the mesh: rank r adds the r-th slice and sends the sum to all, in pieces, so
// that both halves overlap. 2 (W-1)/W n * 4 bytes out and in per rank, two hops.

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/frame_sender.h"
#include "core/base/result.h"

namespace starling::collectives {

struct AllReduceOptions {
  Rank self = 0;
  std::uint32_t world = 1;
  Version version = 0;  // counts the operations of a connection
  std::size_t piece_bytes = 256 * 1024;
  std::size_t one_hop_bytes = 8 * 1024;  // up to this each rank sends everything to all others
};

// Threads: one at a time; the caller serialises. Ownership: borrows `in` and `out` until it is
// destroyed and all ranks are done.
class AllReduce {
 public:
  // in, out  [n], the same n and options on every rank, not overlapping. `in` is never written.
  //          Sums wrap modulo 2^32.
  AllReduce(std::span<const std::int32_t> in, std::span<std::int32_t> out,
            const AllReduceOptions& options);

  // Sends the own part. Once; frames of others may come before: `in` is final at construction.
  void start(FrameSender& sender);
  static bool takes(FrameKind kind) {
    return kind == FrameKind::kContribution || kind == FrameKind::kTotal;
  }
  // Errors: kCorrupt  malformed, twice or unexpected; names the peer. `out` is then unspecified.
  Result<> on_frame(Rank from, const Frame& frame, FrameSender& sender);

  bool done() const { return started_ && totals_missing_ == 0; }

 private:
  struct Piece {
    std::size_t first = 0, count = 0;  // elements
    Rank owner = 0;                    // adds it up; not used in one hop
    std::uint32_t missing = 0;         // contributions (owner) or totals still to come
  };
  Result<> on_contribution(Rank from, const Frame& frame, FrameSender& sender);
  Result<> on_total(Rank from, const Frame& frame);
  Error malformed(Rank from, const char* what) const;
  bool mine(const Piece& piece) const { return one_hop_ || piece.owner == options_.self; }

  const std::span<const std::int32_t> in_;
  const std::span<std::int32_t> out_;
  const AllReduceOptions options_;
  const bool one_hop_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<bool>> seen_;  // per rank, per piece
  std::size_t totals_missing_ = 0;       // pieces of `out` that are not complete
  bool started_ = false;
};

}  // namespace starling::collectives
