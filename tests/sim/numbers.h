#pragma once
// The simulator's arithmetic: a toy model whose every bit depends on everything that the protocol
// must keep right. What a micro-batch contributes is a function of (seed, step, micro-batch, all
// working parameters), so stale or mixed parameters and lost or doubled micro-batches change the
// bits of everything after them.
//
// Reference is the run that nothing disturbed: one worker, one loop, none of the code under test.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/exact_sum.h"
#include "core/base/ids.h"
#include "core/base/side_entry.h"
#include "core/job/layout.h"
#include "core/wire/messages.h"

namespace starling::sim {

inline constexpr std::size_t kEvaluationWidth = 2;  // loss and a metric
inline constexpr Digest kFingerprint{1, 1};         // of every worker and checkpoint of the world

// Of one segment. Weights stay in a skipped step, exponents move in every step.
struct SegmentState {
  std::uint64_t weights = 0, exponents = 0;
  Version label = kNoVersion;  // kNoVersion: no copy here
  bool operator==(const SegmentState&) const = default;
};

// What is sent to everybody after an apply.
struct SegmentParams {
  std::uint64_t weights = 0, exponents = 0;
  bool operator==(const SegmentParams&) const = default;
};

struct Contribution {
  std::vector<std::int32_t> sums;  // [elements]
  std::vector<SideEntry> side;     // uses of blocks that do not fit the grid
  LedgerRow row;                   // its worker is not set
};

class Numbers {
 public:
  Numbers(std::uint64_t seed, std::uint32_t micro_batches, std::uint64_t steps,
          std::uint32_t segments, const LossScaleRule& loss_scale = {});

  std::uint64_t seed() const { return seed_; }
  std::uint32_t micro_batches() const { return micro_batches_; }
  std::uint64_t steps() const { return steps_; }
  const Layout& layout() const { return layout_; }
  const LossScaleRule& loss_scale() const { return loss_scale_; }

  SegmentState initial(SegmentId segment) const;
  static SegmentParams params_of(const SegmentState& state);
  static std::uint64_t hash_of(std::span<const SegmentParams> params);
  // Other numbers with another scale of the loss.
  Contribution contribution(Version step, MicroBatch m, std::uint64_t params_hash,
                            LossScale scale) const;
  // Loss and metric of a batch, and of all held-out batches, with these parameters.
  static std::vector<double> evaluation(std::uint64_t params_hash);
  // `side`: the entries of this segment, any order.
  std::uint64_t total_hash(std::span<const std::int32_t> total, std::vector<SideEntry> side) const;
  void add_norm(ExactSum& norm, std::span<const std::int32_t> total) const;
  static void apply(SegmentState& state, std::uint64_t total_hash, double norm, double peak_rate,
                    bool skipped);
  static Digest digest_of(SegmentId segment, const SegmentState& state);
  static Digest digest_of(SegmentId segment, const SegmentParams& params);

 private:
  std::uint64_t seed_;
  std::uint32_t micro_batches_;
  Version steps_;
  Layout layout_;
  LossScaleRule loss_scale_;
};

class Reference {
 public:
  // A run whose rate was changed like this.
  explicit Reference(const Numbers& numbers, const std::vector<RateChange>& rates = {});

  // Of step v, without its ledger_hash, which is the code under test's own, and without its digest.
  const StepRecord& record(Version v) const { return records_[v]; }
  const SegmentState& state(Version v, SegmentId s) const { return states_[v][s]; }
  std::uint64_t params_hash(Version v) const { return params_hashes_[v]; }
  const LedgerRow& row(Version v, MicroBatch m) const { return rows_[v][m]; }
  Digest digest(Version v) const;
  Digest parameters(Version v) const;

 private:
  std::vector<StepRecord> records_;
  std::vector<std::vector<SegmentState>> states_;
  std::vector<std::uint64_t> params_hashes_;
  std::vector<std::vector<LedgerRow>> rows_;
};

// Equal as bits, so that a NaN equals itself.
bool same_bits(double a, double b);

}  // namespace starling::sim
