#include <optional>

#include "kernels/cpu/table.h"
#include "tests/cuda/layers_rig.h"
#include "tests/cuda/types.h"

namespace starling::kernels::cuda {
namespace {

constexpr float kBeyond = 77;  // in columns that are no classes

struct Table {
  std::uint32_t rows, classes, ld;
};

struct Losses {
  std::vector<double> losses;
  Floats logits;  // or their gradient, [rows, ld]
};

Losses run(Precision type, const Table& table, const Floats& logits,
           const std::vector<std::int32_t>& targets, std::optional<float> scale) {
  const auto outputs = outputs_of([&](Calls& calls) {
    double* const losses = calls.out<double>(table.rows);
    void* const in_place = calls.in_out(type, logits);
    cross_entropy(calls.stream, type, table.rows, table.classes, table.ld, in_place,
                  calls.in(targets), scale ? calls.in(Floats{*scale}) : nullptr, losses);
  });
  return {outputs[0].as<double>(), outputs[1].as(type)};
}

std::vector<std::int32_t> some_targets(const Table& table) {
  std::vector<std::int32_t> targets;
  for (std::uint32_t r = 0; r < table.rows; ++r)
    targets.push_back(static_cast<std::int32_t>((r * 7919u + table.classes - 1) % table.classes));
  return targets;
}

Floats some_logits(Precision type, const Table& table, float scale) {
  Floats logits = normal(std::size_t{table.rows} * table.ld, table.classes, scale);
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (i % table.ld >= table.classes) logits[i] = kBeyond;
  return kept(type, logits);
}

// Goal: losses and gradients are right at any size, and columns behind the classes neither count nor
// stay. Method: tables around the borders of packs and of a block's stride, GPT-2's vocabulary, mild
// and steep logits, against the reference. Tolerance: 1e-6 of a loss, 4e-7 of a unit of gradient.
TEST_CASE("cross entropy: the reference's losses and gradients for any number of classes") {
  const Table tables[] = {{3, 1, 1},       {3, 1, 8},         {5, 2, 2},         {4, 7, 8},
                          {4, 8, 16},      {6, 31, 40},       {3, 257, 257},     {2, 4096, 4096},
                          {2, 4097, 4104}, {1, 16384, 16384}, {1, 16411, 16411}, {1, 50257, 50304}};
  const auto scale = 0.125f;
  for (const Table& table : tables) {
    for (const Precision type : kTypes) {
      for (const float steepness : {0.05f, 1.0f, 30.0f}) {
        CAPTURE(table.classes);
        CAPTURE(table.ld);
        CAPTURE(steepness);
        const Floats logits = some_logits(type, table, steepness);
        const auto targets = some_targets(table);
        std::vector<double> losses;
        Floats gradient(logits.size(), 0);
        for (std::uint32_t r = 0; r < table.rows; ++r) {
          const auto begin = static_cast<std::ptrdiff_t>(std::size_t{r} * table.ld);
          Floats row(logits.begin() + begin, logits.begin() + begin + table.classes);
          losses.push_back(reference_kernels().cross_entropy(1, table.classes, row.data(),
                                                             &targets[r], true, scale));
          std::copy(row.begin(), row.end(), gradient.begin() + begin);
        }
        const Losses got = run(type, table, logits, targets, scale);
        for (std::uint32_t r = 0; r < table.rows; ++r)
          CHECK(std::fabs(got.losses[r] - losses[r]) < 1e-6);
        CHECK(off(got.logits, gradient, Tolerance{4e-7 * double{scale}, 1e-6}.of(type)) <= 1);
        for (std::size_t i = 0; i < got.logits.size(); ++i)
          if (i % table.ld >= table.classes) REQUIRE(got.logits[i] == 0);
        const Losses looked_at = run(type, table, logits, targets, std::nullopt);
        CHECK(looked_at.losses == got.losses);
        CHECK(looked_at.logits == logits);
      }
    }
  }
}

// Goal: a row with a NaN or an infinity is seen in its loss and harms no other row. Method: one such
// logit among classes at each kind of place; -inf is a class of no probability, as in the reference.
TEST_CASE("cross entropy: what is not finite gives a loss that is not") {
  const Table table{3, 8200, 8208};
  for (const Precision type : kTypes) {
    const Floats logits = some_logits(type, table, 1);
    const std::vector<std::int32_t> targets{5, 4100, 8199};
    const Losses whole = run(type, table, logits, targets, 1);
    for (const std::uint32_t column : {0u, 5u, 4100u, 8191u, 8199u}) {
      for (const float odd : {kNan, -kNan, kInfinity, -kInfinity}) {
        CAPTURE(column);
        CAPTURE(odd);
        Floats damaged = logits;
        damaged[table.ld + column] = odd;
        const Losses got = run(type, table, damaged, targets, 1);
        const bool harmless = odd == -kInfinity && column != 4100;
        CHECK(std::isfinite(got.losses[1]) == harmless);
        if (harmless) CHECK(got.logits[table.ld + column] == 0);
        CHECK(got.losses[0] == whole.losses[0]);
        CHECK(got.losses[2] == whole.losses[2]);
      }
    }
    const Losses none = run(type, {1, 9, 16}, Floats(16, -kInfinity), {3}, 1);
    CHECK_FALSE(std::isfinite(none.losses[0]));
    // The largest finite numbers do not overflow on the way.
    const Losses large =
        run(type, {1, 3, 8}, {largest(type), -largest(type), 0, 0, 0, 0, 0, 0}, {0}, 1);
    CHECK(large.losses[0] == 0);
    CHECK(large.logits == Floats(8));
  }
}

TEST_CASE("cross entropy: a row without a target has no loss and no gradient") {
  const Table table{3, 31, 40};
  for (const Precision type : kTypes) {
    const Floats logits = some_logits(type, table, 1);
    const Losses whole = run(type, table, logits, {1, 2, 3}, 0.5f);
    const Losses some = run(type, table, logits, {1, -1, 3}, 0.5f);
    CHECK(some.losses == std::vector<double>{whole.losses[0], 0, whole.losses[2]});
    for (std::uint32_t i = 0; i < table.rows * table.ld; ++i)
      CHECK(some.logits[i] == (i / table.ld == 1 ? 0 : whole.logits[i]));
    CHECK(run(type, table, logits, {-1, -1, -1}, std::nullopt).logits == logits);
  }
}

// Goal: losses are added in one order and lose nothing. Method: sizes around the block's 1,024, the
// same tree in plain loops, and integers, whose sum is exact.
TEST_CASE("losses: a fixed tree of sums") {
  for (const std::uint32_t rows : {0u, 1u, 2u, 1023u, 1024u, 1025u, 16384u}) {
    CAPTURE(rows);
    std::vector<double> losses, numbers;
    for (const float value : normal(rows, 3, 1, 8))
      losses.push_back(static_cast<double>(value) / 3);
    for (std::uint32_t r = 0; r < rows; ++r) numbers.push_back(r);
    const auto sum = [&](const std::vector<double>& values) {
      const auto outputs = outputs_of([&](Calls& calls) {
        sum_losses(calls.stream, rows, calls.in(values), calls.out<double>(1));
      });
      return outputs[0].as<double>()[0];
    };
    std::vector<double> tree(1024);
    for (std::uint32_t r = 0; r < rows; ++r) tree[r % 1024] += losses[r];
    for (std::size_t half = 512; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) tree[i] += tree[i + half];
    CHECK(sum(losses) == tree[0]);
    CHECK(sum(numbers) == 0.5 * rows * (rows - (rows > 0 ? 1.0 : 0.0)));
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
