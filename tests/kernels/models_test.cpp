#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "kernels/cpu/portable_math.h"
#include "kernels/cpu/table.h"
#include "kernels/models/model.h"
#include "kernels/models/normal.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

const GptSpec kGpt{.layers = 2, .heads = 3, .width = 24, .context = 11, .vocabulary = 37};
const MlpSpec kMlp{{13, 19, 7, 5}};
// Groups of two, heads whose widths are not the model's, waves of all three kinds.
const LlamaSpec kLlama{.layers = 2,
                       .heads = 4,
                       .key_value_heads = 2,
                       .head_width = 10,
                       .width = 24,
                       .feed_forward = 29,
                       .context = 11,
                       .vocabulary = 37,
                       .norm_epsilon = 1e-6,
                       .rope_theta = 500,
                       .rope_scaling = RopeScaling::kLlama3,
                       .rope_factor = 4,
                       .rope_low_freq_factor = 1,
                       .rope_high_freq_factor = 4,
                       .rope_original_context = 40};
const LlamaSpec kTied{.layers = 1,
                      .heads = 3,
                      .key_value_heads = 1,
                      .head_width = 8,
                      .width = 24,
                      .feed_forward = 40,
                      .context = 7,
                      .vocabulary = 37,
                      .tied_embeddings = true};
const LlamaSpec kNormed = [] {
  LlamaSpec spec = kTied;
  spec.query_key_norm = true;
  return spec;
}();
// Biases, and a window that several bands of rows see.
const LlamaSpec kWindowed{.layers = 1,
                          .heads = 2,
                          .key_value_heads = 1,
                          .head_width = 6,
                          .width = 12,
                          .feed_forward = 20,
                          .context = 131,
                          .vocabulary = 37,
                          .window = 29,
                          .query_key_value_bias = true};

// Initial parameters, with gains and biases moved from 1 and 0 so that nothing cancels.
std::vector<float> parameters_of(const Model& model, bool jitter = true) {
  const Layout layout(model.tensors());
  std::vector<float> p(layout.elements());
  REQUIRE(model.initialise(7, layout, p));
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.1f);
  for (const TensorPlace& place : layout.tensors())
    for (std::size_t i = 0; jitter && i < place.spec.elements(); ++i)
      p[std::size_t{place.first_block} * kBlock + i] += normal(random);
  return p;
}

TEST_CASE("models: tensors are those of the published files") {
  const auto gpt = model_of(kGpt);
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> want{
      {"wte.weight", {37, 24}},
      {"wpe.weight", {11, 24}},
      {"h.0.ln_1.weight", {24}},
      {"h.0.ln_1.bias", {24}},
      {"h.0.attn.c_attn.weight", {24, 72}},
      {"h.0.attn.c_attn.bias", {72}},
      {"h.0.attn.c_proj.weight", {24, 24}},
      {"h.0.attn.c_proj.bias", {24}},
      {"h.0.ln_2.weight", {24}},
      {"h.0.ln_2.bias", {24}},
      {"h.0.mlp.c_fc.weight", {24, 96}},
      {"h.0.mlp.c_fc.bias", {96}},
      {"h.0.mlp.c_proj.weight", {96, 24}},
      {"h.0.mlp.c_proj.bias", {24}},
  };
  REQUIRE(gpt->tensors().size() == 2 + 2 * 12 + 2);
  for (std::size_t i = 0; i < want.size(); ++i) {
    CHECK(gpt->tensors()[i].name == want[i].first);
    CHECK(gpt->tensors()[i].shape == want[i].second);
  }
  CHECK(gpt->tensors()[14].name == "h.1.ln_1.weight");
  CHECK(gpt->tensors()[26].name == "ln_f.weight");
  CHECK(gpt->tensors()[27].name == "ln_f.bias");
  const auto mlp = model_of(kMlp);
  REQUIRE(mlp->tensors().size() == 6);
  CHECK(mlp->tensors()[2].name == "fc1.weight");
  CHECK(mlp->tensors()[2].shape == std::vector<std::uint64_t>{19, 7});
  CHECK(mlp->tensors()[5].name == "fc2.bias");
}

