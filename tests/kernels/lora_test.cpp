// Adapters beside weights that stay as they are.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "kernels/models/adapters.h"
#include "kernels/models/first_gradient.h"
#include "kernels/models/flat.h"
#include "kernels/models/model.h"
#include "tests/kernels/frozen_in_memory.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

LoraSpec lora_for(std::vector<std::string> targets) {
  return {.rank = 3, .alpha = 5, .targets = std::move(targets)};
}

// All that can be adapted, and what leaves layers without anything that is trained.
std::vector<ModelSpec> adapted_specs() {
  GptSpec gpt{.layers = 2, .heads = 3, .width = 24, .context = 11, .vocabulary = 37};
  gpt.lora = lora_for({"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"});
  GptSpec few = gpt;
  few.lora = lora_for({"c_fc"});
  LlamaSpec llama{.layers = 2,
                  .heads = 4,
                  .key_value_heads = 2,
                  .head_width = 10,
                  .width = 24,
                  .feed_forward = 29,
                  .context = 11,
                  .vocabulary = 37};
  llama.lora =
      lora_for({"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"});
  LlamaSpec normed = llama;
  normed.query_key_norm = true;
  normed.tied_embeddings = true;
  normed.lora = lora_for({"q_proj", "v_proj"});
  return {gpt, few, llama, normed};
}

// A model with adapters that compute, and the one that it is beside.
struct Pair {
  explicit Pair(ModelSpec of, const std::string& isa = "auto", bool recompute = false,
                bool copies = false)
      : spec(std::move(of)),
        whole(make_model(without_lora(spec), isa, recompute).value()),
        adapted(make_model(spec, isa, recompute).value()),
        whole_layout(whole->tensors()),
        layout(adapted->tensors()) {
    weights.resize(whole_layout.elements());
    REQUIRE(whole->initialise(7, whole_layout, weights));
    adapters.resize(layout.elements());
    REQUIRE(adapted->initialise(7, layout, adapters));
    frozen = std::make_shared<FrozenInMemory>(*adapted, whole_layout, weights, copies);
    adapted->set_frozen(frozen);
  }
  // B leaves zero, as if some steps had been made.
  void step() {
    const auto values = normal(adapters.size(), 3, 0.1f);
    for (const TensorPlace& place : layout.tensors())
      if (place.spec.name.ends_with(lora_b("")))
        std::copy_n(values.begin(), place.spec.elements(),
                    adapters.begin() + std::ptrdiff_t{place.first_block} * kBlock);
  }
  std::vector<float> merged() const {
    std::vector<float> made = weights;
    merge_adapters(spec, *kernel_table("auto").value(), layout, adapters, whole_layout, made);
    return made;
  }

  ModelSpec spec;
  std::unique_ptr<Model> whole, adapted;
  Layout whole_layout, layout;
  std::vector<float> weights, adapters;
  std::shared_ptr<FrozenInMemory> frozen;
};

struct Computed {
  double loss = 0;
  std::vector<float> gradient;
};

Computed pass_of(const Model& model, const std::vector<float>& parameters, const Batch& batch) {
  Computed made{.gradient = std::vector<float>(parameters.size(), NAN)};
  const auto workspace = model.make_workspace(batch.sequences);
  made.loss = model.forward_backward(parameters, batch, *workspace, made.gradient).value().loss;
  return made;
}

// The elements of a tensor, by its name.
std::vector<float> tensor_in(const Layout& layout, const std::vector<float>& flat,
                             const std::string& name) {
  for (const TensorPlace& place : layout.tensors()) {
    const auto from = flat.begin() + std::ptrdiff_t{place.first_block} * kBlock;
    if (place.spec.name == name)
      return {from, from + static_cast<std::ptrdiff_t>(place.spec.elements())};
  }
  FAIL("no tensor " << name);
  return {};
}

