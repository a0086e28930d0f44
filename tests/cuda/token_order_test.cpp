#include "kernels/cuda/token_order.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace starling::kernels::cuda {
namespace {

using Numbers = std::vector<std::uint32_t>;

Numbers copied(std::span<const std::uint32_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

// Goal: each token's rows stand together, in ascending order, whatever batch came before. Method:
// batches of several kinds through one object, against a loop over all rows for each token.
TEST_CASE("token order: the rows of each token, ascending, batch after batch") {
  constexpr std::uint32_t kVocabulary = 37;
  TokenOrder order(kVocabulary);
  std::mt19937 random(7);
  for (const std::size_t rows : {100u, 1u, 0u, 1000u, 37u}) {
    for (const int kinds : {1, 2, 37}) {
      std::vector<std::int32_t> tokens(rows);
      for (std::int32_t& token : tokens)
        token = static_cast<std::int32_t>(kVocabulary) - 1 -
                static_cast<std::int32_t>(random() % static_cast<unsigned>(kinds));
      Numbers begins{0}, sorted;
      for (std::uint32_t t = 0; t < kVocabulary; ++t) {
        for (std::uint32_t r = 0; r < rows; ++r)
          if (tokens[r] == static_cast<std::int32_t>(t)) sorted.push_back(r);
        begins.push_back(static_cast<std::uint32_t>(sorted.size()));
      }
      order.sort(tokens);
      CHECK(copied(order.begins()) == begins);
      CHECK(copied(order.rows()) == sorted);
    }
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
