// Whole networks on the device beside the host's reference kernels.
// Long because one rig, a model on device and host, serves all of them.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/net_maker.h"
#include "kernels/cuda/plans.h"
#include "kernels/grid/quantise.h"
#include "kernels/models/first_gradient.h"
#include "kernels/models/flat.h"
#include "tests/cuda/orders.h"
#include "tests/kernels/frozen_in_memory.h"

namespace starling::kernels::cuda {
namespace {

const GptSpec kGpt{.layers = 2, .heads = 3, .width = 24, .context = 11, .vocabulary = 37};
const MlpSpec kMlp{{13, 19, 7, 5}};
// Heads that share keys, a head of its own for the loss, slowed turns, a width of heads that is not the model's.
const LlamaSpec kLlama{.layers = 2,
                       .heads = 4,
                       .key_value_heads = 2,
                       .head_width = 6,
                       .width = 20,
                       .feed_forward = 28,
                       .context = 11,
                       .vocabulary = 37,
                       .rope_scaling = RopeScaling::kLinear,
                       .rope_factor = 2};

LlamaSpec with(void (*change)(LlamaSpec&)) {
  LlamaSpec spec = kLlama;
  change(spec);
  return spec;
}
// Those whose blocks have more: Mistral's window, Qwen2's biases, Qwen3's norms.
const LlamaSpec kMistral = with([](LlamaSpec& s) { s.window = 4; });
const LlamaSpec kQwen2 =
    with([](LlamaSpec& s) { s.query_key_value_bias = s.tied_embeddings = true; });
const LlamaSpec kQwen3 = with([](LlamaSpec& s) { s.query_key_norm = true; });

Batch batch_of(const ModelSpec& spec, std::uint32_t sequences, unsigned seed = 1) {
  std::mt19937 random(seed);
  Batch b;
  b.sequences = sequences;
  const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
  if (const ModelInput input = *input_of(spec); input.features == 0) {
    const auto vocabulary = static_cast<std::uint32_t>(input.vocabulary);
    for (std::size_t i = 0; i < sequences * input.positions; ++i) {
      b.tokens.push_back(below(vocabulary));
      b.targets.push_back(below(vocabulary));
    }
    return b;
  }
  const auto& sizes = std::get<MlpSpec>(spec).sizes;
  std::normal_distribution<float> normal;
  for (std::uint32_t i = 0; i < sequences * sizes.front(); ++i) b.x.push_back(normal(random));
  for (std::uint32_t i = 0; i < sequences; ++i) b.targets.push_back(below(sizes.back()));
  return b;
}

// Adapters of everything, and of what leaves layers without anything that is trained.
std::vector<ModelSpec> adapted_specs() {
  const auto adapted = [](auto spec, std::vector<std::string> targets) {
    spec.lora = {.rank = 3, .alpha = 5, .targets = std::move(targets)};
    return ModelSpec(spec);
  };
  return {adapted(kGpt, {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}),
          adapted(kGpt, {"c_fc"}),
          adapted(kQwen3,
                  {"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}),
          adapted(kQwen2, {"q_proj", "v_proj"})};
}

constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kBf16, Precision::kFp16};

// What one model gives on the device and on the host, with the same parameters.
struct Rig {
  // A compute thread's, which makes one micro-batch after another.
  class Maker;

  explicit Rig(const ModelSpec& spec, Precision precision = Precision::kFp32,
               bool recompute = false)
      : device(Gpu::open({}).value()),
        model(make_model(spec, "reference").value()),
        layout(model->tensors()),
        parameters(layout.elements()) {
    job.model = spec;
    job.precision = precision;
    job.recompute = recompute;
    REQUIRE(model->initialise(7, layout, parameters));
    if (!model->frozen().empty()) model->set_frozen(frozen_values(spec));
    std::mt19937 random(3);  // gains and biases away from 1 and 0, so that nothing cancels
    std::normal_distribution<float> normal(0, 0.1f);
    for (const TensorPlace& place : layout.tensors())
      for (std::size_t i = 0; i < place.spec.elements(); ++i) {
        float& p = parameters[std::size_t{place.first_block} * kBlock + i];
        p += normal(random);
        p = rounded(p, precision);  // as State publishes them
      }
  }

  // Those of the model that has no adapters, with gains and biases away from 1 and 0.
  std::shared_ptr<FrozenInMemory> frozen_values(const ModelSpec& spec) {
    const auto whole = make_model(without_lora(spec), "reference").value();
    const Layout of_whole(whole->tensors());
    std::vector<float> values(of_whole.elements());
    REQUIRE(whole->initialise(7, of_whole, values));
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.1f);
    for (float& value : values) value = rounded(value + normal(random), job.precision);
    return frozen = std::make_shared<FrozenInMemory>(*model, of_whole, values, /*copies=*/true);
  }

  FirstGradient on_device(const Batch& batch) const {
    auto made = first_gradient(job, *model, layout, *device, parameters, batch);
    REQUIRE(made);
    return std::move(made).value();
  }
  // With a loss scale of the test's, whatever the precision.
  FirstGradient on_device(const Batch& batch, std::int32_t scale) const;
  FirstGradient on_host(const Batch& batch) const {
    FirstGradient made;
    made.gradient.resize(layout.elements());
    FlatSource source(layout, parameters.data());
    FlatSink sink(layout, made.gradient);
    const auto workspace = model->make_workspace(batch.sequences);
    made.result = model->pass(layout, source, batch, *workspace, sink).value();
    return made;
  }

  const std::shared_ptr<Device> device;
  Job job;
  const std::unique_ptr<Model> model;
  const Layout layout;
  std::vector<float> parameters;
  std::shared_ptr<FrozenInMemory> frozen;  // of a model with adapters
};

class Rig::Maker {
 public:
  Maker(const Rig& rig, std::uint32_t sequences)
      : layout_(rig.layout),
        maker_(make_gradient_maker(rig.job, *rig.model, rig.layout, *rig.device, sequences)),
        parameters_(*rig.device, rig.layout.elements()) {
    parameters_.copy_in(maker_->queue(), 0, rig.parameters);
    maker_->queue().wait();
  }

