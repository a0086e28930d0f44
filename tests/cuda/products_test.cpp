#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/layers.h"
#include "tests/cuda/device_matrix.h"
#include "tests/cuda/orders.h"
#include "tests/cuda/products_rig.h"

namespace starling::kernels::cuda {
namespace {

TEST_CASE("own products of awkward sizes are those of plain loops") {
  const auto products = own_products();
  for (const ProductCase& c : awkward_products()) check_product(*products, c, /*twice=*/false);
}

TEST_CASE("own products with everything that may follow them are those of plain loops") {
  const auto products = own_products();
  for (const ProductCase& c : followed_products()) check_product(*products, c, /*twice=*/false);
}

// Tiles are walked in groups of eight rows of tiles; these are nine rows and two columns of them.
TEST_CASE("own products with many tiles are those of plain loops") {
  const auto products = own_products();
  for (const Precision type : kTypes)
    check_product(*products, {.m = 1100, .n = 150, .k = 3, .in = type, .out = type},
                  /*twice=*/false);
}

// Goal: what is documented of fp32. Method: the same chains of fused multiply-adds, bit by bit.
TEST_CASE("own fp32 products are one chain of fused multiply-adds in rising k") {
  for (const bool transposed : {false, true}) {
    const ProductRun run({.m = 67,
                          .n = 131,
                          .k = 77,
                          .a_transposed = transposed,
                          .b_transposed = transposed,
                          .pad = transposed ? std::size_t{1} : 0});
    multiply(nullptr, run.product());
    const std::vector<std::uint32_t> bits = run.c().bits();
    std::size_t different = 0;
    for (std::size_t i = 0; i < 67; ++i)
      for (std::size_t j = 0; j < 131; ++j) {
        float sum = 0;
        for (std::size_t k = 0; k < 77; ++k)
          sum = std::fma(static_cast<float>(transposed ? run.a()(k, i) : run.a()(i, k)),
                         static_cast<float>(transposed ? run.b()(j, k) : run.b()(k, j)), sum);
        different += std::bit_cast<std::uint32_t>(sum) != bits[i * 131 + j];
      }
    CHECK(different == 0);
  }
}

TEST_CASE("own products have the same bits in every order of threads") {
  for (const Precision type : kTypes)
    for (const bool transposed : {false, true}) {
      std::vector<std::uint32_t> first;
      in_every_order([&] {
        const ProductRun run({.m = 130,
                              .n = 140,
                              .k = 72,
                              .in = type,
                              .out = type,
                              .a_transposed = transposed,
                              .b_transposed = transposed,
                              .pad = 4,
                              .epilogue = Epilogue::kGelu,
                              .bias = true,
                              .adds = Adds::kItself});
        multiply(nullptr, run.product());
        std::vector<std::uint32_t> bits = run.c().bits();
        for (const std::uint32_t word : run.aux().bits()) bits.push_back(word);
        if (first.empty()) first = bits;
        CHECK(bits == first);
      });
    }
}

// Goal: an element's bits depend on its row, its column and k alone. Method: aligned memory, memory at
// odd places, and the product of one row.
TEST_CASE("own products have the same bits wherever operands lie") {
  for (const Precision type : kTypes) {
    ProductCase c{.m = 70, .n = 136, .k = 80, .in = type, .out = type, .bias = true};
    const ProductRun aligned(c);
    multiply(nullptr, aligned.product());
    c.pad = 3, c.offset = 1;
    const ProductRun odd(c);
    multiply(nullptr, odd.product());
    CHECK(aligned.c().bits() == odd.c().bits());

    const DeviceMatrix row = DeviceMatrix::empty(type, {1, c.n, c.n});
    Product one = aligned.product();
    one.m = 1;
    one.a = static_cast<const std::byte*>(one.a) + 69 * one.lda * bytes_of(type);
    one.c = row.data();
    multiply(nullptr, one);
    const std::vector<std::uint32_t> all = aligned.c().bits();
    CHECK(row.bits() == std::vector<std::uint32_t>(all.end() - c.n, all.end()));
  }
}

TEST_CASE("a product of no depth is its bias, and one without elements is nothing") {
  const ProductRun run({.m = 3, .n = 9, .k = 1, .bias = true});
  Product p = run.product();
  p.k = 0;
  multiply(nullptr, p);
  const std::vector<double> c = run.c().read();
  for (std::size_t i = 0; i < c.size(); ++i) CHECK(c[i] == run.bias()(0, i % 9));
  p.m = 0;
  multiply(nullptr, p);
  finish(nullptr, p);
}

// Goal: a plain product that is finished is the product. Method: fp32, where nothing is lost between.
TEST_CASE("a product in two parts has the bits of the whole") {
  for (const unsigned epilogue : {0u, 1u, 2u, 3u, 4u})
    for (const std::size_t pad : {std::size_t{0}, std::size_t{1}}) {
      CAPTURE(epilogue);
      const ProductCase c{.m = 20,
                          .n = 130,
                          .k = 40,
                          .pad = pad,
                          .epilogue = static_cast<Epilogue>(epilogue),
                          .bias = true,
                          .adds = Adds::kOther};
      const ProductRun whole(c), parts(c);
      multiply(nullptr, whole.product());
      Product plain = parts.product();
      plain.bias = nullptr, plain.add = nullptr, plain.epilogue = Epilogue::kNone;
      multiply(nullptr, plain);
      finish(nullptr, parts.product());
      CHECK(whole.c().bits() == parts.c().bits());
      CHECK(whole.aux().bits() == parts.aux().bits());
    }
}

// Goal: the same meaning as on the CPU. Method: its kernels, one after another.
TEST_CASE("own products and what follows them are those of the CPU's kernels") {
  const KernelTable& cpu = reference_kernels();
  constexpr std::size_t kM = 40, kN = 72, kK = 48;
  const auto floats = [](const DeviceMatrix& from, std::size_t rows, std::size_t columns) {
    std::vector<float> values;
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) values.push_back(static_cast<float>(from(i, j)));
    return values;
  };
  for (const unsigned epilogue : {1u, 2u, 3u}) {
    CAPTURE(epilogue);
    const ProductRun run({.m = kM,
                          .n = kN,
                          .k = kK,
                          .b_transposed = true,
                          .epilogue = static_cast<Epilogue>(epilogue),
                          .bias = true});
    multiply(nullptr, run.product());
    const std::vector<float> a = floats(run.a(), kM, kK), b = floats(run.b(), kN, kK),
                             bias = floats(run.bias(), 1, kN);
    std::vector<float> c(kM * kN), other(kM * kN), scratch(kGemmScratch);
    cpu.gemm({.m = kM,
              .n = kN,
              .k = kK,
              .a = a.data(),
              .lda = kK,
              .b = b.data(),
              .ldb = kK,
              .b_transposed = true,
              .c = c.data(),
              .ldc = kN,
              .bias = bias.data(),
              .scratch = scratch.data()});
    if (epilogue == 1) {
      cpu.gelu(c.size(), c.data(), other.data());
      c.swap(other);
    }
    if (epilogue == 2) {
      const std::vector<float> u = floats(run.aux(), kM, kN);
      cpu.gelu_backward(c.size(), u.data(), c.data(), other.data());
    }
    if (epilogue == 3) cpu.relu(c.size(), c.data());
    const std::vector<double> got = run.c().read();
    double worst = 0;
    for (std::size_t i = 0; i < c.size(); ++i) worst = std::max(worst, std::abs(got[i] - c[i]));
    CHECK(worst < 2e-5);  // sums of 48 products of magnitude 1 in fp32
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
