#pragma once
// TokenOrder sorts the rows of a batch by their token, for embed_backward().

#include <cstdint>
#include <span>
#include <vector>

namespace starling::kernels::cuda {

// Threads: one at a time. Its memory is kept from batch to batch.
class TokenOrder {
 public:
  explicit TokenOrder(std::uint32_t vocabulary);

  // Tokens must lie in [0, vocabulary). This counting sort is linear in rows and vocabulary.
  void sort(std::span<const std::int32_t> tokens);

  // TokenRows points to these, on the host, until the next sort(): rows with token
  // t, ascending, are rows()[begins()[t]] to rows()[begins()[t + 1]] (exclusive).
  std::span<const std::uint32_t> begins() const { return begins_; }  // [vocabulary + 1]
  std::span<const std::uint32_t> rows() const { return rows_; }      // [tokens.size()]

 private:
  std::vector<std::uint32_t> begins_, rows_;
};

}  // namespace starling::kernels::cuda
