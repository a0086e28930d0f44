#pragma once
// DeviceMemory is what the device transport sends from and receives for: a worker's sums, totals and
// working parameters in its device's memory. Their owner implements it; the operations
// (device_reduce.h, device_gather.h) see addresses and never follow one.

#include <cstddef>
#include <span>

#include "collectives/sums.h"
#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling::collectives {

// Threads: the owner's of the operations that use it. Segments lie one after the other, so a range
// is one piece of memory. What a call does, and what GatherSource::publish() has done, is there when
// it returns, for the transport too.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Own sums: read only, by the transport too (R2). Totals: of owned segments, complete ones.
  virtual std::byte* sums(SegmentRange segments) = 0;
  virtual std::byte* totals(SegmentRange segments) = 0;
  // Totals of owned segments become the own sums plus `received`: an array of each other member,
  // none in a world of one, as long as Layout::bytes_of(segments, What::kSums).
  virtual void add(SegmentRange segments, std::span<const std::byte* const> received) = 0;
  // Takes totals of segments held here that their owner has added up.
  virtual void take_totals(SegmentRange segments, const std::byte* staged) = 0;

  // Size of the working parameters in bytes: equal on all ranks, at most that of the sums. Their
  // address is valid once publish() has been called for them.
  virtual std::size_t parameter_bytes(SegmentRange segments) const = 0;
  virtual std::byte* parameters(SegmentRange segments) = 0;
  // Encodes a checksum for each segment, of working parameters and exponents as published, and the
  // exponents, so that a receiver can verify the parameters.
  virtual Bytes proofs(SegmentRange segments) = 0;
  // Takes parameters of segments not held here. Both arguments come from another process: they are
  // compared in `staged` first and then copied, as a pass may be reading. Parameters that are here
  // at that version already stay as they are. Errors: kCorrupt, and nothing was written.
  virtual Result<> take_parameters(Version version, SegmentRange segments, const std::byte* staged,
                                   ByteView proofs) = 0;
};

}  // namespace starling::collectives