TEST_CASE("models: a llama's tensors are those of the published files, but for their prefix") {
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> want{
      {"embed_tokens.weight", {37, 24}},
      {"layers.0.input_layernorm.weight", {24}},
      {"layers.0.self_attn.q_proj.weight", {40, 24}},
      {"layers.0.self_attn.k_proj.weight", {20, 24}},
      {"layers.0.self_attn.v_proj.weight", {20, 24}},
      {"layers.0.self_attn.o_proj.weight", {24, 40}},
      {"layers.0.post_attention_layernorm.weight", {24}},
      {"layers.0.mlp.gate_proj.weight", {29, 24}},
      {"layers.0.mlp.up_proj.weight", {29, 24}},
      {"layers.0.mlp.down_proj.weight", {24, 29}},
      {"layers.1.input_layernorm.weight", {24}},
  };
  const auto llama = model_of(kLlama);
  REQUIRE(llama->tensors().size() == 1 + 2 * 9 + 2);
  for (std::size_t i = 0; i < want.size(); ++i) {
    CHECK(llama->tensors()[i].name == want[i].first);
    CHECK(llama->tensors()[i].shape == want[i].second);
  }
  CHECK(llama->tensors()[19].name == "norm.weight");
  CHECK(llama->tensors()[20].name == "lm_head.weight");
  const auto has = [](const Model& model, const std::string& name) {
    return std::ranges::find(model.tensors(), name, &TensorSpec::name) != model.tensors().end();
  };
  CHECK(has(*model_of(kNormed), "layers.0.self_attn.q_norm.weight"));
  CHECK(has(*model_of(kWindowed), "layers.0.self_attn.v_proj.bias"));
  CHECK_FALSE(has(*model_of(kWindowed), "layers.0.self_attn.o_proj.bias"));
  CHECK_FALSE(has(*llama, "layers.0.self_attn.q_proj.bias"));
  const auto tied = model_of(kTied);
  CHECK(tied->tensors().back().name == "norm.weight");
  CHECK(tied->tensors().front().uses == 2);
}

TEST_CASE("models: a window of the whole context is none") {
  LlamaSpec spec = kWindowed;
  const Batch batch = batch_of(spec, 2);
  const auto loss = [&](std::uint32_t window) {
    spec.window = window;
    const auto model = model_of(spec);
    const auto workspace = model->make_workspace(2);
    return model->evaluate(parameters_of(*model), batch, *workspace).value().loss;
  };
  const double whole = loss(0);
  CHECK(loss(spec.context) == whole);
  CHECK(loss(60'000) == whole);
  CHECK(loss(spec.context - 1) != whole);
  CHECK(loss(1) != whole);
}

// Goal: the whole backward pass is the derivative of the forward pass.
// Method: central differences along random directions, one per tensor, of the reference kernels'
// loss. The activations are float, so a difference of 2 h keeps about 1e-7 / (2 h) of noise.
TEST_CASE("models: gradients are the slopes of the loss") {
  for (const ModelSpec& spec : {ModelSpec(kGpt), ModelSpec(kMlp), ModelSpec(kLlama),
                                ModelSpec(kTied), ModelSpec(kNormed), ModelSpec(kWindowed)}) {
    const auto model = model_of(spec, "reference");
    const Batch batch = batch_of(spec, 2);
    const auto workspace = model->make_workspace(2);
    const Layout layout(model->tensors());
    std::vector<float> p = parameters_of(*model), gradient(p.size());
    REQUIRE(model->forward_backward(p, batch, *workspace, gradient));
    std::mt19937 random(5);
    for (const TensorPlace& place : layout.tensors()) {
      CAPTURE(place.spec.name);
      const std::size_t at = std::size_t{place.first_block} * kBlock, n = place.spec.elements();
      // Along the gradient's own signs the slope is its sum of absolutes: far above the noise.
      const double h = 2e-3 / std::sqrt(static_cast<double>(n));
      double slope = 0;
      std::vector<float> plus = p, minus = p;
      for (std::size_t i = at; i < at + n; ++i) {
        const float sign = gradient[i] < 0 ? -1.0f : 1.0f;
        plus[i] = p[i] + sign * static_cast<float>(h);
        minus[i] = p[i] - sign * static_cast<float>(h);
        slope += gradient[i] * (static_cast<double>(plus[i]) - minus[i]);
      }
      const double rise = model->evaluate(plus, batch, *workspace).value().loss -
                          model->evaluate(minus, batch, *workspace).value().loss;
      CHECK(std::fabs(rise - slope) < 2e-6 + 0.01 * slope);
      CHECK(slope > 0);
    }
  }
}

TEST_CASE("models: every instruction set gives the reference's loss and gradient") {
  for (const ModelSpec& spec : {ModelSpec(kGpt), ModelSpec(kMlp), ModelSpec(kLlama),
                                ModelSpec(kTied), ModelSpec(kNormed), ModelSpec(kWindowed)}) {
    const auto reference = model_of(spec, "reference");
    const Batch batch = batch_of(spec, 3);
    const std::vector<float> p = parameters_of(*reference);
    std::vector<float> want(p.size()), first;
    const auto workspace = reference->make_workspace(3);
    const double loss = reference->forward_backward(p, batch, *workspace, want).value().loss;
    float top = 0;
    for (const float x : want) top = std::max(top, std::fabs(x));
    for (const char* isa : {"avx2", "avx512"}) {
      if (!cpu_has(isa)) continue;
      CAPTURE(isa);
      const auto model = model_of(spec, isa);
      std::vector<float> got(p.size());
      const auto own = model->make_workspace(3);
      const auto result = model->forward_backward(p, batch, *own, got);
      REQUIRE(result);
      CHECK(result.value().loss == doctest::Approx(loss).epsilon(5e-7));
      float worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::fabs(got[i] - want[i]));
      CHECK(worst <= 5e-6f * top);
      if (first.empty()) first = got;
      CHECK(same_bits(got, first));  // AVX-512 has AVX2's bits
    }
  }
}

// Goal: one micro-batch's gradient is the same bits whoever computes it. Method: the same call
// again, in two threads at once, on buffers at odd addresses, in a used workspace, after another
// batch.
TEST_CASE("models: bits depend on parameters and batch alone") {
  for (const ModelSpec& spec :
       {ModelSpec(kGpt), ModelSpec(kMlp), ModelSpec(GptSpec{}), ModelSpec(kLlama)}) {
    const auto model = model_of(spec);
    const Batch batch = batch_of(spec, 2), other = batch_of(spec, 2, 99);
    const std::vector<float> p = parameters_of(*model);
    std::vector<float> want(p.size(), NAN);
    const auto workspace = model->make_workspace(2);
    const auto first = model->forward_backward(p, batch, *workspace, want);
    REQUIRE(first);
    CHECK(first.value().finite);

    const auto same = [&](std::size_t shift, Workspace& space) {
      std::vector<float> moved(p.size() + shift), gradient(p.size() + shift, NAN);
      std::copy(p.begin(), p.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
      const auto out = std::span(gradient).subspan(shift);
      const auto result =
          model->forward_backward(std::span(moved).subspan(shift), batch, space, out);
      return result && result.value().loss == first.value().loss &&
             std::memcmp(out.data(), want.data(), p.size() * 4) == 0;
    };
    CHECK(same(0, *workspace));
    CHECK(same(1, *workspace));
    CHECK(same(7, *workspace));
    std::vector<float> scrap(p.size());
    REQUIRE(model->forward_backward(p, other, *workspace, scrap));
    CHECK_FALSE(same_bits(scrap, want));
    CHECK(same(0, *workspace));
    CHECK(model->evaluate(p, batch, *workspace).value().loss == first.value().loss);

    bool agreed[2] = {};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        const auto own = model->make_workspace(2);
        agreed[t] = same(t, *own) && same(2 * t, *own);
      });
    for (std::thread& t : threads) t.join();
    CHECK(agreed[0]);
    CHECK(agreed[1]);
  }
}

