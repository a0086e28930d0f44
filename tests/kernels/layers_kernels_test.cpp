// The fast kernels against the reference kernels, and what they promise about bits and memory.

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/cpu/table.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

std::vector<const KernelTable*> fast_tables() {
  std::vector<const KernelTable*> tables;
  if (cpu_has("avx2")) tables.push_back(&avx2_kernels());
  if (cpu_has("avx512")) tables.push_back(&avx512_kernels());
  if (tables.empty()) MESSAGE("skipped: this CPU has no AVX2");
  return tables;
}

constexpr float kCanary = 12345.0f;

// n numbers that begin `shift` floats after a 64-byte boundary, with canaries on both sides.
class Buffer {
 public:
  Buffer(std::size_t n, std::size_t shift, float value = 0) : n_(n), memory_(n + 64, kCanary) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = 16 - address / 4 % 16 + 16 + shift;
    std::fill_n(data(), n, value);
  }
  Buffer(const std::vector<float>& values, std::size_t shift) : Buffer(values.size(), shift) {
    std::copy(values.begin(), values.end(), data());
  }
  float* data() { return memory_.data() + begin_; }
  bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < begin_ || i >= begin_ + n_) && memory_[i] != kCanary) return false;
    return true;
  }
  std::vector<float> values() { return {data(), data() + n_}; }

 private:
  std::size_t n_, begin_ = 0;
  std::vector<float> memory_;
};

// The largest difference, over `scale` or the largest reference.
double off(const std::vector<float>& got, const std::vector<float>& want, double scale = 0) {
  REQUIRE(got.size() == want.size());
  double difference = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double d = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (!(d <= difference)) difference = d;
    scale = std::max(scale, std::fabs(static_cast<double>(want[i])));
  }
  return difference / scale;
}

struct Product {
  std::size_t m, n, k;
  bool a_transposed = false, b_transposed = false, bias = false, add = false;
  Trim trim = Trim::kNone;
};

// Trimmed operands have their zeros; leading dimensions are longer than rows; buffers begin `shift`
// floats off a boundary.
std::vector<float> multiply(const KernelTable& kernels, const Product& p, std::size_t shift) {
  constexpr std::size_t kGap = 5;
  Gemm g{.m = p.m, .n = p.n, .k = p.k};
  g.a_transposed = p.a_transposed, g.b_transposed = p.b_transposed;
  g.lda = (p.a_transposed ? p.m : p.k) + kGap;
  g.ldb = (p.b_transposed ? p.k : p.n) + kGap;
  g.ldc = p.n + kGap, g.ldadd = p.n;
  g.trim = p.trim;
  auto a = normal((p.a_transposed ? p.k : p.m) * g.lda, 1);
  for (std::size_t i = 0; i < p.m; ++i) {
    for (std::size_t k = 0; k < p.k; ++k) {
      const bool zero = (p.trim == Trim::kLowerA && k > i) || (p.trim == Trim::kUpperA && k < i);
      if (zero) a[p.a_transposed ? k * g.lda + i : i * g.lda + k] = 0;
    }
  }
  Buffer fa(a, shift), fb(normal((p.b_transposed ? p.n : p.k) * g.ldb, 2), shift);
  Buffer bias(normal(p.n, 3), shift), add(normal(p.m * p.n, 4), shift);
  Buffer c(p.m * g.ldc, shift, kCanary), scratch(kGemmScratch, 0);
  g.a = fa.data(), g.b = fb.data(), g.c = c.data(), g.scratch = scratch.data();
  if (p.bias) g.bias = bias.data();
  if (p.add) g.add = add.data();
  kernels.gemm(g);
  CHECK(c.intact());
  CHECK(scratch.intact());
  std::vector<float> wanted;
  for (std::size_t i = 0; i < p.m; ++i) {
    for (std::size_t j = 0; j < p.n; ++j)
      wanted.push_back(p.trim == Trim::kLowerC && j > i ? 0 : c.data()[i * g.ldc + j]);
    for (std::size_t j = p.n; j < g.ldc; ++j) CHECK(c.data()[i * g.ldc + j] == kCanary);
  }
  return wanted;
}

