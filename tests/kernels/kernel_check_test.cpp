#include "kernels/cpu/kernel_check.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "core/job/layout.h"
#include "kernels/models/first_gradient.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> here{&reference_kernels()};
  if (cpu_has("avx2")) here.push_back(&avx2_kernels());
  if (cpu_has("avx512")) here.push_back(&avx512_kernels());
  return here;
}

// The kernels of `like` compute, and what a test has set here makes their results wrong.
struct Broken {
  const KernelTable* like = &reference_kernels();
  float gain = 1;  // of all results of the kernel that is broken
};
Broken broken;

void gemm_that_forgets(const Gemm& g) {
  Gemm last = g;  // what was added to c itself is lost when there is more than one chunk
  if (g.add == g.c && g.k > kGemmChunk) {
    const std::size_t skip = g.k - kGemmChunk;
    last.k = kGemmChunk;
    last.a += skip * (g.a_transposed ? g.lda : 1);
    last.b += skip * (g.b_transposed ? 1 : g.ldb);
  }
  broken.like->gemm(last);
}

void scale(float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] *= broken.gain;
}

// Calls every kernel once, in sizes beyond those of all tiles, with numbers of usual sizes.
void call_all(const KernelTable& k) {
  constexpr std::size_t kRows = 70, kWidth = 300, kN = kRows * kWidth;
  const auto a = normal(kN, 1), b = normal(kN, 2), bias = normal(kWidth, 3),
             gain = normal(kWidth, 4);
  std::vector<float> c(kN), mean(kRows), rstd(kRows), dgain(kWidth), dbias(kWidth), y(kN),
      scratch(kGemmScratch + 16);
  float* const aligned =
      scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) / 4 % 16;
  for (const bool a_t : {false, true})
    for (const bool b_t : {false, true})
      for (const Trim trim : {Trim::kNone, Trim::kLowerC}) {
        Gemm g{.m = kRows, .n = kRows, .k = kWidth};
        g.a = a.data(), g.lda = a_t ? kRows : kWidth, g.a_transposed = a_t;
        g.b = b.data(), g.ldb = b_t ? kWidth : kRows, g.b_transposed = b_t;
        g.c = c.data(), g.ldc = kRows, g.bias = bias.data(), g.trim = trim, g.scratch = aligned;
        k.gemm(g);
        g.bias = nullptr, g.add = c.data(), g.ldadd = kRows;
        k.gemm(g);
      }
  const NormShape shape{kRows, kWidth};
  k.layer_norm(shape, a.data(), gain.data(), bias.data(), y.data(), mean.data(), rstd.data());
  c = b;
  k.layer_norm_backward(shape, a.data(), gain.data(), mean.data(), rstd.data(), b.data(), c.data(),
                        c.data(), dgain.data(), dbias.data());
  k.rms_norm(shape, 1e-5f, a.data(), gain.data(), y.data(), rstd.data());
  c = b;
  k.rms_norm_backward(shape, a.data(), gain.data(), rstd.data(), b.data(), c.data(), c.data(),
                      dgain.data());
  k.swiglu(kN, a.data(), b.data(), y.data());
  c = b;
  std::vector<float> dgate(kN);
  k.swiglu_backward(kN, a.data(), b.data(), c.data(), dgate.data(), c.data(), y.data());
  c = a;
  const auto cosines = normal(kN / 2, 9), sines = normal(kN / 2, 10);
  k.rotate(kN / 2, cosines.data(), sines.data(), /*back=*/true, c.data());
  k.gelu(kN, a.data(), y.data());
  c = b;
  k.gelu_backward(kN, a.data(), c.data(), y.data());
  c = a;
  k.relu(kN, c.data());
  std::vector<float> d = b;
  k.relu_backward(kN, c.data(), d.data());
  c = normal(kRows * kRows, 5, 20);
  const CausalShape causal{kRows, kRows, 0, 50};
  k.softmax_causal(causal, 0.25f, c.data(), kRows);
  d = normal(kRows * kRows, 6);
  k.softmax_causal_backward(causal, 0.25f, c.data(), d.data(), kRows);
  std::vector<std::int32_t> targets(kRows, 7);
  c = normal(kN, 8, 5);
  k.cross_entropy(kRows, kWidth, c.data(), targets.data(), true, 0.125f);
  k.column_sums(kRows, kWidth, a.data(), dgain.data());
  k.sum(kN, a.data(), b.data(), y.data());
}

}  // namespace