double farthest(const std::vector<double>& expected, const std::vector<float>& there) {
  REQUIRE(expected.size() == there.size());
  double most = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(expected[i] - there[i]));
    size = std::max(size, std::abs(expected[i]));
  }
  return most / size;
}

}  // namespace

TEST_CASE("lora: at first a model with adapters has the loss that it has without") {
  for (const ModelSpec& spec : adapted_specs()) {
    const Pair pair(spec);
    const Batch batch = batch_of(spec, 2);
    const auto workspace = pair.adapted->make_workspace(2);
    const auto own = pair.whole->make_workspace(2);
    CHECK(pair.adapted->evaluate(pair.adapters, batch, *workspace).value().loss ==
          pair.whole->evaluate(pair.weights, batch, *own).value().loss);
  }
}

// Goal: loss and gradient of adapters. Method: beside the same model with merged weights, of whose gradient those of A
// and B are products: dB = scale dW A^T and dA = scale B^T dW, dW [out, in].
TEST_CASE("lora: loss and gradients are those of the merged weights") {
  for (const ModelSpec& spec : adapted_specs()) {
    Pair pair(spec);
    pair.step();
    const Batch batch = batch_of(spec, 2);
    const Computed adapted = pass_of(*pair.adapted, pair.adapters, batch);
    const Computed whole = pass_of(*pair.whole, pair.merged(), batch);
    CHECK(adapted.loss == doctest::Approx(whole.loss).epsilon(2e-6));
    const bool in_out = std::holds_alternative<GptSpec>(spec);
    const double scale = lora_of(spec).scale();
    std::size_t compared = 0;
    for (const TensorPlace& place : pair.layout.tensors()) {
      if (!place.spec.name.ends_with(lora_a(""))) continue;
      const std::string module =
          place.spec.name.substr(0, place.spec.name.size() - lora_a("").size());
      CAPTURE(module);
      const std::size_t rank = place.spec.shape[0], in = place.spec.shape[1];
      const auto a = tensor_in(pair.layout, pair.adapters, lora_a(module));
      const auto b = tensor_in(pair.layout, pair.adapters, lora_b(module));
      const std::size_t out = b.size() / rank;
      const auto dw = tensor_in(pair.whole_layout, whole.gradient, module + ".weight");
      std::vector<double> da(a.size()), db(b.size());
      for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i)
          for (std::size_t r = 0; r < rank; ++r) {
            const double d = scale * double{dw[in_out ? i * out + o : o * in + i]};
            db[o * rank + r] += d * double{a[r * in + i]};
            da[r * in + i] += d * double{b[o * rank + r]};
          }
      CHECK(farthest(da, tensor_in(pair.layout, adapted.gradient, lora_a(module))) < 2e-5);
      CHECK(farthest(db, tensor_in(pair.layout, adapted.gradient, lora_b(module))) < 2e-5);
      ++compared;
    }
    CHECK(compared == pair.layout.tensors().size() / 2);
    CHECK(compared > 0);
  }
}

TEST_CASE(
    "lora: bits are the same with recompute, of weights that are copied, and on AVX2 and AVX-512") {
  for (const ModelSpec& spec : adapted_specs())
    for (const char* isa : {"reference", "avx2"}) {
      if (!kernel_table(isa)) continue;
      Pair pair(spec, isa);
      pair.step();
      const Batch batch = batch_of(spec, 2);
      const Computed expected = pass_of(*pair.adapted, pair.adapters, batch);
      const auto check_same = [&](const Pair& other) {
        const Computed there = pass_of(*other.adapted, pair.adapters, batch);
        CHECK(there.loss == expected.loss);
        CHECK(same_bits(there.gradient, expected.gradient));
      };
      check_same(Pair(spec, isa, /*recompute=*/true));
      check_same(Pair(spec, isa, /*recompute=*/false, /*copies=*/true));
      check_same(Pair(spec, isa, /*recompute=*/true, /*copies=*/true));
      if (std::string(isa) == "avx2" && cpu_has("avx512")) check_same(Pair(spec, "avx512"));
    }
}

