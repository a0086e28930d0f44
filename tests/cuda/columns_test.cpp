#include "tests/cuda/layers_rig.h"

namespace starling::kernels::cuda {
namespace {

// The order of columns.cu: 64 runs of rows; of a run, eight sums of each eighth row; all combined in
// rising order.
Floats sums_in_order(Rows shape, const Floats& x) {
  const std::size_t rows = shape.rows, width = shape.width;
  const std::size_t length = (rows + kRowRuns - 1) / kRowRuns;
  Floats sums(width);
  for (std::size_t c = 0; c < width; ++c) {
    for (std::size_t run = 0; run < kRowRuns; ++run) {
      const std::size_t begin = std::min(run * length, rows), end = std::min(begin + length, rows);
      float eighths[8] = {};
      for (std::size_t r = begin; r < end; ++r) eighths[(r - begin) % 8] += x[r * width + c];
      float sum = eighths[0];
      for (int i = 1; i < 8; ++i) sum += eighths[i];
      sums[c] = run == 0 ? sum : sums[c] + sum;
    }
  }
  return sums;
}

// Goal: sums of columns are right at any size, and have the bits of one order. Method: plain loops in
// that order (equal bits), and sums in double. Tolerance: numbers of about 1 in sums of up to some
// hundreds, rounded to 2^-24 at each addition.
TEST_CASE("column sums: the bits of a fixed order") {
  for (const Rows shape : {Rows{1, 1}, Rows{1, 257}, Rows{7, 31}, Rows{63, 768}, Rows{64, 256},
                           Rows{65, 8}, Rows{1000, 97}, Rows{1366, 768}, Rows{4099, 1}}) {
    for (const Precision type : kTypes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.width);
      const std::size_t n = std::size_t{shape.rows} * shape.width;
      const Floats x = kept(type, normal(n, 1, 1, 0.25f));
      const auto outputs = outputs_of([&](Calls& calls) {
        column_sums(calls.stream, type, shape, calls.in(type, x), calls.out<float>(shape.width),
                    calls.scratch(partial_floats(shape.width)));
      });
      const Floats got = outputs[0].as<float>();
      CHECK(got == sums_in_order(shape, x));
      std::vector<double> want(shape.width);
      for (std::size_t i = 0; i < n; ++i) want[i % shape.width] += static_cast<double>(x[i]);
      CHECK(off(got, want, {2e-7 * shape.rows + 1e-7}) <= 1);
    }
  }
}

TEST_CASE("column sums: without rows they are zero") {
  const auto outputs = outputs_of([&](Calls& calls) {
    column_sums(calls.stream, Precision::kBf16, {0, 9}, calls.in(Precision::kBf16, {}),
                calls.out<float>(9), calls.scratch(partial_floats(9)));
  });
  CHECK(outputs[0].as<float>() == Floats(9));
}

// Goal: the device rounds as element.h does, subnormal numbers and infinities included; a NaN stays one.
// Method: all upper halves of a float with the lower halves at which rounding changes.
TEST_CASE("to_halves: every upper half is rounded as on the host") {
  Floats values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u,
                                      0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
  for (const std::size_t n :
       {values.size(), std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{9},
        std::size_t{2047}, std::size_t{2049}, std::size_t{0}}) {
    const Floats part(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
    for (const Precision type : kHalves) {
      CAPTURE(text_of(type));
      const auto outputs = outputs_of([&](Calls& calls) {
        to_halves(calls.stream, type, n, calls.in(part), calls.out<std::uint16_t>(n));
      });
      const auto got = outputs[0].as<std::uint16_t>();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const bool nan = std::isnan(part[i]) && std::isnan(value_of(type, got[i]));
        wrong += !nan && got[i] != half_of(type, part[i]);
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
