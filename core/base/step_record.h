#pragma once
// StepRecord is what is known of a step that has passed.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/base/loss_scale.h"

namespace starling {

inline constexpr std::size_t kMetricsMax = 8;     // of a job: a ledger row carries each
inline constexpr std::size_t kHeldOutMax = 4096;  // batches of an evaluation

// What each worker that passes the vote of step v knows (design, section 1: record of step v).
struct StepRecord {
  Version version = kNoVersion;  // v
  double loss = 0;  // mean over micro-batches, from the exact sum; NaN if it is skipped
  double norm = 0;  // global gradient norm before clipping
  std::uint64_t tokens = 0;
  bool skipped = false;
  std::uint64_t ledger_hash = 0;  // over all M rows without their worker: equal however shared
  Digest digest{};                // of version v, before the step; zeros: none was due
  // Means over micro-batches of what the model measures beside the loss, in the job's order; NaN if
  // one is not finite.
  std::vector<double> metrics{};
  LossScale scale{};  // that it was computed with
  // Loss and metrics over the job's held-out batches with the parameters of version v, before the
  // step; empty: none were due.
  std::vector<double> evaluation{};
  // Compares bits: the loss of a skipped step is NaN, the same one everywhere.
  bool operator==(const StepRecord& o) const {
    const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
    return version == o.version && bits(loss) == bits(o.loss) && bits(norm) == bits(o.norm) &&
           tokens == o.tokens && skipped == o.skipped && ledger_hash == o.ledger_hash &&
           digest == o.digest && scale == o.scale &&
           std::ranges::equal(metrics, o.metrics, {}, bits, bits) &&
           std::ranges::equal(evaluation, o.evaluation, {}, bits, bits);
  }
};

}  // namespace starling