  // The gradient of the loss times 2^scale, as it is handed over.
  FirstGradient make(const Batch& batch, std::int32_t scale) {
    FirstGradient made;
    made.gradient.resize(layout_.elements());
    FlatSink sink(layout_, made.gradient);
    PassHooks hooks;
    hooks.take = [&](PartId part, std::uint32_t use, const float* gradient) {
      const std::span to(sink.begin(part, use), layout_.parts()[part].elements());
      maker_->queue().copy_out(writable_bytes(to), gradient);
      maker_->queue().wait();
      sink.end(part, use);
    };
    made.result = maker_->make(working(scale), batch, hooks).value();
    CHECK(maker_->scale() == scale);
    return made;
  }
  Working working(std::int32_t scale) const { return {parameters_.data(), nullptr, scale}; }
  GradientMaker& get() { return *maker_; }

 private:
  const Layout& layout_;
  const std::unique_ptr<GradientMaker> maker_;
  Array<float> parameters_;
};

FirstGradient Rig::on_device(const Batch& batch, std::int32_t scale) const {
  return Maker(*this, batch.sequences).make(batch, scale);
}

FirstGradient times_power_of_two(FirstGradient made, int power) {
  for (float& value : made.gradient) value = std::ldexp(value, power);
  return made;
}

// Of each tensor, the norm of the difference by that of the gradient; the largest.
double distance(const Layout& layout, const std::vector<float>& got,
                const std::vector<float>& want) {
  double largest = 0;
  for (const TensorPlace& place : layout.tensors()) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < place.blocks * std::size_t{kBlock}; ++i) {
      const std::size_t at = std::size_t{place.first_block} * kBlock + i;
      difference += std::pow(double(got[at]) - want[at], 2);
      norm += std::pow(double(want[at]), 2);
    }
    CAPTURE(place.spec.name);
    CHECK(std::isfinite(difference));
    largest = std::max(largest, std::sqrt(difference / std::max(norm, 1e-30)));
  }
  return largest;
}