TEST_CASE("kernel check: right kernels hold, with their own bits, in models of awkward sizes") {
  const ModelSpec specs[] = {
      GptSpec{.layers = 2, .heads = 3, .width = 24, .context = 11, .vocabulary = 37},
      GptSpec{.layers = 1, .heads = 2, .width = 40, .context = 300, .vocabulary = 700},
      GptSpec{.layers = 1, .heads = 1, .width = 8, .context = 1, .vocabulary = 2},
      GptSpec{.layers = 1, .heads = 1, .width = 96, .context = 8, .vocabulary = 90'000},  // cut
      MlpSpec{.sizes = {3, 2}},
      MlpSpec{.sizes = {20, 500, 31, 5}},
      LlamaSpec{.layers = 2,
                .heads = 4,
                .key_value_heads = 2,
                .head_width = 10,
                .width = 24,
                .feed_forward = 29,
                .context = 11,
                .vocabulary = 37},
      LlamaSpec{.layers = 1,
                .heads = 1,
                .key_value_heads = 1,
                .head_width = 2,
                .width = 3,
                .feed_forward = 5,
                .context = 300,
                .vocabulary = 70,
                .tied_embeddings = true}};
  const ModelSpec* const cut = &specs[3];
  for (const ModelSpec& spec : specs)
    for (const KernelTable* table : tables())
      for (const bool recompute : {false, true}) {
        if (recompute && &spec == cut) continue;  // takes seconds; the others show it
        CAPTURE(std::string(table->isa));
        CAPTURE(spec.index());
        Job job;
        job.model = spec;
        job.isa = table->isa;
        job.recompute = recompute;
        const auto model = make_model(spec, job.isa, recompute).value();
        const Layout layout(model->tensors());
        const auto device = open_device(job.isa, {}).value();
        std::vector<float> parameters(layout.elements());
        REQUIRE(model->initialise(7, layout, parameters));
        const Batch batch = batch_of(spec, 3);
        const auto plain = first_gradient(job, *model, layout, *device, parameters, batch);
        const auto checked =
            checked_first_gradient(job, *model, layout, *device, parameters, batch);
        REQUIRE(plain);
        REQUIRE_MESSAGE(checked, checked.error().text());
        CHECK(checked.value().samples > 20);
        CHECK(plain.value().samples == 0);
        CHECK(checked.value().result.loss == plain.value().result.loss);
        CHECK(std::memcmp(checked.value().gradient.data(), plain.value().gradient.data(),
                          layout.elements() * sizeof(float)) == 0);
      }
}

TEST_CASE("kernel check: every kernel is held to its formula, and the first wrong one is named") {
  // One kernel is wrong by one part in 100 in everything that it writes.
  struct Case {
    const char* named;
    void (*set)(KernelTable&);
  };
  const Case cases[] = {
      {"product", [](KernelTable& t) { t.gemm = gemm_that_forgets; }},
      {"layer norm of",
       [](KernelTable& t) {
         t.layer_norm = [](NormShape s, const float* x, const float* gain, const float* bias,
                           float* y, float* mean, float* rstd) {
           broken.like->layer_norm(s, x, gain, bias, y, mean, rstd);
           scale(y, s.rows * s.width);
         };
       }},
      {"layer norm's gradient of",
       [](KernelTable& t) {
         t.layer_norm_backward = [](NormShape s, const float* x, const float* gain,
                                    const float* mean, const float* rstd, const float* dy,
                                    const float* add, float* dx, float* dgain, float* dbias) {
           broken.like->layer_norm_backward(s, x, gain, mean, rstd, dy, add, dx, dgain, dbias);
           scale(dx, s.rows * s.width);
         };
       }},
      {"layer norm's gradient of gains",
       [](KernelTable& t) {
         t.layer_norm_backward = [](NormShape s, const float* x, const float* gain,
                                    const float* mean, const float* rstd, const float* dy,
                                    const float* add, float* dx, float* dgain, float* dbias) {
           broken.like->layer_norm_backward(s, x, gain, mean, rstd, dy, add, dx, dgain, dbias);
           scale(dgain, s.width);
         };
       }},
      {"layer norm's gradient of biases",
       [](KernelTable& t) {
         t.layer_norm_backward = [](NormShape s, const float* x, const float* gain,
                                    const float* mean, const float* rstd, const float* dy,
                                    const float* add, float* dx, float* dgain, float* dbias) {
           broken.like->layer_norm_backward(s, x, gain, mean, rstd, dy, add, dx, dgain, dbias);
           scale(dbias, s.width);
         };
       }},
      {"rms norm of",
       [](KernelTable& t) {
         t.rms_norm = [](NormShape s, float epsilon, const float* x, const float* gain, float* y,
                         float* rstd) {
           broken.like->rms_norm(s, epsilon, x, gain, y, rstd);
           scale(y, s.rows * s.width);
         };
       }},
      {"rms norm's measure",
       [](KernelTable& t) {
         t.rms_norm = [](NormShape s, float epsilon, const float* x, const float* gain, float* y,
                         float* rstd) {
           broken.like->rms_norm(s, epsilon, x, gain, y, rstd);
           scale(rstd, s.rows);
         };
       }},
      {"rms norm's gradient of",
       [](KernelTable& t) {
         t.rms_norm_backward = [](NormShape s, const float* x, const float* gain, const float* rstd,
                                  const float* dy, const float* add, float* dx, float* dgain) {
           broken.like->rms_norm_backward(s, x, gain, rstd, dy, add, dx, dgain);
           scale(dx, s.rows * s.width);
         };
       }},
      {"rms norm's gradient of gains",
       [](KernelTable& t) {
         t.rms_norm_backward = [](NormShape s, const float* x, const float* gain, const float* rstd,
                                  const float* dy, const float* add, float* dx, float* dgain) {
           broken.like->rms_norm_backward(s, x, gain, rstd, dy, add, dx, dgain);
           scale(dgain, s.width);
         };
       }},
      {"swiglu of",
       [](KernelTable& t) {
         t.swiglu = [](std::size_t n, const float* gate, const float* up, float* y) {
           broken.like->swiglu(n, gate, up, y);
           scale(y, n);
         };
       }},
      {"swiglu made again",
       [](KernelTable& t) {
         t.swiglu_backward = [](std::size_t n, const float* gate, const float* up, const float* dy,
                                float* dgate, float* dup, float* y) {
           broken.like->swiglu_backward(n, gate, up, dy, dgate, dup, y);
           scale(y, n);
         };
       }},
      {"swiglu's gradient of what",
       [](KernelTable& t) {
         t.swiglu_backward = [](std::size_t n, const float* gate, const float* up, const float* dy,
                                float* dgate, float* dup, float* y) {
           broken.like->swiglu_backward(n, gate, up, dy, dgate, dup, y);
           scale(dup, n);
         };
       }},
      {"swiglu's gradient of gates",
       [](KernelTable& t) {
         t.swiglu_backward = [](std::size_t n, const float* gate, const float* up, const float* dy,
                                float* dgate, float* dup, float* y) {
           broken.like->swiglu_backward(n, gate, up, dy, dgate, dup, y);
           scale(dgate, n);
         };
       }},
      {"rotation of",
       [](KernelTable& t) {
         t.rotate = [](std::size_t n, const float* cosines, const float* sines, bool back,
                       float* x) {
           broken.like->rotate(n, cosines, sines, back, x);
           scale(x, n);
         };
       }},
      {"gelu of",
       [](KernelTable& t) {
         t.gelu = [](std::size_t n, const float* u, float* g) {
           broken.like->gelu(n, u, g);
           scale(g, n);
         };
       }},
      {"gelu's gradient",
       [](KernelTable& t) {
         t.gelu_backward = [](std::size_t n, const float* u, float* d, float* g) {
           broken.like->gelu_backward(n, u, d, g);
           scale(d, n);
         };
       }},
      {"gelu made again",
       [](KernelTable& t) {
         t.gelu_backward = [](std::size_t n, const float* u, float* d, float* g) {
           broken.like->gelu_backward(n, u, d, g);
           scale(g, n);
         };
       }},
      {"relu of",
       [](KernelTable& t) {
         t.relu = [](std::size_t n, float* y) {
           broken.like->relu(n, y);
           scale(y, n);
         };
       }},
      {"relu's gradient",
       [](KernelTable& t) {
         t.relu_backward = [](std::size_t n, const float* y, float* d) {
           broken.like->relu_backward(n, y, d);
           scale(d, n);
         };
       }},
      {"softmax of",
       [](KernelTable& t) {
         t.softmax_causal = [](const CausalShape& n, float by, float* s, std::size_t ld) {
           broken.like->softmax_causal(n, by, s, ld);
           scale(s, n.rows * ld);
         };
       }},
      {"softmax's gradient",
       [](KernelTable& t) {
         t.softmax_causal_backward = [](const CausalShape& n, float by, const float* p, float* d,
                                        std::size_t ld) {
           broken.like->softmax_causal_backward(n, by, p, d, ld);
           scale(d, n.rows * ld);
         };
       }},
      {"cross entropy's gradient",
       [](KernelTable& t) {
         t.cross_entropy = [](std::size_t rows, std::size_t classes, float* x,
                              const std::int32_t* targets, bool gradient, float by) {
           const double loss = broken.like->cross_entropy(rows, classes, x, targets, gradient, by);
           if (gradient) scale(x, rows * classes);
           return loss;
         };
       }},
      {"cross entropy of",
       [](KernelTable& t) {
         t.cross_entropy = [](std::size_t rows, std::size_t classes, float* x,
                              const std::int32_t* targets, bool gradient, float by) {
           return broken.gain * broken.like->cross_entropy(rows, classes, x, targets, gradient, by);
         };
       }},
      {"sum of columns",
       [](KernelTable& t) {
         t.column_sums = [](std::size_t rows, std::size_t n, const float* x, float* sums) {
           broken.like->column_sums(rows, n, x, sums);
           scale(sums, n);
         };
       }},
      {"sum of", [](KernelTable& t) {
         t.sum = [](std::size_t n, const float* x, const float* y, float* z) {
           broken.like->sum(n, x, y, z);
           scale(z, n);
         };
       }}};
  for (const KernelTable* right : tables()) {
    {
      const KernelCheck check(*right);
      call_all(KernelCheck::table());
      CHECK_MESSAGE(check.held(), check.held().error().text());
    }
    for (const Case& c : cases) {
      CAPTURE(c.named);
      broken = {right, 1.01f};
      KernelTable wrong = *right;
      c.set(wrong);
      const KernelCheck check(wrong);
      call_all(KernelCheck::table());
      REQUIRE_FALSE(check.held());
      CHECK(check.held().error().code() == Code::kBadInput);
      const std::string text = check.held().error().text();
      CHECK_MESSAGE(text.find(std::string(right->isa) + "'s " + c.named) != std::string::npos,
                    text);
    }
  }
}

TEST_CASE("kernel check: numbers that are not finite, and sums that overflow, show nothing") {
  for (const KernelTable* table : tables()) {
    const KernelCheck check(*table);
    for (const float odd : {INFINITY, static_cast<float>(NAN), 3e38f, -3e38f}) {
      std::vector<float> a = normal(64, 1), b = normal(64, 2), c(64), scratch(kGemmScratch + 16);
      a[9] = b[3] = odd;
      Gemm g{.m = 8, .n = 8, .k = 8};
      g.a = a.data(), g.b = b.data(), g.c = c.data(), g.lda = g.ldb = g.ldc = 8;
      g.scratch =
          scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) / 4 % 16;
      KernelCheck::table().gemm(g);
      KernelCheck::table().column_sums(8, 8, a.data(), c.data());
      KernelCheck::table().softmax_causal({8, 8}, 0.5f, a.data(), 8);
    }
    CHECK_MESSAGE(check.held(), check.held().error().text());
  }
}

}  // namespace starling::kernels
