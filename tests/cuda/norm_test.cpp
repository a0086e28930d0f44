#include <utility>

#include "kernels/cpu/table.h"
#include "tests/cuda/layers_rig.h"

namespace starling::kernels::cuda {
namespace {

// Borders: 768 is one warp's, 6144 the last that is held in registers, 1 Mi elements in all.
constexpr Rows kShapes[] = {{1, 1},    {3, 2},    {5, 31},     {1, 256},    {130, 257},
                            {65, 768}, {64, 769}, {1366, 768}, {200, 2100}, {67, 1600},
                            {300, 40}, {2, 6144}, {65, 6145},  {2, 12288},  {0, 768}};

struct Forward {
  Floats y, mean, rstd;
};
Forward reference_forward(Rows shape, const Floats& x, const Floats& gain, const Floats& bias) {
  Forward out{Floats(x.size()), Floats(shape.rows), Floats(shape.rows)};
  reference_kernels().layer_norm({shape.rows, shape.width}, x.data(), gain.data(), bias.data(),
                                 out.y.data(), out.mean.data(), out.rstd.data());
  return out;
}
Forward forward(Precision type, Rows shape, const Floats& x, const Floats& gain,
                const Floats& bias) {
  const auto outputs = outputs_of([&](Calls& calls) {
    void* const y = calls.out(type, x.size());
    float* const mean = calls.out<float>(shape.rows);
    float* const rstd = calls.out<float>(shape.rows);
    layer_norm(calls.stream, type, shape, calls.in(type, x), calls.in(gain), calls.in(bias), y,
               mean, rstd);
  });
  return {outputs[0].as(type), outputs[1].as<float>(), outputs[2].as<float>()};
}

// Goal: rows of any width are normed as the reference does it. Method: awkward shapes, all types,
// against sums in double. Tolerance: sums of fp32, 2^-24 for each of a few dozen additions in a row.
TEST_CASE("layer norm: the reference's numbers at any width") {
  for (const Rows shape : kShapes) {
    for (const Precision type : kTypes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.width);
      const std::size_t n = std::size_t{shape.rows} * shape.width;
      const Floats x = kept(type, normal(n, 1, 1.5f, 0.5f));
      const Floats gain = normal(shape.width, 2, 0.2f, 1), bias = normal(shape.width, 3, 0.1f);
      const Forward want = reference_forward(shape, x, gain, bias);
      const Forward got = forward(type, shape, x, gain, bias);
      CHECK(off(got.mean, want.mean, {1e-6}) <= 1);
      CHECK(off(got.rstd, want.rstd, {0, 2e-6}) <= 1);
      CHECK(off(got.y, want.y, Tolerance{4e-6, 2e-6}.of(type)) <= 1);
    }
  }
}

// Goal: a mean far above the deviation costs what the rounding of that mean costs and no more.
// Method: mean 1,000, deviation 1: E[x^2] - E[x]^2 of fp32 would be wrong by some 0.1.
TEST_CASE("layer norm: a large mean does not hide the deviation") {
  const Rows shape{16, 768};
  const Floats x = normal(std::size_t{16} * 768, 5, 1, 1000), gain(768, 1), bias(768, 0);
  const Forward want = reference_forward(shape, x, gain, bias);
  const Forward got = forward(Precision::kFp32, shape, x, gain, bias);
  CHECK(off(got.rstd, want.rstd, {0, 1e-5}) <= 1);
  CHECK(off(got.y, want.y, {2e-4}) <= 1);
}

struct Backward {
  Floats dx, d_gain, d_bias;
};
enum class Add { kNone, kOther, kInPlace };

// Of one shape: with nothing added, with another array added and with dx itself.
void check_gradient(Rows shape) {
  for (const Precision type : kTypes) {
    for (const Add way : {Add::kNone, Add::kOther, Add::kInPlace}) {
      // Another array is read as dx is, and 1 Mi elements take seconds: a part of the cases will do.
      if (way == Add::kOther && shape.width > 800) continue;
      if (std::size_t{shape.rows} * shape.width > 40'000 && way != Add::kInPlace) continue;
      if (shape.rows > 1000 && (way != Add::kInPlace || type == Precision::kFp32)) continue;
      CAPTURE(shape.rows);
      CAPTURE(shape.width);
      CAPTURE(static_cast<int>(way));
      const std::size_t n = std::size_t{shape.rows} * shape.width, width = shape.width;
      const Floats x = kept(type, normal(n, 1, 1.5f, 0.5f)), dy = kept(type, normal(n, 2));
      const Floats add = kept(type, normal(n, 3)), gain = normal(width, 4, 0.2f, 1);
      const Forward kept_forward = reference_forward(shape, x, gain, Floats(width));
      Backward want{Floats(n), Floats(width), Floats(width)};
      reference_kernels().layer_norm_backward(
          {shape.rows, width}, x.data(), gain.data(), kept_forward.mean.data(),
          kept_forward.rstd.data(), dy.data(), way == Add::kNone ? nullptr : add.data(),
          want.dx.data(), want.d_gain.data(), want.d_bias.data());
      const auto outputs = outputs_of([&](Calls& calls) {
        void* const dx = way == Add::kInPlace ? calls.in_out(type, add) : calls.out(type, n);
        float* const d_gain = calls.out<float>(width);
        float* const d_bias = calls.out<float>(width);
        const void* const plus = way == Add::kNone    ? nullptr
                                 : way == Add::kOther ? calls.in(type, add)
                                                      : dx;
        layer_norm_backward(calls.stream, type, shape, calls.in(type, x), calls.in(gain),
                            calls.in(kept_forward.mean), calls.in(kept_forward.rstd),
                            calls.in(type, dy), plus, dx, d_gain, d_bias,
                            calls.scratch(2 * partial_floats(width)));
      });
      // A row of one or two elements may have rstd 316 and nothing but rounding behind it.
      const double steep = width < 3 ? 316 : 1;
      CHECK(off(outputs[0].as(type), want.dx, Tolerance{4e-6 * steep, 2e-6}.of(type)) <= 1);
      CHECK(off(outputs[1].as<float>(), want.d_gain, {2e-7 * shape.rows + 1e-6, 1e-6}) <= 1);
      CHECK(off(outputs[2].as<float>(), want.d_bias, {2e-7 * shape.rows + 1e-7, 1e-6}) <= 1);
    }
  }
}
bool is_large(Rows shape) {
  return std::size_t{shape.rows} * shape.width > 30000;
}

// Goal: gradients of inputs and parameters are the reference's. Method and tolerance as above.
TEST_CASE("layer norm's gradient: the reference's numbers at any width") {
  for (const Rows shape : kShapes)
    if (!is_large(shape)) check_gradient(shape);
}

TEST_CASE("layer norm's gradient: the reference's numbers of many rows" *
          doctest::test_suite("long")) {
  for (const Rows shape : kShapes)
    if (is_large(shape)) check_gradient(shape);
}

// Goal: RMSNorm and its gradient are the reference's. Method: rows of every kind of kernel, with something added in
// place; heads of 64 and 128 numbers. Tolerance as above.
TEST_CASE("rms norm: the reference's numbers at any width, and its gradient") {
  for (const Rows shape : {Rows{1, 1}, Rows{5, 31}, Rows{40, 64}, Rows{300, 128}, Rows{17, 769},
                           Rows{3, 6145}, Rows{0, 64}})
    for (const Precision type : kTypes) {
      CAPTURE(shape.rows);
      CAPTURE(shape.width);
      const float epsilon = 1e-3f;
      const std::size_t n = std::size_t{shape.rows} * shape.width, width = shape.width;
      const Floats x = kept(type, normal(n, 1, 1.5f, 0.5f)), dy = kept(type, normal(n, 2));
      const Floats add = kept(type, normal(n, 3)), gain = normal(width, 4, 0.2f, 1);
      Floats y(n), rstd(shape.rows), dx(n), d_gain(width);
      reference_kernels().rms_norm({shape.rows, width}, epsilon, x.data(), gain.data(), y.data(),
                                   rstd.data());
      reference_kernels().rms_norm_backward({shape.rows, width}, x.data(), gain.data(), rstd.data(),
                                            dy.data(), add.data(), dx.data(), d_gain.data());
      const auto outputs = outputs_of([&](Calls& calls) {
        void* const to = calls.out(type, n);
        float* const got_rstd = calls.out<float>(shape.rows);
        void* const got_dx = calls.in_out(type, add);
        float* const got_gain = calls.out<float>(width);
        rms_norm(calls.stream, type, shape, epsilon, calls.in(type, x), calls.in(gain), to,
                 got_rstd);
        rms_norm_backward(calls.stream, type, shape, calls.in(type, x), calls.in(gain),
                          calls.in(rstd), calls.in(type, dy), got_dx, got_dx, got_gain,
                          calls.scratch(2 * partial_floats(width)));
      });
      CHECK(off(outputs[0].as(type), y, Tolerance{4e-6, 2e-6}.of(type)) <= 1);
      CHECK(off(outputs[1].as<float>(), rstd, {0, 2e-6}) <= 1);
      CHECK(off(outputs[2].as(type), dx, Tolerance{4e-6, 2e-6}.of(type)) <= 1);
      CHECK(off(outputs[3].as<float>(), d_gain, {2e-7 * shape.rows + 1e-6, 1e-6}) <= 1);
    }
}

}  // namespace
}  // namespace starling::kernels::cuda