bool same_bits(const FirstGradient& a, const FirstGradient& b) {
  return a.result.loss == b.result.loss && a.gradient.size() == b.gradient.size() &&
         std::memcmp(a.gradient.data(), b.gradient.data(), a.gradient.size() * 4) == 0;
}

}  // namespace

TEST_CASE("net: in fp32 the device's gradient is the reference's to rounding") {
  for (const ModelSpec& spec : {ModelSpec(kGpt), ModelSpec(kMlp), ModelSpec(kLlama),
                                ModelSpec(kMistral), ModelSpec(kQwen2), ModelSpec(kQwen3)}) {
    const Rig rig(spec);
    for (const std::uint32_t sequences : {1u, 3u}) {
      const Batch batch = batch_of(spec, sequences);
      const FirstGradient got = rig.on_device(batch), want = rig.on_host(batch);
      CHECK(got.result.loss == doctest::Approx(want.result.loss).epsilon(1e-6));
      CHECK(got.result.tokens == want.result.tokens);
      CHECK(got.result.finite);
      CHECK(distance(rig.layout, got.gradient, want.gradient) < 1e-5);
    }
  }
}

TEST_CASE("net: only the targets that are there count, as on the host") {
  const Rig rig(kGpt);
  Batch batch = batch_of(kGpt, 3);
  for (std::size_t i = 0; i < batch.targets.size(); ++i)
    if (i % 5 < 2 || i > 25) batch.targets[i] = kNotATarget;
  const FirstGradient got = rig.on_device(batch), want = rig.on_host(batch);
  CHECK(got.result.loss == doctest::Approx(want.result.loss).epsilon(1e-6));
  CHECK(got.result.tokens == 15);
  CHECK(want.result.tokens == 15);
  CHECK(distance(rig.layout, got.gradient, want.gradient) < 1e-5);
}

TEST_CASE("net: the gradient of adapters is the reference's to rounding") {
  for (const ModelSpec& spec : adapted_specs()) {
    const Rig rig(spec);
    const Batch batch = batch_of(spec, 3);
    const FirstGradient got = rig.on_device(batch), want = rig.on_host(batch);
    CHECK(got.result.loss == doctest::Approx(want.result.loss).epsilon(1e-6));
    CHECK(distance(rig.layout, got.gradient, want.gradient) < 1e-5);
  }
}

TEST_CASE("net: in bf16 and fp16 the gradient of adapters is near the reference's") {
  for (const ModelSpec& spec : adapted_specs())
    for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
      const Rig rig(spec, precision);
      const Batch batch = batch_of(spec, 4);
      const FirstGradient scaled = rig.on_device(batch, 10), want = rig.on_host(batch);
      const FirstGradient got = times_power_of_two(scaled, -10);
      const bool bf16 = precision == Precision::kBf16;
      CHECK(got.result.loss == doctest::Approx(want.result.loss).epsilon(bf16 ? 1e-2 : 1e-3));
      CHECK(distance(rig.layout, got.gradient, want.gradient) < (bf16 ? 0.05 : 0.006));
      CHECK(same_bits(Rig(spec, precision, /*recompute=*/true).on_device(batch, 10), scaled));
    }
}

// Goal: what lies under adapters is copied once for a device, and no pass uses what another process has changed.
TEST_CASE("net: makers share what lies under adapters, and no pass takes it changed") {
  const ModelSpec spec = adapted_specs().back();
  const Rig rig(spec);
  const Batch batch = batch_of(spec, 2);
  Rig::Maker one(rig, 2);
  rig.frozen->changes_after = 1;  // another read of it
  Rig::Maker other(rig, 2);
  CHECK_FALSE(rig.frozen->changed);
  CHECK(same_bits(one.make(batch, 0), other.make(batch, 0)));
  rig.frozen->changed = true;
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) { FAIL("a gradient"); };
  const auto refused = one.get().make(one.working(0), batch, hooks);
  REQUIRE(refused.has_error());
  CHECK(refused.error().text() == "was changed");
}