TEST_CASE("lora: a pass goes by the parts of its adapters alone") {
  for (const ModelSpec& spec : adapted_specs()) {
    Pair pair(spec);
    pair.step();
    const Batch batch = batch_of(spec, 2);
    const Computed expected = pass_of(*pair.adapted, pair.adapters, batch);
    std::vector<float> gradient(pair.adapters.size(), NAN);
    FlatSource source(pair.layout, pair.adapters.data());
    FlatSink sink(pair.layout, gradient);
    const auto workspace = pair.adapted->make_workspace(2);
    const auto result = pair.adapted->pass(pair.layout, source, batch, *workspace, sink).value();
    CHECK(result.loss == expected.loss);
    CHECK(same_bits(gradient, expected.gradient));
  }
}

TEST_CASE("lora: without the weights, or with changed ones, there is no pass") {
  const ModelSpec spec = adapted_specs().front();
  const Batch batch = batch_of(spec, 2);
  Pair pair(spec);
  const auto bare = model_of(spec);
  std::vector<float> gradient(pair.adapters.size());
  const auto workspace = bare->make_workspace(2);
  CHECK_FALSE(bare->forward_backward(pair.adapters, batch, *workspace, gradient));
  pair.frozen->changed = true;
  const auto refused = pair.adapted->forward_backward(pair.adapters, batch, *workspace, gradient);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text() == "was changed");
  CHECK_FALSE(pair.adapted->evaluate(pair.adapters, batch, *workspace));
}

TEST_CASE("lora: what is computed while the weights change is no result") {
  const ModelSpec spec = adapted_specs().front();
  const Batch batch = batch_of(spec, 2);
  for (const int reads : {1, 30}) {
    Pair pair(spec);
    std::vector<float> gradient(pair.adapters.size());
    const auto workspace = pair.adapted->make_workspace(2);
    pair.frozen->changes_after = reads;
    CHECK_FALSE(pair.adapted->forward_backward(pair.adapters, batch, *workspace, gradient));
  }
}

TEST_CASE("lora: a model without any of the modules that are adapted is none") {
  LlamaSpec spec{.layers = 1, .heads = 2, .key_value_heads = 1, .head_width = 4, .width = 8};
  spec.lora = lora_for({"c_attn"});
  const auto made = make_model(spec, "auto");
  REQUIRE_FALSE(made);
  CHECK(made.error().text() == "the model has none of the modules that are adapted: c_attn");
}

// Goal: a gradient that two machines compare has every product in it. Method: no tensor's gradient is zeros, as those of
// all first matrices are at the beginning.
TEST_CASE("lora: with drawn adapters every product has a part in the gradient") {
  for (const ModelSpec& spec : adapted_specs()) {
    Pair pair(spec);
    const auto zeros = [&](const std::vector<float>& gradient) {
      return std::ranges::count_if(pair.layout.tensors(), [&](const TensorPlace& place) {
        const auto begin = gradient.begin() + std::ptrdiff_t{place.first_block} * kBlock;
        return std::all_of(begin, begin + static_cast<std::ptrdiff_t>(place.spec.elements()),
                           [](float x) { return x == 0; });
      });
    };
    const Batch batch = batch_of(spec, 2);
    CHECK(zeros(pass_of(*pair.adapted, pair.adapters, batch).gradient) ==
          std::ssize(pair.layout.tensors()) / 2);
    CHECK(std::ssize(draw_zero_matrices(pair.layout, pair.adapters)) ==
          std::ssize(pair.layout.tensors()) / 2);
    CHECK(zeros(pass_of(*pair.adapted, pair.adapters, batch).gradient) == 0);
    const std::vector<float> drawn = pair.adapters;
    CHECK(draw_zero_matrices(pair.layout, pair.adapters).empty());
    CHECK(pair.adapters == drawn);
  }
}

}  // namespace starling::kernels