TEST_CASE("models: what is computed twice has the same bits, and takes less memory") {
  for (const char* isa : {"reference", "auto"})
    for (const ModelSpec& spec :
         std::vector<ModelSpec>{kGpt, kMlp, kLlama, kTied, kNormed, kWindowed}) {
      const auto keeps = make_model(spec, isa).value();
      const auto recomputes = make_model(spec, isa, /*recompute=*/true).value();
      const auto parameters = parameters_of(*keeps);
      const Batch batch = batch_of(spec, 2);
      std::vector<float> kept(parameters.size()), recomputed(parameters.size());
      const auto much = keeps->make_workspace(2), little = recomputes->make_workspace(2);
      const auto a = keeps->forward_backward(parameters, batch, *much, kept).value();
      const auto b = recomputes->forward_backward(parameters, batch, *little, recomputed).value();
      CHECK(a.loss == b.loss);
      CHECK(same_bits(kept, recomputed));
      CHECK(recomputes->evaluate(parameters, batch, *little).value().loss == a.loss);
    }
  const auto floats = [](bool recompute) {
    const auto model = make_model(GptSpec{}, "auto", recompute).value();
    return model->make_workspace(4)->floats().size();
  };
  CHECK(2 * floats(true) < floats(false));
}

TEST_CASE("models: the gradient is overwritten, padding with zeros") {
  const auto model = model_of(kGpt);
  const Layout layout(model->tensors());
  const std::vector<float> p = parameters_of(*model);
  std::vector<float> gradient(p.size(), NAN);
  const auto workspace = model->make_workspace(1);
  REQUIRE(model->forward_backward(p, batch_of(kGpt, 1), *workspace, gradient));
  for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
    for (std::uint32_t i = 0; i < kBlock; ++i) {
      const float g = gradient[std::size_t{b} * kBlock + i];
      if (i < layout.used(b)) CHECK(std::isfinite(g));
      if (i >= layout.used(b)) CHECK(g == 0);
    }
  }
}