TEST_CASE("net: a number under adapters that fp16 cannot hold is named") {
  const ModelSpec spec = adapted_specs().front();
  Rig rig(spec, Precision::kFp16);
  rig.frozen->values("h.1.mlp.c_fc.weight", *rig.model)[7] = 7e4f;
  Rig::Maker maker(rig, 2);
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) { FAIL("a gradient"); };
  const auto refused = maker.get().make(maker.working(0), batch_of(spec, 2), hooks);
  REQUIRE(refused.has_error());
  CHECK(refused.error().text() ==
        "h.1.mlp.c_fc.weight has 70000.000000, which precision = \"fp16\" cannot hold; \"bf16\" "
        "can; [job]");
}

// Activations have 8 bits; the sums of this small network keep the error of a tensor within a few of
// them.
TEST_CASE("net: in bf16 the device's gradient is near the reference's") {
  for (const ModelSpec& spec :
       {ModelSpec(kGpt), ModelSpec(kMlp), ModelSpec(kMistral), ModelSpec(kQwen3)}) {
    const Rig rig(spec, Precision::kBf16);
    const Batch batch = batch_of(spec, 4);
    const FirstGradient got = rig.on_device(batch), want = rig.on_host(batch);
    CHECK(got.result.loss == doctest::Approx(want.result.loss).epsilon(1e-2));
    CHECK(distance(rig.layout, got.gradient, want.gradient) < 0.05);
  }
}

// Activations have 11 bits, three more than those of bf16: an eighth of their error.
TEST_CASE("net: in fp16 the device's gradient is near the reference's with any scale") {
  for (const ModelSpec& spec : {ModelSpec(kGpt), ModelSpec(kMlp), ModelSpec(kQwen2)}) {
    Rig rig(spec, Precision::kFp16);
    const Batch batch = batch_of(spec, 4);
    const FirstGradient want = rig.on_host(batch);
    for (const std::uint8_t scale : {0, 10, 16}) {
      CAPTURE(static_cast<int>(scale));
      rig.job.loss_scale = scale;
      const FirstGradient got = rig.on_device(batch);
      CHECK(got.result.loss == doctest::Approx(want.result.loss).epsilon(1e-3));
      CHECK(distance(rig.layout, got.gradient, want.gradient) < 0.006);
      const FirstGradient scaled = rig.on_device(batch, scale);
      CHECK(same_bits(times_power_of_two(scaled, -scale), got));
    }
  }
}

// Goal: a run's first exponents fit the steps that count. Method: the first scale that a job may have at
// most, with which this gradient overflows.
TEST_CASE("net: a first gradient is finite, whatever the job's first scale") {
  Rig rig(kGpt, Precision::kFp16);
  const Batch batch = batch_of(kGpt, 4);
  rig.job.loss_scale = LossScaleRule::kMax;
  CHECK_FALSE(all_finite(rig.on_device(batch, LossScaleRule::kMax).gradient));
  const FirstGradient got = rig.on_device(batch);
  REQUIRE(all_finite(got.gradient));
  CHECK(distance(rig.layout, got.gradient, rig.on_host(batch).gradient) < 0.006);
}

// Goal: what a scale is for. Method: gradients as small as those of a large batch, for which the scale's
// opposite stands.
TEST_CASE("net: what fp16 would lose, a scale keeps") {
  const Rig rig(kGpt, Precision::kFp16);
  const Batch batch = batch_of(kGpt, 4);
  const FirstGradient want = rig.on_host(batch);
  const auto off = [&](std::int32_t scale) {
    const FirstGradient got = times_power_of_two(rig.on_device(batch, scale), -scale);
    return distance(rig.layout, got.gradient, want.gradient);
  };
  CHECK(off(-16) > 0.5);
  CHECK(off(0) < 0.01);
}

// Numbers of fp32 and bf16 have room for it, so that no other bit changes.
TEST_CASE("net: in fp32 and bf16 a scaled gradient is the gradient times the scale") {
  for (const ModelSpec& spec : {ModelSpec(kGpt), ModelSpec(kMlp)})
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      const Rig rig(spec, precision);
      const Batch batch = batch_of(spec, 2);
      const FirstGradient plain = rig.on_device(batch, 0);
      for (const std::int32_t scale : {10, 24})
        CHECK(same_bits(rig.on_device(batch, scale), times_power_of_two(plain, scale)));
    }
}