// Goal: products of any shape are right, stay in their memory, and have the same bits on every
// vector width and at every address. Method: all transposes, trims and epilogues over awkward
// shapes, against sums in double; 6 and 12 rows, 16 and 32 columns and 256 products are the borders
// of the tiles.
TEST_CASE(
    "products: every shape, transpose and trim is right, with bits that depend on nothing else") {
  std::vector<Product> products;
  for (const std::size_t m : {1u, 5u, 6u, 13u, 400u})
    for (const std::size_t n : {1u, 8u, 16u, 31u, 33u})
      for (const std::size_t k : {1u, 7u, 256u, 300u})
        for (int t = 0; t < 4; ++t)
          products.push_back({m, n, k, (t & 1) != 0, (t & 2) != 0, m % 2 == 0, k % 2 == 0});
  for (const std::size_t t : {1u, 6u, 16u, 50u, 300u}) {
    products.push_back({t, t, 24, false, true, false, false, Trim::kLowerC});
    products.push_back({t, 24, t, false, false, false, false, Trim::kLowerA});
    products.push_back({t, 24, t, true, false, false, false, Trim::kUpperA});
  }
  products.push_back({20, kGemmPackedB + 17, 20, false, true});  // B does not fit its place
  products.push_back({400, kGemmPackedB + 17, 270, true, false, true, true});
  const auto tables = fast_tables();
  for (const Product& p : products) {
    CAPTURE(p.m);
    CAPTURE(p.n);
    CAPTURE(p.k);
    const auto want = multiply(reference_kernels(), p, 0);
    std::vector<float> first;
    for (const KernelTable* table : tables) {
      const auto got = multiply(*table, p, 0);
      // A chain of 256 products of size 1 has a rounding error of about 3e-7 of the root of k.
      CHECK(off(got, want, std::sqrt(static_cast<double>(p.k))) < 1.2e-6);
      CHECK(same_bits(multiply(*table, p, 3), got));
      if (first.empty()) first = got;
      CHECK(same_bits(got, first));
    }
  }
}

// Goal: a product may be added to what is there. Method: depths around those of chunks, of which only the
// first may see what was there.
TEST_CASE("products: what is added may be the result's own memory, whatever the depth") {
  constexpr std::size_t kM = 13, kN = 33;
  std::vector<const KernelTable*> tables = fast_tables();
  tables.push_back(&reference_kernels());
  for (const std::size_t k :
       {std::size_t{1}, kGemmChunk - 1, kGemmChunk, kGemmChunk + 1, std::size_t{600}}) {
    CAPTURE(k);
    auto a = normal(kM * k, 1), b = normal(k * kN, 2);
    const auto there = normal(kM * kN, 4, 30);
    std::vector<float> want;
    for (std::size_t i = 0; i < kM; ++i)
      for (std::size_t j = 0; j < kN; ++j) {
        double sum = there[i * kN + j];
        for (std::size_t d = 0; d < k; ++d) sum += double{a[i * k + d]} * b[d * kN + j];
        want.push_back(static_cast<float>(sum));
      }
    std::vector<float> fast;
    for (const KernelTable* kernels : tables) {
      Buffer c(there, 0), scratch(kGemmScratch, 0);
      Gemm g{.m = kM, .n = kN, .k = k};
      g.a = a.data(), g.lda = k, g.b = b.data(), g.ldb = kN;
      g.c = c.data(), g.ldc = kN, g.add = c.data(), g.ldadd = kN, g.scratch = scratch.data();
      kernels->gemm(g);
      CHECK(off(c.values(), want) < 1e-6);
      if (kernels == tables.back()) continue;
      if (fast.empty()) fast = c.values();
      CHECK(same_bits(c.values(), fast));
    }
  }
}

TEST_CASE("products: a row's bits do not depend on the number of rows") {
  for (const KernelTable* table : fast_tables()) {
    const auto all = multiply(*table, {.m = 100, .n = 40, .k = 300}, 0);
    for (const std::size_t m : {1u, 2u, 7u, 50u}) {
      const auto some = multiply(*table, {.m = m, .n = 40, .k = 300}, 0);
      CHECK(same_bits(some, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(m * 40)}));
    }
  }
}

// One kernel under test: fills its outputs from its inputs with the given table and shift.
using Outputs = std::vector<std::vector<float>>;

Outputs layer_norms(const KernelTable& k, std::size_t rows, std::size_t width, std::size_t shift) {
  Buffer x(normal(rows * width, 5, 3), shift), gain(normal(width, 6), shift);
  Buffer bias(normal(width, 7), shift), dy(normal(rows * width, 8), shift);
  Buffer add(normal(rows * width, 9), shift);
  Buffer y(rows * width, shift), mean(rows, shift), rstd(rows, shift), dx(rows * width, shift);
  Buffer dgain(width, shift), dbias(width, shift), bare(rows * width, shift);
  k.layer_norm({rows, width}, x.data(), gain.data(), bias.data(), y.data(), mean.data(),
               rstd.data());
  k.layer_norm_backward({rows, width}, x.data(), gain.data(), mean.data(), rstd.data(), dy.data(),
                        add.data(), dx.data(), dgain.data(), dbias.data());
  k.layer_norm_backward({rows, width}, x.data(), gain.data(), mean.data(), rstd.data(), dy.data(),
                        nullptr, bare.data(), dgain.data(), dbias.data());
  for (const Buffer* b : {&y, &mean, &rstd, &dx, &dgain, &dbias, &bare}) CHECK(b->intact());
  return {y.values(), dx.values(), dgain.values(), dbias.values(), bare.values()};
}