// The loss cannot depend on tokens to the right of it: with the target of position t alone of
// interest, later tokens have no gradient.
TEST_CASE("models: no position sees a later token") {
  const auto model = model_of(kGpt);
  const std::vector<float> p = parameters_of(*model);
  const auto workspace = model->make_workspace(1);
  Batch batch = batch_of(kGpt, 1);
  for (std::size_t i = 0; i < batch.tokens.size(); ++i)
    batch.tokens[i] = static_cast<std::int32_t>(i);  // each token at one place
  // Two batches that differ in the last token: position t < last has the same loss, so the
  // difference of the mean losses is the last position's alone. With its target moved along, bits
  // tell.
  const double before = model->evaluate(p, batch, *workspace).value().loss;
  Batch later = batch;
  later.tokens.back() = 30;
  const auto n = static_cast<double>(batch.tokens.size());
  const double after = model->evaluate(p, later, *workspace).value().loss;
  // Loss of the last position alone, in both: read off by changing its target.
  CHECK(before != after);
  for (std::int32_t target : {0, 1, 2}) {
    Batch a = batch, b = later;
    a.targets[3] = b.targets[3] = target;  // an early position's loss changes alike in both
    const double da = model->evaluate(p, a, *workspace).value().loss - before;
    const double db = model->evaluate(p, b, *workspace).value().loss - after;
    CHECK(da == doctest::Approx(db).epsilon(1e-9 * n));
  }
}

TEST_CASE("models: initial values are reproducible, of the right spread, and differ by seed") {
  const GptSpec spec{.layers = 2, .heads = 4, .width = 64, .context = 32, .vocabulary = 256};
  const auto model = model_of(spec), reference = model_of(spec, "reference");
  const Layout layout(model->tensors());
  std::vector<float> p(layout.elements(), NAN), q(layout.elements(), NAN), r(layout.elements());
  REQUIRE(model->initialise(1, layout, p));
  REQUIRE(reference->initialise(1, layout, q));
  REQUIRE(model->initialise(2, layout, r));
  CHECK(same_bits(p, q));
  CHECK_FALSE(same_bits(p, r));
  for (const TensorPlace& place : layout.tensors()) {
    CAPTURE(place.spec.name);
    double sum = 0, squares = 0;
    const std::size_t at = std::size_t{place.first_block} * kBlock, n = place.spec.elements();
    for (std::size_t i = at; i < at + n; ++i) {
      sum += p[i];
      squares += static_cast<double>(p[i]) * p[i];
    }
    const double mean = sum / static_cast<double>(n);
    const double deviation = std::sqrt(squares / static_cast<double>(n) - mean * mean);
    const bool matrix = place.spec.shape.size() == 2;
    const bool residual = place.spec.name.ends_with("c_proj.weight");
    const bool gain = !matrix && place.spec.name.ends_with("weight");
    const double want = matrix ? (residual ? 0.01 : 0.02) : 0;
    CHECK(deviation == doctest::Approx(want).epsilon(0.05));
    CHECK(std::fabs(mean - (gain ? 1 : 0)) <= 4 * want / std::sqrt(static_cast<double>(n)));
    for (std::size_t i = at + n; i < at + std::size_t{place.blocks} * kBlock; ++i) CHECK(p[i] == 0);
  }
}

