#pragma once
// Held-out data: what the parameters are tried on while they are trained ([evaluate] of a job file).
// Which samples and which batches: the first ones in their order, the same at every evaluation.

#include <cstdint>
#include <memory>
#include <utility>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"

namespace starling {

class Dataset;

// How many numbers an evaluation gives of each batch: the loss, and what a script measures beside it.
inline std::uint32_t evaluation_width(const Job& job) {
  return static_cast<std::uint32_t>(1 + job.evaluate.metrics.size());
}

// Threads: after open() everything is const and may be called from any thread.
class HeldOut {
 public:
  // Requires job.evaluate.on(). Errors: kBadInput  those of Dataset::open(); too few samples.
  static Result<std::shared_ptr<const HeldOut>> open(const Job& job);

  std::uint32_t batches() const { return batches_; }
  // Of the samples, as Dataset::identity().
  const Digest& identity() const;
  // Batch i < batches() for an evaluation of `version`. Errors: those of Dataset::fill().
  Result<Batch> batch(Version version, std::uint32_t i) const;

  // Whether step `version` evaluates the parameters that it begins with.
  bool due(Version version) const { return version != 0 && version % every_ == 0; }
  // The batches that come with micro-batch m of a step that evaluates: [first, second). A pure function,
  // so the worker that computes that micro-batch computes these batches.
  std::pair<std::uint32_t, std::uint32_t> of(MicroBatch m) const;

 private:
  HeldOut() = default;

  std::shared_ptr<const Dataset> data_;
  std::uint64_t seed_ = 0, every_ = 1;
  std::uint32_t micro_batches_ = 1, first_draw_ = 0, sequences_ = 1, batches_ = 0;
};

}  // namespace starling
