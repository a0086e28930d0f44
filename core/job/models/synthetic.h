#pragma once
// A gradient without a network.

#include <vector>

#include "core/job/models/kind.h"

namespace starling {

// No network: a gradient from random numbers and the parameters (kernels/models/synthetic.h). A
// pass waits for its compute time. Takes no data.
struct SyntheticSpec {
  static constexpr ModelKind kKind{.word = "synthetic"};

  std::uint64_t parameters = 1'000'000;
  double compute_ms = 0;     // of one micro-batch
  double jitter = 0;         // fraction by which it varies, up or down, from one to the next
  std::vector<double> slow;  // by how much worker-0, worker-1, ... is slower; 1 for all others

  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  void drop_idle() {
    compute_ms = jitter = 0;
    slow.clear();
  }
  bool operator==(const SyntheticSpec&) const = default;
};
inline constexpr std::uint64_t kSyntheticParametersMin = 1000;
inline constexpr double kSlownessMax = 1000;

}  // namespace starling
