#include "core/base/evaluation_sum.h"

#include <cmath>
#include <limits>

namespace starling {

void EvaluationSum::add(std::span<const double> batches, std::size_t width) {
  if (width == 0) return;
  sums_.resize(width);
  finite_.resize(width, true);
  for (; batches.size() >= width; batches = batches.subspan(width)) {
    ++batches_;
    for (std::size_t i = 0; i < width; ++i)
      if (std::isfinite(batches[i]))
        sums_[i].add(batches[i]);
      else
        finite_[i] = false;
  }
}

std::vector<double> EvaluationSum::means() const {
  std::vector<double> means;
  for (std::size_t i = 0; i < sums_.size() && batches_ > 0; ++i)
    means.push_back(finite_[i] ? sums_[i].value() / static_cast<double>(batches_)
                               : std::numeric_limits<double>::quiet_NaN());
  return means;
}

}  // namespace starling