// The scale that is too large by far for 44 rows: gradients of logits are up to 2^24 / 44.
TEST_CASE("net: a gradient that fp16 cannot hold breaks its blocks, and nothing of it is added") {
  const Rig rig(kGpt, Precision::kFp16);
  const Batch batch = batch_of(kGpt, 4);
  Rig::Maker maker(rig, 4);
  const std::vector<std::int16_t> all(rig.layout.blocks(), -20);
  Array<std::int16_t> exponents(*rig.device, all.size());
  exponents.copy_in(maker.get().queue(), 0, all);
  maker.get().queue().wait();
  Accumulators sums(rig.layout, 3, *rig.device);
  const auto add = [&](std::int32_t scale, MicroBatch m) {
    Accumulators::Adding adding = sums.begin(maker.get().queue(), exponents.data(), 1, 0, m);
    const auto made = maker.get().make(maker.working(scale), batch, adding);
    CHECK(made.value().finite);  // the loss: forward nothing overflowed
    const auto added = adding.finish();
    sums.mirror({0, rig.layout.segments()});
    return added.finite;
  };
  const auto present = [&] {
    return std::ranges::any_of(sums.sums(), [](auto q) { return q != 0; });
  };
  CHECK_FALSE(add(24, 0));
  CHECK_FALSE(present());
  CHECK(add(10, 1));
  CHECK(present());
  const std::vector<std::int32_t> before(sums.sums().begin(), sums.sums().end());
  CHECK_FALSE(add(24, 2));
  CHECK(std::ranges::equal(sums.sums(), before));
}

TEST_CASE("net: an activation that fp16 cannot hold gives a loss that is not finite") {
  for (const Precision precision : kPrecisions) {
    const Rig rig(kMlp, precision);
    Batch batch = batch_of(kMlp, 3);
    for (float& x : batch.x) x *= 1e5f;
    CHECK(rig.on_device(batch, 0).result.finite == (precision != Precision::kFp16));
  }
}

TEST_CASE("net: the order in which threads and blocks run changes no bit") {
  for (const ModelSpec& spec : {ModelSpec(kGpt), ModelSpec(kMistral), ModelSpec(kQwen3)})
    for (const Precision precision : kPrecisions) {
      const Rig rig(spec, precision);
      const Batch batch = batch_of(spec, 2);
      const FirstGradient first = rig.on_device(batch, 0);
      in_every_order([&] { CHECK(same_bits(rig.on_device(batch, 0), first)); });
    }
}

TEST_CASE("net: what the backward pass computes again has the same bits") {
  for (const ModelSpec& spec : {ModelSpec(kGpt), ModelSpec(kMlp), ModelSpec(kQwen3)})
    for (const Precision precision : kPrecisions) {
      const Batch batch = batch_of(spec, 2);
      const FirstGradient kept = Rig(spec, precision).on_device(batch);
      CHECK(same_bits(Rig(spec, precision, /*recompute=*/true).on_device(batch), kept));
    }
}

// The first pass runs plain, the second is captured, the third runs its graphs: each with a batch and a
// scale of its own, and each as a maker makes it that has seen no other batch.
TEST_CASE("net: graphs take each batch and each scale anew") {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const Rig rig(kGpt, precision);
    Rig::Maker maker(rig, 2);
    for (unsigned seed = 1; seed <= 4; ++seed) {
      const Batch batch = batch_of(kGpt, 2, seed);
      const auto scale = static_cast<std::int32_t>(seed * 5 % 13);
      CHECK(same_bits(maker.make(batch, scale), rig.on_device(batch, scale)));
    }
  }
}

