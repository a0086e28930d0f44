#include "kernels/models/synthetic.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/hash.h"
#include "core/base/philox.h"
#include "kernels/cpu/table.h"
#include "kernels/grid/accumulators.h"

namespace starling::kernels {
namespace {

const SyntheticSpec kSmall{.parameters = 20'003};

Batch synthetic_batch(std::uint64_t seed, std::uint64_t step, MicroBatch m) {
  Batch batch;
  batch.sequences = 4;
  batch.draw = {seed, step, m};
  return batch;
}

struct Made {
  std::vector<float> gradient;
  MicroBatchResult result;
  bool operator==(const Made& o) const {
    return std::memcmp(gradient.data(), o.gradient.data(), gradient.size() * 4) == 0 &&
           result.loss == o.result.loss;
  }
};

Made make(const Model& model, const std::vector<float>& w, const Batch& batch) {
  Made made{std::vector<float>(w.size(), 1e30f), {}};
  const auto workspace = model.make_workspace(4);
  made.result = model.forward_backward(w, batch, *workspace, made.gradient).value();
  return made;
}

std::vector<float> initial(const Model& model, std::uint64_t seed = 1) {
  const Layout layout(model.tensors());
  std::vector<float> w(layout.elements(), 1e30f);
  REQUIRE(model.initialise(seed, layout, w));
  return w;
}

}  // namespace

TEST_CASE("synthetic: tensors of many shapes hold exactly the parameters that were asked for") {
  for (const std::uint64_t n : {1000ull, 1001ull, 20'003ull, 1'000'000ull, 100'000'000ull}) {
    CAPTURE(n);
    const auto model = make_synthetic({.parameters = n});
    std::uint64_t elements = 0, matrices = 0;
    for (const TensorSpec& tensor : model->tensors()) {
      elements += tensor.elements();
      matrices += tensor.shape.size() == 2;
    }
    CHECK(elements == n);
    CHECK(matrices == 13);
    CHECK(model->tensors().size() >= 25);
  }
}

TEST_CASE("synthetic: segments cross tensors") {
  const Layout layout(make_synthetic({})->tensors());
  std::uint32_t crossing = 0;
  for (SegmentId s = 0; s < layout.segments(); ++s) {
    const std::uint32_t first = layout.first_block(s);
    crossing += layout.tensor_of(first) != layout.tensor_of(first + layout.block_count(s) - 1);
  }
  CHECK(crossing >= 10);
}

// Goal: the gradient is what the header says. Method: the formula once more, an element at a time.
TEST_CASE("synthetic: the gradient is a function of seed, step, micro-batch, index and parameter") {
  const auto model = make_synthetic(kSmall);
  const Layout layout(model->tensors());
  const auto w = initial(*model);
  const Made made = make(*model, w, synthetic_batch(5, 6, 7));
  std::uint32_t wrong = 0;
  for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
    const auto bits = random4(5, Purpose::kSyntheticGradient, 6, 7, b);
    const double rare = (bits[1] >> 20) == 0 ? 32 : 1;
    const double s = rare * std::ldexp(1.0, -8 - static_cast<int>(layout.tensor_of(b) * 5 % 7));
    for (std::uint32_t j = 0; j < kBlock; ++j) {
      std::uint32_t x = bits[0] + j * 0x9E3779B9u;
      x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
      x = (x ^ (x >> 13)) * 0xC2B2AE35u;
      const float noise = static_cast<float>(static_cast<std::int32_t>(x ^ (x >> 16))) / 0x1p31f;
      const float a = static_cast<float>(j / 128.0 - 1);
      const std::size_t i = std::size_t{b} * kBlock + j;
      float g = static_cast<float>(s) * ((a + noise / 2) + w[i] / 16);
      if (j >= layout.used(b)) g = 0;  // padding
      wrong += made.gradient[i] != g;
    }
  }
  CHECK(wrong == 0);
  CHECK(made.result.finite);
  CHECK(made.result.tokens == 4);
}

// Goal: bits do not depend on the machine. Method: the instruction sets of this one, and what the
// bits were elsewhere.
TEST_CASE("synthetic: the same bits with every instruction set and on every machine") {
  const auto model = make_model(kSmall, "reference").value();
  CHECK(model->isa() == "portable");
  const auto w = initial(*model);
  const Made want = make(*model, w, synthetic_batch(1, 2, 3));
  for (const char* isa : {"avx2", "avx512", "auto"}) {
    if (isa != std::string("auto") && !cpu_has(isa)) continue;
    const auto other = make_model(kSmall, isa).value();
    CHECK(initial(*other) == w);
    CHECK(make(*other, w, synthetic_batch(1, 2, 3)) == want);
  }
  CHECK(hash64(as_bytes(std::span<const float>(w))) == 11375070115121200877ull);
  CHECK(hash64(as_bytes(std::span<const float>(want.gradient))) == 2227170774255689741ull);
}

TEST_CASE("synthetic: seed, step, micro-batch and parameters all show in the bits") {
  const auto model = make_synthetic(kSmall);
  const auto w = initial(*model);
  const Made made = make(*model, w, synthetic_batch(1, 2, 3));
  CHECK(make(*model, w, synthetic_batch(1, 2, 3)) == made);
  for (const Batch& other :
       {synthetic_batch(2, 2, 3), synthetic_batch(1, 3, 3), synthetic_batch(1, 2, 4)}) {
    const Made differs = make(*model, w, other);
    CHECK_FALSE(differs == made);
    CHECK(differs.result.loss != made.result.loss);
  }
  CHECK(initial(*model, 2) != w);
  // As one update of AdamW at a rate of 1e-5 does: stale parameters are seen.
  std::vector<float> later = w;
  const Layout layout(model->tensors());
  for (std::uint32_t b = 0; b < layout.blocks(); ++b)
    for (std::uint32_t j = 0; j < layout.used(b); ++j) later[std::size_t{b} * kBlock + j] += 1e-5f;
  const Made differs = make(*model, later, synthetic_batch(1, 2, 3));
  std::uint64_t same = 0;
  for (std::size_t i = 0; i < w.size(); ++i)
    same += made.gradient[i] != 0 && made.gradient[i] == differs.gradient[i];
  CHECK(same < w.size() / 100);
  CHECK(differs.result.loss != made.result.loss);
}

TEST_CASE("synthetic: the loss begins near 4 and the mean gradient leads it down") {
  const auto model = make_synthetic(kSmall);
  auto w = initial(*model);
  const Layout layout(model->tensors());
  const Made begin = make(*model, w, synthetic_batch(1, 0, 0));
  CHECK(begin.result.loss == doctest::Approx(4).epsilon(0.03));
  for (std::uint64_t step = 0; step < 50; ++step) {
    const Made made = make(*model, w, synthetic_batch(1, step, 0));
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] -= std::copysign(0.01f, made.gradient[i]) * (made.gradient[i] != 0);
  }
  CHECK(make(*model, w, synthetic_batch(1, 50, 0)).result.loss < 3.8);
}

TEST_CASE("synthetic: the gradient of a parameter that is not finite is not finite") {
  const auto model = make_synthetic(kSmall);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto w = initial(*model);
    w[777] = bad;
    CHECK_FALSE(std::isfinite(make(*model, w, synthetic_batch(1, 0, 0)).gradient[777]));
  }
}

