#include "kernels/layers/parts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "kernels/models/flat.h"
#include "kernels/models/model.h"
#include "tests/kernels/random_inputs.h"

namespace starling::kernels {
namespace {

// Initial values with gains and biases moved from 1 and 0.
std::vector<float> parameters_of(const Model& model, const Layout& layout) {
  std::vector<float> parameters(layout.elements());
  REQUIRE(model.initialise(7, layout, parameters));
  std::mt19937 random(3);
  for (std::uint32_t b = 0; b < layout.blocks(); ++b)
    for (std::uint32_t i = 0; i < layout.used(b); ++i)
      parameters[std::size_t{b} * kBlock + i] += static_cast<float>(random() % 1000) * 1e-4f;
  return parameters;
}

Batch tokens_of(const ModelSpec& spec, std::int32_t first, std::uint32_t count) {
  std::mt19937 random(1);
  Batch batch;
  batch.sequences = 2;
  const auto token = [&] { return first + static_cast<std::int32_t>(random() % count); };
  for (std::size_t i = 0; i < 2 * input_of(spec)->positions; ++i) {
    batch.tokens.push_back(token());
    batch.targets.push_back(token());
  }
  return batch;
}

// Refuses what the contract of a pass does not allow, and keeps what it gives.
class Watch : public PartSource, public GradientSink {
 public:
  Watch(const Layout& layout, std::span<const float> parameters)
      : layout_(layout), parameters_(parameters), sum_(layout.elements()) {}

  const float* acquire(PartId part) override {
    REQUIRE_FALSE(open_);
    open_ = part;
    // A copy, so that whoever reads behind the part, or after it was released, reads NaN.
    const Part& p = layout_.parts()[part];
    copy_.assign(p.elements() + kBlock, NAN);
    std::copy_n(parameters_.begin() + static_cast<std::ptrdiff_t>(p.first()), p.elements(),
                copy_.begin());
    return copy_.data();
  }
  void release(PartId part) override {
    REQUIRE(open_ == part);
    std::ranges::fill(copy_, NAN);
    open_.reset();
  }
  float* begin(PartId part, std::uint32_t use) override {
    REQUIRE_FALSE(writing_);
    REQUIRE(use < layout_.parts()[part].uses);
    writing_ = {part, use};
    gradient_.assign(layout_.parts()[part].elements(), NAN);
    return gradient_.data();
  }
  void end(PartId part, std::uint32_t use) override {
    REQUIRE(writing_ == std::pair(part, use));
    writing_.reset();
    const Part& p = layout_.parts()[part];
    const bool first = std::ranges::none_of(given_, [&](auto& g) { return g.first.first == part; });
    CHECK(++given_[{part, use}] == 1);
    for (std::uint32_t b = p.first_block; b < p.first_block + p.blocks; ++b)
      for (std::uint32_t i = 0; i < kBlock; ++i) {
        const float g = gradient_[std::size_t{b - p.first_block} * kBlock + i];
        if (!std::isfinite(g)) FAIL("element " << i << " of block " << b << " was not written");
        if (i >= layout_.used(b)) REQUIRE(g == 0);
        float& sum = sum_[std::size_t{b} * kBlock + i];
        sum = first ? g : sum + g;
      }
  }

  std::size_t uses_given() const { return given_.size(); }
  bool closed() const { return !open_ && !writing_; }
  const std::vector<float>& sum() const { return sum_; }