Outputs gelus(const KernelTable& k, std::size_t rows, std::size_t width, std::size_t shift) {
  const std::size_t n = rows * width;
  Buffer u(normal(n, 10, 2), shift), d(normal(n, 11), shift), g(n, shift), again(n, shift);
  k.gelu(n, u.data(), g.data());
  k.gelu_backward(n, u.data(), d.data(), again.data());
  CHECK(g.intact());
  CHECK(d.intact());
  return {g.values(), d.values(), again.values()};
}

Outputs rms_norms(const KernelTable& k, std::size_t rows, std::size_t width, std::size_t shift) {
  Buffer x(normal(rows * width, 5, 3), shift), gain(normal(width, 6), shift);
  Buffer dy(normal(rows * width, 8), shift), add(normal(rows * width, 9), shift);
  Buffer y(rows * width, shift), rstd(rows, shift), dx(rows * width, shift);
  Buffer dgain(width, shift), bare(rows * width, shift);
  k.rms_norm({rows, width}, 1e-5f, x.data(), gain.data(), y.data(), rstd.data());
  k.rms_norm_backward({rows, width}, x.data(), gain.data(), rstd.data(), dy.data(), add.data(),
                      dx.data(), dgain.data());
  k.rms_norm_backward({rows, width}, x.data(), gain.data(), rstd.data(), dy.data(), nullptr,
                      bare.data(), dgain.data());
  for (const Buffer* b : {&y, &rstd, &dx, &dgain, &bare}) CHECK(b->intact());
  return {y.values(), rstd.values(), dx.values(), dgain.values(), bare.values()};
}

Outputs swiglus(const KernelTable& k, std::size_t rows, std::size_t width, std::size_t shift) {
  const std::size_t n = rows * width;
  Buffer gate(normal(n, 18, 3), shift), up(normal(n, 19), shift), dy(normal(n, 20), shift);
  Buffer y(n, shift), again(n, shift), dgate(n, shift);
  k.swiglu(n, gate.data(), up.data(), y.data());
  k.swiglu_backward(n, gate.data(), up.data(), dy.data(), dgate.data(), /*dup=*/dy.data(),
                    again.data());
  for (const Buffer* b : {&y, &again, &dgate, &dy}) CHECK(b->intact());
  CHECK(off(again.values(), y.values(), 1e-3) < 5e-7);
  return {y.values(), dgate.values(), dy.values()};
}

Outputs rotations(const KernelTable& k, std::size_t rows, std::size_t width, std::size_t shift) {
  const std::size_t n = rows * width;
  Buffer x(normal(2 * n, 21), shift), cosines(n, shift), sines(n, shift);
  for (std::size_t i = 0; i < n; ++i) {
    cosines.data()[i] = std::cos(static_cast<float>(i));
    sines.data()[i] = std::sin(static_cast<float>(i));
  }
  const auto before = x.values();
  k.rotate(n, cosines.data(), sines.data(), /*back=*/false, x.data());
  const auto turned = x.values();
  k.rotate(n, cosines.data(), sines.data(), /*back=*/true, x.data());
  CHECK(x.intact());
  CHECK(off(x.values(), before, 1) < 5e-7);
  return {turned};
}

Outputs relus(const KernelTable& k, std::size_t rows, std::size_t width, std::size_t shift) {
  const std::size_t n = rows * width;
  Buffer y(normal(n, 12), shift), d(normal(n, 13), shift);
  k.relu(n, y.data());
  k.relu_backward(n, y.data(), d.data());
  CHECK(y.intact());
  CHECK(d.intact());
  return {y.values(), d.values()};
}

// All of a square; a window; and rows from the middle, as of a block of a longer context.
Outputs softmaxes(const KernelTable& k, std::size_t rows, std::size_t t, std::size_t shift) {
  Outputs outputs;
  for (const CausalShape& shape : {CausalShape{t, t}, CausalShape{t, t, 0, 1 + t / 3},
                                   CausalShape{rows, rows + t, t - 1, 1 + t / 2}}) {
    const std::size_t n = shape.rows * shape.columns;
    Buffer p(normal(n, 14, 20), shift), d(normal(n, 15), shift);
    k.softmax_causal(shape, 0.25f, p.data(), shape.columns);
    k.softmax_causal_backward(shape, 0.25f, p.data(), d.data(), shape.columns);
    CHECK(p.intact());
    CHECK(d.intact());
    outputs.push_back(p.values());
    outputs.push_back(d.values());
  }
  return outputs;
}