// Goal: like real gradients, all but few contributions fit the grid, and some do not.
TEST_CASE("synthetic: one contribution in some thousands goes to the side list") {
  constexpr std::uint32_t kMicroBatches = 16;
  const auto model = make_synthetic({});
  const Layout layout(model->tensors());
  const auto w = initial(*model);
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(Grid(kMicroBatches), layout, make(*model, w, synthetic_batch(1, 0, 0)).gradient,
                    exponents);
  const auto queue = host_device().make_queue();
  Accumulators accumulators(layout, kMicroBatches);
  std::uint32_t entries = 0;
  for (MicroBatch m = 0; m < kMicroBatches; ++m) {
    const Made made = make(*model, w, synthetic_batch(1, 0, m));
    entries +=
        accumulators.add(*queue, made.gradient.data(), exponents.data(), 1, 0, m).side_entries;
  }
  const double fraction = double(entries) / (double(kMicroBatches) * layout.blocks());
  CHECK(fraction > 1.0 / 10'000);
  CHECK(fraction < 1.0 / 1'000);
}

TEST_CASE("synthetic: compute time varies as far as the jitter says, alike on every worker") {
  using std::chrono::nanoseconds;
  CHECK(compute_time(SyntheticSpec{1000, 20, 0, {}}, 1, 2, 3) == std::chrono::milliseconds(20));
  CHECK(compute_time(SyntheticSpec{1000, 0, 1, {}}, 1, 2, 3) == nanoseconds(0));
  const SyntheticSpec spec{1000, 20, 0.25, {}};
  nanoseconds shortest = std::chrono::hours(1), longest{0};
  for (MicroBatch m = 0; m < 1000; ++m) {
    const auto time = compute_time(spec, 1, 2, m);
    CHECK(time == compute_time(spec, 1, 2, m));
    shortest = std::min(shortest, time);
    longest = std::max(longest, time);
  }
  const auto ms = [](nanoseconds t) {
    return std::chrono::duration<double, std::milli>(t).count();
  };
  CHECK(ms(shortest) >= 15);
  CHECK(ms(shortest) < 15.1);
  CHECK(ms(longest) <= 25);
  CHECK(ms(longest) > 24.9);
  CHECK(compute_time(spec, 1, 2, 3) != compute_time(spec, 1, 3, 3));
  CHECK(compute_time(spec, 1, 2, 3) != compute_time(spec, 2, 2, 3));
}

}  // namespace starling::kernels