// Goal: a table in several parts has the values that it has as one.
TEST_CASE("models: any run of normal numbers is what the whole stream has there") {
  std::vector<float> whole(1001);
  fill_normal(5, 3, 0.02, 0, whole);
  for (const std::size_t first : {0, 4, 256, 768}) {
    std::vector<float> run(whole.size() - first);
    fill_normal(5, 3, 0.02, first, run);
    CHECK(std::equal(run.begin(), run.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
  }
}

TEST_CASE("models: our exp, log, cos and sin are as good as the library's") {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-700, 700), unit(0, 1);
  for (int i = 0; i < 2000; ++i) {
    const double x = exponent(random), u = unit(random);
    CHECK(portable_exp(x) == doctest::Approx(std::exp(x)).epsilon(1e-14));
    CHECK(portable_exp(u - 0.5) == doctest::Approx(std::exp(u - 0.5)).epsilon(1e-15));
    CHECK(std::fabs(portable_log(u) - std::log(u)) <= 4e-16 * (1 + std::fabs(std::log(u))));
    double c = 0, s = 0;
    portable_cos_sin(u, c, s);
    CHECK(std::fabs(c - std::cos(2 * M_PI * u)) < 1e-15);
    CHECK(std::fabs(s - std::sin(2 * M_PI * u)) < 1e-15);
  }
  CHECK(portable_exp(0) == 1);
  CHECK(portable_exp(-1e9) == 0);
  CHECK(std::isinf(portable_exp(1e9)));
  CHECK(std::isnan(portable_exp(NAN)));
  CHECK(portable_log(1) == 0);
  CHECK(std::isnan(portable_log(NAN)));
}

TEST_CASE("models: what is not finite is reported, not hidden") {
  const auto model = model_of(kGpt);
  const auto workspace = model->make_workspace(1);
  std::vector<float> p = parameters_of(*model), gradient(p.size());
  p[p.size() - kBlock] = INFINITY;  // ln_f.bias
  const auto result = model->forward_backward(p, batch_of(kGpt, 1), *workspace, gradient);
  REQUIRE(result);
  CHECK_FALSE(result.value().finite);
}

TEST_CASE("models: batches that do not fit are refused") {
  const auto gpt = model_of(kGpt);
  const auto mlp = model_of(kMlp);
  const std::vector<float> p = parameters_of(*gpt), q = parameters_of(*mlp);
  const auto workspace = gpt->make_workspace(2), other = mlp->make_workspace(2);
  const auto refused = [&](const Batch& b) {
    const auto result = gpt->evaluate(p, b, *workspace);
    return !result && result.error().code() == Code::kBadInput;
  };
  const Batch good = batch_of(kGpt, 2);
  CHECK_FALSE(refused(good));
  CHECK(refused(batch_of(kGpt, 1)));
  CHECK(refused(batch_of(kMlp, 2)));
  Batch b = good;
  b.tokens.pop_back();
  CHECK(refused(b));
  b = good;
  b.targets.push_back(0);
  CHECK(refused(b));
  for (const std::int32_t wrong : {-1, 37, INT32_MAX, INT32_MIN}) {
    b = good;
    b.tokens[5] = wrong;
    CHECK(refused(b));
    b = good;
    b.targets[5] = wrong;
    CHECK(refused(b) == (wrong != kNotATarget));
  }
  std::ranges::fill(b.targets, kNotATarget);
  CHECK(refused(b));
  b = batch_of(kMlp, 2);
  b.targets[0] = kNotATarget;
  CHECK_FALSE(mlp->evaluate(q, b, *other));
  CHECK(mlp->evaluate(q, batch_of(kMlp, 2), *other));
  CHECK_FALSE(mlp->evaluate(q, good, *other));
}

TEST_CASE("models: specifications that make no model are refused") {
  const ModelSpec bad[] = {
      GptSpec{.layers = 0},
      GptSpec{.heads = 0},
      GptSpec{.heads = 3},
      GptSpec{.width = 0},
      GptSpec{.context = 0},
      GptSpec{.vocabulary = 0},
      GptSpec{.layers = 1u << 31},
      LlamaSpec{.layers = 0},
      LlamaSpec{.heads = 4, .key_value_heads = 3},
      LlamaSpec{.heads = 2, .key_value_heads = 4},
      LlamaSpec{.head_width = 31},
      LlamaSpec{.feed_forward = 0},
      LlamaSpec{.vocabulary = 0},
      LlamaSpec{.heads = 65536, .key_value_heads = 1, .head_width = 2},
      GptSpec{.layers = 1024, .heads = 1, .width = 65536, .context = 65536, .vocabulary = 1u << 24},
      MlpSpec{},
      MlpSpec{{5}},
      MlpSpec{{5, 0, 3}},
      MlpSpec{{UINT32_MAX, UINT32_MAX}},
      SyntheticSpec{.parameters = 999},
      SyntheticSpec{.parameters = UINT64_MAX},
  };
  for (const ModelSpec& spec : bad) {
    const auto made = make_model(spec, "auto");
    REQUIRE_FALSE(made);
    CHECK(made.error().code() == Code::kBadInput);
  }
  CHECK_FALSE(make_model(kGpt, "mmx"));
}

// A worker must stay small: this is by far its largest part on the small job.
TEST_CASE("models: the small GPT's workspace is below 30 MB") {
  const auto model = model_of(GptSpec{});
  CHECK(model->make_workspace(4)->floats().size_bytes() < 30'000'000);
}

}  // namespace
}  // namespace starling::kernels
