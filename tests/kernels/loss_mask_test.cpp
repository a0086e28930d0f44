// Batches of which some positions have no target.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/models/model.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

const GptSpec kMaskedGpt{.layers = 2, .heads = 3, .width = 24, .context = 11, .vocabulary = 37};
const LlamaSpec kMaskedLlama{.layers = 1,
                             .heads = 3,
                             .key_value_heads = 1,
                             .head_width = 8,
                             .width = 24,
                             .feed_forward = 40,
                             .context = 7,
                             .vocabulary = 37};

std::vector<float> first_parameters(const Model& model) {
  const Layout layout(model.tensors());
  std::vector<float> parameters(layout.elements());
  REQUIRE(model.initialise(7, layout, parameters));
  return parameters;
}

}  // namespace

// Goal: only targets count, each alike. Method: the loss and the gradient of a batch with some targets beside the means
// of those of batches with one target each.
TEST_CASE("loss mask: the loss is the mean over the targets that are there") {
  for (const ModelSpec& spec : {ModelSpec(kMaskedGpt), ModelSpec(kMaskedLlama)}) {
    const auto model = model_of(spec);
    const Batch whole = batch_of(spec, 2);
    const auto workspace = model->make_workspace(2);
    const std::vector<float> p = first_parameters(*model);
    const auto with = [&](const std::vector<std::size_t>& learned, std::vector<float>& gradient) {
      Batch batch = whole;
      std::ranges::fill(batch.targets, kNotATarget);
      for (const std::size_t i : learned) batch.targets[i] = whole.targets[i];
      gradient.resize(p.size());
      const auto result = model->forward_backward(p, batch, *workspace, gradient).value();
      CHECK(result.tokens == learned.size());
      CHECK(model->evaluate(p, batch, *workspace).value().loss == result.loss);
      return result.loss;
    };
    // Runs of several rows, one row, the first and the last.
    const std::vector<std::size_t> learned{0, 2, 3, 4, 9, whole.targets.size() - 1};
    std::vector<float> gradient, one;
    std::vector<double> sums(p.size());
    const double loss = with(learned, gradient);
    double mean = 0;
    for (const std::size_t i : learned) {
      mean += with({i}, one) / static_cast<double>(learned.size());
      for (std::size_t e = 0; e < p.size(); ++e)
        sums[e] += one[e] / static_cast<double>(learned.size());
    }
    CHECK(loss == doctest::Approx(mean).epsilon(1e-6));
    double off = 0, size = 0;
    for (std::size_t e = 0; e < p.size(); ++e) {
      off = std::max(off, std::fabs(gradient[e] - sums[e]));
      size = std::max(size, std::fabs(sums[e]));
    }
    CHECK(off < 1e-5 * size);
    // All of them are those of a batch without a mask, bit by bit.
    std::vector<std::size_t> all(whole.targets.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    std::vector<float> unmasked(p.size());
    const double plain = model->forward_backward(p, whole, *workspace, unmasked).value().loss;
    CHECK(with(all, gradient) == plain);
    CHECK(same_bits(gradient, unmasked));
  }
}

}  // namespace starling::kernels
