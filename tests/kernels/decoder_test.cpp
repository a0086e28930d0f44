// What a text continues with is what the model that was trained says.

#include "kernels/models/decoder.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/models/model.h"

namespace starling::kernels {
namespace {

const ModelSpec kKinds[] = {
    GptSpec{.layers = 3, .heads = 4, .width = 32, .context = 24, .vocabulary = 61},
    LlamaSpec{.layers = 3,
              .heads = 4,
              .key_value_heads = 2,
              .head_width = 6,
              .width = 32,
              .feed_forward = 45,
              .context = 24,
              .vocabulary = 61},
    LlamaSpec{.layers = 2,
              .heads = 4,
              .key_value_heads = 1,
              .head_width = 8,
              .width = 24,
              .feed_forward = 50,
              .context = 24,
              .vocabulary = 61,
              .tied_embeddings = true,
              .rope_scaling = RopeScaling::kLinear,
              .rope_factor = 3},
    LlamaSpec{.layers = 2,
              .heads = 4,
              .key_value_heads = 2,
              .head_width = 6,
              .width = 24,
              .feed_forward = 50,
              .context = 100,
              .vocabulary = 61,
              .window = 7,
              .query_key_norm = true},
    LlamaSpec{.layers = 2,
              .heads = 4,
              .key_value_heads = 2,
              .head_width = 6,
              .width = 24,
              .feed_forward = 50,
              .context = 24,
              .vocabulary = 61,
              .query_key_value_bias = true}};

struct Small {
  ModelSpec spec;
  ModelInput input;
  std::unique_ptr<Model> model;
  std::unique_ptr<Layout> layout;
  std::vector<float> parameters;

  Small(const ModelSpec& kind, const KernelTable& kernels) : spec(kind), input(*input_of(kind)) {
    model = make_model(spec, kernels, false).value();
    layout = std::make_unique<Layout>(model->tensors());
    parameters.resize(layout->elements());
    REQUIRE(model->initialise(3, *layout, parameters));
    // Larger weights than a first model's, so that tokens differ; and biases and gains other than zeros and ones.
    for (const TensorPlace& place : layout->tensors())
      for (std::size_t i = 0; i < place.spec.elements(); ++i) {
        float& weight = parameters[std::size_t{place.first_block} * kBlock + i];
        weight = 4 * weight + 0.02f * static_cast<float>(i % 7) - 0.06f;
      }
  }
};

std::vector<std::uint32_t> text_of(std::size_t count, std::int64_t vocabulary) {
  std::vector<std::uint32_t> tokens(count);
  for (std::uint32_t i = 0; i < count; ++i)
    tokens[i] = (i * 17 + i * i) % static_cast<std::uint32_t>(vocabulary);
  return tokens;
}

double loss_of(std::span<const float> logits, std::uint32_t target) {
  double most = logits[0], sum = 0;
  for (const float logit : logits) most = std::max(most, double{logit});
  for (const float logit : logits) sum += std::exp(logit - most);
  return std::log(sum) - (logits[target] - most);
}

}  // namespace

TEST_CASE("decoder: its logits give the loss that the model says") {
  for (std::size_t n = 0; n < 3 * std::size(kKinds); ++n) {
    const char* const isa = std::array{"reference", "avx2", "avx512"}[n % 3];
    if (!cpu_has(isa)) continue;
    const KernelTable& kernels = *kernel_table(isa).value();
    const Small small(kKinds[n / 3], kernels);
    const auto decoder = make_decoder(small.spec, kernels, *small.layout, small.parameters);
    const auto context = static_cast<std::uint32_t>(small.input.positions);
    const auto text = text_of(context + 1, small.input.vocabulary);
    Batch batch;
    batch.sequences = 1;
    for (std::uint32_t i = 0; i < context; ++i) {
      batch.tokens.push_back(static_cast<std::int32_t>(text[i]));
      batch.targets.push_back(static_cast<std::int32_t>(text[i + 1]));
    }
    const auto workspace = small.model->make_workspace(1);
    const double wanted = small.model->evaluate(small.parameters, batch, *workspace).value().loss;
    double sum = 0;
    for (std::uint32_t i = 0; i < context; ++i)
      sum += loss_of(decoder->append({&text[i], 1}), text[i + 1]);
    CAPTURE(isa);
    CAPTURE(n / 3);
    CHECK(decoder->size() == context);
    CHECK(std::abs(sum / context - wanted) < 2e-6 * wanted);
  }
}

TEST_CASE(
    "decoder: tokens one by one are the tokens at once, and a text leaves nothing to the next") {
  const KernelTable& kernels = *kernel_table("auto").value();
  for (const ModelSpec& kind : kKinds) {
    const Small small(kind, kernels);
    const auto decoder = make_decoder(small.spec, kernels, *small.layout, small.parameters);
    const auto text = text_of(20, small.input.vocabulary);
    const auto logits_of = [&](std::vector<std::size_t> cuts) {
      decoder->clear();
      std::vector<float> last;
      std::size_t at = 0;
      for (const std::size_t count : cuts) {
        const auto logits = decoder->append(std::span(text).subspan(at, count));
        last.assign(logits.begin(), logits.end());
        at += count;
      }
      REQUIRE(at == text.size());
      return last;
    };
    const auto whole = logits_of({20});
    REQUIRE(whole.size() == static_cast<std::size_t>(small.input.vocabulary));
    for (const auto& cuts : {std::vector<std::size_t>{1, 19}, {19, 1}, {7, 6, 7}, {5, 5, 5, 5}}) {
      const auto other = logits_of(cuts);
      for (std::size_t i = 0; i < whole.size(); ++i)
        CHECK(std::abs(whole[i] - other[i]) <= 3e-5 * std::max(1.0f, std::abs(whole[i])));
    }
    CHECK(logits_of({20}) == whole);
  }
}

// Goal: a window is the tokens that it says. Method: one layer, whose last row sees no token through another one.
TEST_CASE("decoder: a token sees its window and nothing before it") {
  const KernelTable& kernels = *kernel_table("auto").value();
  const Small small(LlamaSpec{.layers = 1,
                              .heads = 2,
                              .key_value_heads = 1,
                              .head_width = 6,
                              .width = 24,
                              .feed_forward = 50,
                              .context = 24,
                              .vocabulary = 61,
                              .window = 7},
                    kernels);
  const auto decoder = make_decoder(small.spec, kernels, *small.layout, small.parameters);
  const auto text = text_of(20, 61);
  const auto last = [&](std::vector<std::uint32_t> tokens) {
    decoder->clear();
    const auto logits = decoder->append(tokens);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto logits = last(text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    CAPTURE(at);
    auto other = text;
    other[at] = (other[at] + 1) % 61;
    CHECK((last(other) == logits) == (at + 7 < text.size()));
  }
}

TEST_CASE("decoder: a model that follows no text has none") {
  const auto model = make_model(MlpSpec{.sizes = {3, 2}}, "auto").value();
  const Layout layout(model->tensors());
  const std::vector<float> parameters(layout.elements());
  CHECK(make_decoder(MlpSpec{.sizes = {3, 2}}, *kernel_table("auto").value(), layout, parameters) ==
        nullptr);
}

}  // namespace starling::kernels
