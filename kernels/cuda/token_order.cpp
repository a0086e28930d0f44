#include "kernels/cuda/token_order.h"

#include <algorithm>
#include <cstddef>

#include "core/base/check.h"

namespace starling::kernels::cuda {

TokenOrder::TokenOrder(std::uint32_t vocabulary)
    : begins_(static_cast<std::size_t>(vocabulary) + 1) {}

void TokenOrder::sort(std::span<const std::int32_t> tokens) {
  const std::size_t vocabulary = begins_.size() - 1;
  rows_.resize(tokens.size());
  std::fill(begins_.begin(), begins_.end(), 0);
  for (const std::int32_t token : tokens) {
    STARLING_CHECK(token >= 0 && static_cast<std::size_t>(token) < vocabulary);
    ++begins_[static_cast<std::size_t>(token)];
  }
  // begins_[t] becomes the end of t's rows; each row, from the last one on, takes the place below it.
  std::uint32_t end = 0;
  for (std::uint32_t& begin : begins_) begin = end += begin;
  for (std::size_t r = tokens.size(); r-- > 0;)
    rows_[--begins_[static_cast<std::size_t>(tokens[r])]] = static_cast<std::uint32_t>(r);
}

}  // namespace starling::kernels::cuda