// A table of more than 32 MiB lies in two parts; all logits are one product all the same.
TEST_CASE("net: a token table that lies in several parts" * doctest::test_suite("long")) {
  const GptSpec spec{.layers = 1, .heads = 1, .width = 96, .context = 4, .vocabulary = 88000};
  const Rig rig(spec);
  REQUIRE(rig.layout.tensors()[0].parts == 2);
  const Batch batch = batch_of(spec, 1);
  const FirstGradient got = rig.on_device(batch), want = rig.on_host(batch);
  CHECK(got.result.loss == doctest::Approx(want.result.loss).epsilon(1e-6));
  CHECK(distance(rig.layout, got.gradient, want.gradient) < 1e-5);
}

// Goal: no product makes cuBLASLt read two bytes at a time, whatever the vocabulary. Method: what a pass of
// halves asks for, with a vocabulary that is odd.
TEST_CASE("net: every product has whole packs, also those of an odd vocabulary") {
  class Asked : public Products {
   public:
    explicit Asked(std::vector<Product>& asked) : asked_(asked) {}
    void multiply(cudaStream_t stream, const Product& product) override {
      asked_.push_back(product);
      cuda::multiply(stream, product);
    }
    PlanTable plans() const override { return {}; }
    std::string describe() const override { return "asked"; }

   private:
    std::vector<Product>& asked_;
  };
  const GptSpec spec{.layers = 1, .heads = 2, .width = 32, .context = 8, .vocabulary = 301};
  const ModelSpec model = spec;
  const Rig rig(spec, Precision::kBf16);
  auto& device = dynamic_cast<CudaDevice&>(*rig.device);
  std::vector<Product> asked;
  NetMaker maker({model, rig.layout, Precision::kBf16, /*recompute=*/false, /*sequences=*/2},
                 device, std::make_unique<Asked>(asked), spec.input(),
                 make_layers(spec, {rig.layout, {}, {}}, device));
  Array<float> parameters(device, rig.layout.elements());
  parameters.copy_in(maker.queue(), 0, rig.parameters);
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) {};
  REQUIRE(maker.make({parameters.data(), nullptr}, batch_of(spec, 2), hooks));
  CHECK(asked.size() == 15);  // 4 forward, 8 backward; logits and their two gradients
  for (const Product& p : asked) {
    const PlanKey key = key_of(p);
    CAPTURE(text_of(key));
    for (const std::uint32_t n : {key.m, key.n, key.k, key.lda, key.ldb, key.ldc})
      CHECK(n % 8 == 0);
    for (const std::uint32_t a : {key.align_a, key.align_b, key.align_c}) CHECK(a >= 16);
  }
}

TEST_CASE(
    "net: a batch that does not fit is refused, and a part that does not come ends the pass") {
  const Rig rig(kGpt);
  const auto maker = make_gradient_maker(rig.job, *rig.model, rig.layout, *rig.device, 2);
  Array<float> parameters(*rig.device, rig.layout.elements());
  int taken = 0;
  PassHooks hooks;
  hooks.take = [&](PartId, std::uint32_t, const float*) { ++taken; };
  Batch batch = batch_of(kGpt, 2);
  batch.tokens[3] = 37;
  const auto refused = maker->make({parameters.data(), nullptr}, batch, hooks);
  REQUIRE(refused.has_error());
  CHECK(refused.error().text() == "token 37 in the batch; the model takes 0 to 36");
  hooks.before_reading = [](PartId part) { return part != PartId(3); };
  const auto lacking = maker->make({parameters.data(), nullptr}, batch_of(kGpt, 2), hooks);
  REQUIRE(lacking.has_error());
  CHECK(lacking.error().code() == Code::kUnavailable);
  CHECK(taken == 0);
}

// Among them one with adapters of weights that were not given: the host says so.
TEST_CASE("net: models that the device does not have are the host's to compute") {
  const auto device = Gpu::open({}).value();
  const LlamaSpec wide = with([](LlamaSpec& s) { s.head_width = 130; });
  for (const ModelSpec& spec :
       {ModelSpec(SyntheticSpec{.parameters = 5000}), ModelSpec(wide), adapted_specs().front()}) {
    const auto model = make_model(spec, "auto").value();
    const Layout layout(model->tensors());
    CHECK(device->make_maker({spec, layout, Precision::kFp32, false, 1}) == nullptr);
  }
}

}  // namespace starling::kernels::cuda
