#pragma once
// All-gather of one small record: done when one from every rank is there. With an empty record it
// is a barrier. Votes, ledgers and set-up use it.

#include <cstdint>
#include <vector>

#include "collectives/transport.h"
#include "core/base/result.h"

namespace starling::collectives {

struct ExchangeOptions {
  FrameKind kind = FrameKind::kRecord;
  Rank self = 0;
  Rank world = 1;
  Version version = 0;  // the step, or a count where there are no steps
  std::size_t record_bytes_max = 1u << 20;
};

// Threads: one at a time; the caller serialises.
// Sends the record to W-1 ranks; one hop.
class Exchange {
 public:
  explicit Exchange(const ExchangeOptions& options);

  // Gives the own record. Once; frames of others may come before.
  void start(Bytes record, Transport& transport);
  bool takes(FrameKind kind) const { return kind == options_.kind; }
  // Errors: kCorrupt  wrong version, too long, or a second record of the same rank; names the peer
  Result<> on_frame(Rank from, const Frame& frame);

  bool done() const { return missing_ == 0; }
  bool has(Rank rank) const { return records_[rank] != nullptr; }
  const Bytes& record(Rank rank) const;  // only if has(rank)

 private:
  const ExchangeOptions options_;
  std::vector<SharedBytes> records_;
  Rank missing_;
};

}  // namespace starling::collectives