Outputs entropies(const KernelTable& k, std::size_t rows, std::size_t classes, std::size_t shift) {
  std::vector<std::int32_t> targets;
  for (std::size_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r % classes));
  Buffer x(normal(rows * classes, 16, 5), shift);
  const auto before = x.values();
  const double loss = k.cross_entropy(rows, classes, x.data(), targets.data(), false, 1);
  CHECK(same_bits(x.values(), before));
  CHECK(k.cross_entropy(rows, classes, x.data(), targets.data(), true, 0.125f) == loss);
  CHECK(x.intact());
  return {x.values(), {static_cast<float>(loss)}};
}

Outputs sums(const KernelTable& k, std::size_t rows, std::size_t width, std::size_t shift) {
  Buffer x(normal(rows * width, 17), shift), s(width, shift), y(rows * width, shift);
  k.column_sums(rows, width, x.data(), s.data());
  k.sum(rows * width, x.data(), x.data(), y.data());
  CHECK(s.intact());
  CHECK(y.intact());
  return {s.values(), y.values()};
}

TEST_CASE("vector kernels: every length agrees with the formulae, and bits ignore the address") {
  struct Case {
    const char* name;
    Outputs (*run)(const KernelTable&, std::size_t, std::size_t, std::size_t);
    double bound;
  };
  const Case cases[] = {
      {"layer norm", layer_norms, 4e-6}, {"rms norm", rms_norms, 4e-6},      {"gelu", gelus, 5e-7},
      {"swiglu", swiglus, 1e-6},         {"rotation", rotations, 3e-7},      {"relu", relus, 0},
      {"softmax", softmaxes, 1e-5},      {"cross entropy", entropies, 2e-6}, {"sums", sums, 1e-6}};
  for (const KernelTable* table : fast_tables()) {
    for (const Case& c : cases) {
      for (const std::size_t rows : {1u, 3u, 70u}) {
        for (const std::size_t width : {2u, 7u, 8u, 9u, 16u, 29u, 100u}) {
          CAPTURE(c.name);
          CAPTURE(rows);
          CAPTURE(width);
          const Outputs want = c.run(reference_kernels(), rows, width, 0);
          const Outputs got = c.run(*table, rows, width, 0), moved = c.run(*table, rows, width, 3);
          for (std::size_t i = 0; i < want.size(); ++i) {
            CAPTURE(i);
            CHECK(off(got[i], want[i], 1e-3) <= c.bound);
            CHECK(same_bits(moved[i], got[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("vector kernels: extremes stay finite, and what is not finite is seen") {
  std::vector<const KernelTable*> tables = fast_tables();
  tables.push_back(&reference_kernels());
  for (const KernelTable* table : tables) {
    CAPTURE(table->isa);
    std::vector<float> u{-1e4f, -100, -20, -1e-30f, 0, 1e-30f, 20, 100, 1e4f}, d(9, 1.0f), g(9);
    table->gelu_backward(9, u.data(), d.data(), g.data());
    CHECK(std::fabs(g[0]) < 1e-30f);
    CHECK(g[8] == 1e4f);
    CHECK(std::fabs(d[0]) < 1e-20f);
    CHECK(d[8] == 1);
    std::vector<float> up(9, 1.0f), dup(9, 1.0f), dgate(9);
    table->swiglu_backward(9, u.data(), up.data(), dup.data(), dgate.data(), dup.data(), g.data());
    CHECK(std::fabs(g[0]) < 1e-30f);
    CHECK(g[8] == 1e4f);
    CHECK(std::fabs(dgate[0]) < 1e-30f);
    CHECK(dgate[8] == 1);
    CHECK(dgate[4] == doctest::Approx(0.5));
    const std::int32_t target = 0;
    std::vector<float> far{-500, 500, 0};
    CHECK(table->cross_entropy(1, 3, far.data(), &target, true, 1) == doctest::Approx(1000));
    CHECK(far[0] == doctest::Approx(-1));
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (std::size_t i = 0; i < 21; ++i) {
        std::vector<float> x(21, 3e38f);
        x[i] = bad;
        if (std::isnan(bad))
          CHECK(std::isnan(table->cross_entropy(1, 21, x.data(), &target, true, 1)));
      }
    }
  }
}

TEST_CASE("kernel tables: names are resolved, and unknown ones refused") {
  const auto best = kernel_table("auto");
  REQUIRE(best);
  CHECK(cpu_has(best.value()->isa));
  CHECK(std::string(kernel_table("reference").value()->isa) == "reference");
  for (const char* isa : {"avx2", "avx512"}) {
    const auto named = kernel_table(isa);
    CHECK(named.has_value() == cpu_has(isa));
    if (named) CHECK(std::string(named.value()->isa) == isa);
    if (!named) CHECK(named.error().text().find(isa) != std::string::npos);
  }
  for (const char* isa : {"", "AVX2", "neon"}) {
    REQUIRE_FALSE(kernel_table(isa));
    CHECK(kernel_table(isa).error().code() == Code::kBadInput);
  }
}

}  // namespace
}  // namespace starling::kernels
