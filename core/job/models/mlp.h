#pragma once
// Dense layers, a classifier.

#include <vector>

#include "core/job/models/kind.h"

namespace starling {

// Dense layers sizes[0] -> ... -> sizes.back(), ReLU between, softmax cross entropy at the end.
struct MlpSpec {
  static constexpr ModelKind kKind{
      .word = "mlp", .with_article = "an mlp", .computed_by_kernels = true};

  std::vector<std::uint32_t> sizes;

  ModelInput input() const {
    return sizes.empty() ? ModelInput{} : ModelInput{1, sizes.front(), 0, sizes.back()};
  }
  void read(job_words::Section& section, const Job& job, const std::string& base);
  void write(std::ostream& out) const;
  bool operator==(const MlpSpec&) const = default;
};

}  // namespace starling
