#include "kernels/cuda/token_order.h"
#include "tests/cuda/layers_rig.h"

namespace starling::kernels::cuda {
namespace {

// Goal: rows are the sum of a token's and a position's parameters, rounded once. Method: equal bits
// with a plain loop over awkward shapes.
TEST_CASE("embedding: a token's row and a position's row, added") {
  const struct {
    Rows shape;
    std::uint32_t positions, vocabulary;
  } cases[] = {{{1, 1}, 1, 1},      {{7, 31}, 7, 5},         {{24, 256}, 8, 50},
               {{30, 257}, 10, 11}, {{1366, 768}, 683, 997}, {{9, 1600}, 3, 4}};
  for (const auto& c : cases) {
    for (const Precision type : kTypes) {
      CAPTURE(c.shape.rows);
      CAPTURE(c.shape.width);
      const std::size_t width = c.shape.width;
      const Floats wte = normal(c.vocabulary * width, 1), wpe = normal(c.positions * width, 2);
      std::vector<std::int32_t> tokens;
      for (std::uint32_t r = 0; r < c.shape.rows; ++r)
        tokens.push_back(static_cast<std::int32_t>(r * 7919u % c.vocabulary));
      Floats want;
      for (std::size_t r = 0; r < c.shape.rows; ++r)
        for (std::size_t i = 0; i < width; ++i)
          want.push_back(wte[static_cast<std::size_t>(tokens[r]) * width + i] +
                         wpe[r % c.positions * width + i]);
      const auto outputs = outputs_of([&](Calls& calls) {
        embed(calls.stream, type, c.shape, c.positions, calls.in(tokens), Precision::kFp32,
              calls.in(wte), calls.in(wpe), calls.out(type, want.size()));
      });
      CHECK(outputs[0].as(type) == kept(type, want));
    }
  }
}

TEST_CASE("embedding: without positions a row is its token's, also of a table of the type") {
  for (const std::uint32_t width : {31u, 64u})
    for (const Precision type : kTypes) {
      const Floats table = kept(type, normal(std::size_t{5} * width, 1));
      const std::vector<std::int32_t> tokens{3, 0, 4, 3, 1, 2, 2};
      Floats want;
      for (const std::int32_t token : tokens)
        for (std::size_t i = 0; i < width; ++i)
          want.push_back(table[static_cast<std::size_t>(token) * width + i]);
      const auto outputs = outputs_of([&](Calls& calls) {
        embed(calls.stream, type, {7, width}, /*positions=*/7, calls.in(tokens), Precision::kFp32,
              calls.in(table), /*wpe=*/nullptr, calls.out(type, want.size()));
        embed(calls.stream, type, {7, width}, /*positions=*/7, calls.in(tokens), type,
              calls.in(type, table), /*wpe=*/nullptr, calls.out(type, want.size()));
      });
      CHECK(outputs[0].as(type) == want);
      CHECK(outputs[1].as(type) == want);
    }
}

// Pieces of 64 rows, each added in rising order from zero; their sums added in order.
Floats token_gradient(const std::vector<std::int32_t>& tokens, std::size_t token, std::size_t width,
                      const Floats& d_out) {
  Floats total(width), piece(width);
  std::size_t rows = 0;
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    if (static_cast<std::size_t>(tokens[r]) != token) continue;
    if (rows > 0 && rows % 64 == 0)
      for (std::size_t i = 0; i < width; ++i) total[i] += std::exchange(piece[i], 0.0f);
    for (std::size_t i = 0; i < width; ++i) piece[i] += d_out[r * width + i];
    ++rows;
  }
  for (std::size_t i = 0; i < width; ++i) total[i] += piece[i];
  return total;
}

// Token t of `counts` stands counts[t] times in the batch, mixed with the others.
std::vector<std::int32_t> mixed(const std::vector<std::uint32_t>& counts) {
  std::vector<std::int32_t> tokens;
  for (std::size_t t = 0; t < counts.size(); ++t)
    tokens.insert(tokens.end(), counts[t], static_cast<std::int32_t>(t));
  std::mt19937 random(11);
  for (std::size_t i = tokens.size(); i > 1; --i) std::swap(tokens[i - 1], tokens[random() % i]);
  return tokens;
}

// Goal: each token's gradient is the sum of its rows, in an order that does not depend on the other
// tokens; a part of the vocabulary is as good as all of it. Method: lists around the borders of a
// piece (64 rows) and of a round of pieces (1,024 rows), equal bits with plain loops.
TEST_CASE("embedding's gradient: rows of each token, added in order") {
  const struct {
    std::uint32_t width;
    std::vector<std::uint32_t> counts;
  } cases[] = {{1, {3}},
               {31, {0, 1, 2, 0, 31, 32, 33, 63, 64, 65, 127, 128, 129, 0, 200, 0, 5, 1, 7, 9}},
               {257, {1024, 0, 1025, 1, 1090, 64}},
               {768, {900, 65, 0, 130, 3, 0, 0, 1, 270}},
               {256, std::vector<std::uint32_t>(61, 70)},
               {8, {16384, 1}}};
  for (const auto& c : cases) {
    for (const Precision type : kTypes) {
      CAPTURE(c.width);
      const auto tokens = mixed(c.counts);
      const auto vocabulary = static_cast<std::uint32_t>(c.counts.size());
      TokenOrder order(vocabulary);
      order.sort(tokens);
      const std::vector<std::uint32_t> begins(order.begins().begin(), order.begins().end());
      const std::vector<std::uint32_t> rows(order.rows().begin(), order.rows().end());
      const Floats d_out = kept(type, normal(tokens.size() * c.width, 3));
      for (const std::uint32_t first : {0u, vocabulary / 3}) {
        const std::uint32_t count = first == 0 ? vocabulary : (vocabulary - first + 1) / 2;
        const auto outputs = outputs_of([&](Calls& calls) {
          const TokenRows where{calls.in(begins), calls.in(rows)};
          embed_backward(calls.stream, type, c.width, where, first, count, calls.in(type, d_out),
                         calls.out<float>(std::size_t{count} * c.width));
        });
        Floats want;
        for (std::uint32_t t = first; t < first + count; ++t) {
          const Floats row = token_gradient(tokens, t, c.width, d_out);
          want.insert(want.end(), row.begin(), row.end());
        }
        CHECK(outputs[0].as<float>() == want);
      }
    }
  }
}

TEST_CASE("positions' gradient: sequences added in their order") {
  const struct {
    std::uint32_t sequences, positions, width;
  } cases[] = {{1, 1, 1}, {3, 5, 31}, {16, 7, 257}, {2, 683, 768}, {5, 8, 256}};
  for (const auto& c : cases) {
    for (const Precision type : kTypes) {
      CAPTURE(c.sequences);
      CAPTURE(c.width);
      const std::size_t elements = std::size_t{c.positions} * c.width;
      const Floats d_out = kept(type, normal(c.sequences * elements, 4));
      Floats want(d_out.begin(), d_out.begin() + static_cast<std::ptrdiff_t>(elements));
      for (std::size_t s = 1; s < c.sequences; ++s)
        for (std::size_t i = 0; i < elements; ++i) want[i] += d_out[s * elements + i];
      const auto outputs = outputs_of([&](Calls& calls) {
        position_gradient(calls.stream, type, c.sequences, c.positions, c.width,
                          calls.in(type, d_out), calls.out<float>(elements));
      });
      CHECK(outputs[0].as<float>() == want);
    }
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
