#pragma once
// Which sample each place of a run has, as its start says the seed, the number of samples, and lanes.

#include <cstdint>
#include <optional>

#include "tools/judge/audit/history.h"

namespace starling::audit {

// A value that needs start.tells_samples(); any thread.
class SampleOrder {
 public:
  explicit SampleOrder(const StartFact& start) : start_(start) {}

  struct Place {
    std::uint64_t step = 0;
    MicroBatch micro_batch = 0;
    std::uint32_t sequence = 0;  // of the micro-batch
    bool operator==(const Place&) const = default;
  };
  struct Sample {
    std::uint64_t pass = 0, number = 0;
  };
  Sample at(const Place& place) const;
  // Where a pass has a sample. For every sample, at() of it is that sample of that pass.
  Place of(const Sample& sample) const;
  // Whether each place that a pass has lies behind so many steps.
  bool begins_behind(std::uint64_t pass, std::uint64_t steps) const;

 private:
  const StartFact& start_;
};

}  // namespace starling::audit