 private:
  const Layout& layout_;
  const std::span<const float> parameters_;
  std::optional<PartId> open_;
  std::optional<std::pair<PartId, std::uint32_t>> writing_;
  std::map<std::pair<PartId, std::uint32_t>, int> given_;
  std::vector<float> copy_, gradient_, sum_;
};

std::size_t uses_of(const Layout& layout) {
  std::size_t uses = 0;
  for (const Part& part : layout.parts()) uses += part.uses;
  return uses;
}

TEST_CASE("parts: a pass has one open at a time and gives each use of each once, all of it") {
  const GptSpec gpt{.layers = 2, .heads = 3, .width = 24, .context = 11, .vocabulary = 37};
  const LlamaSpec llama{.layers = 2,
                        .heads = 4,
                        .key_value_heads = 2,
                        .head_width = 10,
                        .width = 24,
                        .feed_forward = 29,
                        .context = 11,
                        .vocabulary = 37};
  LlamaSpec tied = llama;
  tied.tied_embeddings = true;
  Batch draw;
  draw.sequences = 1;
  draw.draw = {1, 2, 3};
  Batch samples;
  samples.sequences = 2;
  samples.x.assign(26, 0.5f);
  samples.targets = {1, 4};
  struct Case {
    const char* name;
    ModelSpec spec;
    Batch batch;
    std::size_t parts, uses;
  };
  // The table with two uses, positions, two layers for each of two blocks, the last norm. A llama has no positions,
  // and a head that is not tied is a table more.
  const Case cases[] = {{"gpt", gpt, tokens_of(gpt, 0, 37), 7, 8},
                        {"llama", llama, tokens_of(llama, 0, 37), 7, 7},
                        {"tied llama", tied, tokens_of(tied, 0, 37), 6, 7},
                        {"mlp", MlpSpec{{13, 19, 7, 5}}, samples, 3, 3},
                        {"synthetic", SyntheticSpec{4000, 0, 0, {}}, draw, 8, 8}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto model = model_of(c.spec);
    const Layout layout(model->tensors());
    CHECK(layout.parts().size() == c.parts);
    CHECK(uses_of(layout) == c.uses);
    const auto parameters = parameters_of(*model, layout);
    const auto workspace = model->make_workspace(c.batch.sequences);
    std::vector<float> flat(layout.elements());
    const auto whole = model->forward_backward(parameters, c.batch, *workspace, flat);
    REQUIRE(whole);
    Watch watch(layout, parameters);
    const auto result = model->pass(layout, watch, c.batch, *workspace, watch);
    REQUIRE(result);
    CHECK(watch.closed());
    CHECK(watch.uses_given() == c.uses);
    CHECK(result.value().loss == whole.value().loss);
    CHECK(watch.sum() == flat);
    Batch bad = c.batch;
    bad.sequences = 7;
    Watch nothing(layout, parameters);
    if (!model->pass(layout, nothing, bad, *workspace, nothing).has_error()) continue;
    CHECK(nothing.closed());
    CHECK(nothing.uses_given() == 0);
  }
}

// Goal: a table of more than one part is the same function. Method: a vocabulary of which only 64
// tokens can be, across the border of two parts, beside one of these 64 alone. The last norm makes
// its first output 1 for every row, and the other tokens have -1000 there: probability zero.
TEST_CASE("parts: a table in two parts gives the loss and the gradients of one in one part") {
  GptSpec small{.layers = 1, .heads = 2, .width = 32, .context = 4, .vocabulary = 64};
  GptSpec large = small;
  const std::uint32_t rows = Layout::kPartBytesMax / (32 * sizeof(float)), first = rows - 32;
  large.vocabulary = rows + 400;  // more rows than a chunk of a product is deep
  const auto one = model_of(small), two = model_of(large);
  const Layout a(one->tensors()), b(two->tensors());
  REQUIRE(a.tensors()[0].parts == 1);
  REQUIRE(b.tensors()[0].parts == 2);
  const std::size_t tensors = a.tensors().size();
  const auto at = [](const Layout& layout, std::size_t tensor) {
    return std::size_t{layout.tensors()[tensor].first_block} * kBlock;
  };
  auto p = parameters_of(*one, a);
  REQUIRE(a.tensors()[tensors - 2].spec.name == "ln_f.weight");
  p[at(a, tensors - 2)] = 0;
  p[at(a, tensors - 1)] = 1;
  std::vector<float> q(b.elements());
  for (std::size_t row = 0; row < large.vocabulary; ++row) q[row * 32] = -1000;
  std::copy_n(p.begin(), 64 * 32, q.begin() + first * 32);
  for (std::size_t t = 1; t < tensors; ++t)
    std::copy_n(p.begin() + static_cast<std::ptrdiff_t>(at(a, t)), a.tensors()[t].spec.elements(),
                q.begin() + static_cast<std::ptrdiff_t>(at(b, t)));

  std::vector<float> dp(a.elements()), dq(b.elements());
  const auto loss = one->forward_backward(p, tokens_of(small, 0, 64), *one->make_workspace(2), dp);
  const auto batch = tokens_of(large, static_cast<std::int32_t>(first), 64);
  const auto workspace = two->make_workspace(2);
  Watch watch(b, q);
  const auto other = two->pass(b, watch, batch, *workspace, watch);
  REQUIRE(loss);
  REQUIRE(other);
  CHECK(watch.uses_given() == uses_of(b));
  CHECK(other.value().loss == doctest::Approx(loss.value().loss).epsilon(1e-6));
  CHECK(two->evaluate(q, batch, *workspace).value().loss == other.value().loss);
  const auto& d = watch.sum();
  float largest = 0;
  for (const float g : dp) largest = std::max(largest, std::fabs(g));
  const auto close = [&](float x, float y) { return std::fabs(x - y) <= 1e-6f * largest; };
  for (std::size_t t = 0; t < tensors; ++t)
    for (std::size_t i = 0; i < a.tensors()[t].spec.elements(); ++i) {
      const std::size_t there = t == 0 ? first * 32 + i : at(b, t) + i;
      if (!close(dp[at(a, t) + i], d[there]))
        FAIL("element " << i << " of " << a.tensors()[t].spec.name);
    }
  // Of tokens that cannot be: as good as nothing.
  for (std::size_t row = 0; row < large.vocabulary; row += row + 1 == first ? 65 : 1)
    REQUIRE(std::fabs(d[row * 32]) < 1e-30f);
}

// Goal: sizes that no worker of another instruction set ever sees are right, too. Method: a table whose last
// part has thousands of rows, tensor by tensor against the reference kernels.
TEST_CASE("parts: a cut table gives the reference's gradient on every instruction set") {
  const GptSpec spec{.layers = 1, .heads = 1, .width = 96, .context = 8, .vocabulary = 90'000};
  const auto reference = make_model(spec, "reference").value();
  const Layout layout(reference->tensors());
  REQUIRE(layout.tensors()[0].parts == 2);
  const auto parameters = parameters_of(*reference, layout);
  const Batch batch = tokens_of(spec, 0, spec.vocabulary);
  const auto gradient = [&](const Model& model) {
    std::vector<float> made(layout.elements());
    REQUIRE(model.forward_backward(parameters, batch, *model.make_workspace(2), made));
    return made;
  };
  const auto want = gradient(*reference);
  for (const char* isa : {"avx2", "avx512"}) {
    const auto model = make_model(spec, isa);
    if (!model) continue;  // this CPU has none
    const auto got = gradient(*model.value());
    for (const TensorPlace& tensor : layout.tensors()) {
      CAPTURE(tensor.spec.name);
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < std::size_t{tensor.blocks} * kBlock; ++i) {
        const std::size_t at = std::size_t{tensor.first_block} * kBlock + i;
        difference += std::pow(double{got[at]} - double{want[at]}, 2);
        norm += std::pow(double{want[at]}, 2);
      }
      CHECK(std::sqrt(difference) <= 1e-4 * std::sqrt(norm));
    }
  }
}

TEST_CASE("parts: a model that is one function is one part of one use") {
  class Line : public Model {
   public:
    const std::vector<TensorSpec>& tensors() const override { return tensors_; }
    Result<> initialise(std::uint64_t, const Layout&, std::span<float> w) const override {
      std::ranges::fill(w, 0.0f);
      return ok();
    }
    Result<MicroBatchResult> forward_backward(std::span<const float> w, const Batch& batch,
                                              Workspace&, std::span<float> d) const override {
      if (batch.x.empty()) return Error(Code::kBadInput, "nothing to learn from");
      std::ranges::fill(d, 0.0f);
      d[0] = w[0] - batch.x[0];
      d[kBlock] = 1;
      return MicroBatchResult{d[0] * d[0] / 2, 1, true};
    }

   private:
    const std::vector<TensorSpec> tensors_{{"w", {3}}, {"b", {1}}};
  };
  const Line line;
  const Layout layout(line.tensors());
  CHECK(layout.parts().size() == 1);
  std::vector<float> w(layout.elements());
  w[0] = 5;
  Batch batch;
  batch.x = {2};
  const auto workspace = line.make_workspace(1);
  Watch watch(layout, w);
  REQUIRE(line.pass(layout, watch, batch, *workspace, watch));
  CHECK(watch.closed());
  CHECK(watch.uses_given() == 1);
  CHECK(watch.sum()[0] == 3);
  CHECK(watch.sum()[kBlock] == 1);
  Watch nothing(layout, w);
  CHECK(line.pass(layout, nothing, {}, *workspace, nothing).has_error());
  CHECK(nothing.uses_given() == 0);
}

}  // namespace
}  // namespace starling::kernels
