#pragma once
// What the direct path sends from and receives for: a worker's sums, totals and working parameters
// in its device's memory. Whoever owns them implements it; the operations (direct_reduce.h,
// direct_gather.h) see addresses and never follow one.

#include <cstddef>
#include <span>

#include "collectives/sums.h"
#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling::collectives {

// Threads: the owner's of the operations that use it. Segments lie one after the other, so a range
// is one piece of memory. What a call does, and what GatherSource::publish() has done, is there when
// it returns, for the path too.
class DirectMemory {
 public:
  virtual ~DirectMemory() = default;

  // Own sums: read only, by the path too (R2). Totals: of owned segments, complete ones.
  virtual std::byte* sums(SegmentRange segments) = 0;
  virtual std::byte* totals(SegmentRange segments) = 0;
  // Totals of owned segments are the own sums and these of all other members, each as long as
  // Layout::bytes_of(segments, What::kSums). None in a world of one.
  virtual void add(SegmentRange segments, std::span<const std::byte* const> received) = 0;
  // Totals of segments held here that their owner has added up.
  virtual void take_totals(SegmentRange segments, const std::byte* staged) = 0;

  // Working parameters: how many bytes, alike at all ranks and no more than those of sums; and where
  // they are, once published.
  virtual std::size_t parameter_bytes(SegmentRange segments) const = 0;
  virtual std::byte* parameters(SegmentRange segments) = 0;
  // What makes sure of them elsewhere, and what else belongs to them: a checksum for each segment,
  // of working parameters and exponents as published, and the exponents.
  virtual Bytes proofs(SegmentRange segments) = 0;
  // Of segments not held here. Both come from another process: compared first, where they are
  // staged, then copied; a pass may be reading. What is here at that version stays as it is.
  // Errors: kCorrupt, and nothing was written.
  virtual Result<> take_parameters(Version version, SegmentRange segments, const std::byte* staged,
                                   ByteView proofs) = 0;
};

}  // namespace starling::collectives
