#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "kernels/optim/optimizer.h"

namespace starling::kernels {
namespace {

struct State {
  std::vector<float> g, w, a, b;
};

State random_state(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  State s;
  for (std::size_t i = 0; i < n; ++i) {
    s.g.push_back(normal(random));
    s.w.push_back(normal(random));
    s.a.push_back(0.1f * normal(random));
    s.b.push_back(0.01f * std::fabs(normal(random)));
  }
  return s;
}

void update_range(const OptimizerSpec& spec, const StepScale& scale, State& s, std::size_t from,
                  std::size_t n) {
  update(spec, scale, /*decay=*/true, std::span(s.g).subspan(from, n),
         std::span(s.w).subspan(from, n), std::span(s.a).subspan(from, n),
         std::span(s.b).subspan(from, n));
}

TEST_CASE("optimizers: the bits do not depend on how spans are cut") {
  constexpr std::size_t kElements = 1000;
  const StepScale scale{.rate = 3e-3, .clip_scale = 0.37, .t = 9};
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    OptimizerSpec spec;
    spec.kind = kind;
    State whole = random_state(kElements, 1);
    update_range(spec, scale, whole, 0, kElements);
    for (const std::size_t piece : {1u, 3u, 7u, 8u, 13u, 256u}) {
      CAPTURE(piece);
      State cut = random_state(kElements, 1);
      for (std::size_t i = 0; i < kElements; i += piece)
        update_range(spec, scale, cut, i, std::min(piece, kElements - i));
      CHECK(std::memcmp(cut.w.data(), whole.w.data(), kElements * 4) == 0);
      CHECK(std::memcmp(cut.a.data(), whole.a.data(), kElements * 4) == 0);
      CHECK(std::memcmp(cut.b.data(), whole.b.data(), kElements * 4) == 0);
    }
  }
}

// The same formulae in double, written in their textbook order; float may be off by a few roundings
// of the parameter and of its change.
TEST_CASE("optimizers: steps are those of the formulae") {
  const StepScale scale{.rate = 0.01, .clip_scale = 0.5, .t = 3};
  for (const bool decay : {false, true}) {
    OptimizerSpec spec;
    spec.weight_decay = 0.1;
    const State before = random_state(64, 2);
    State s = before;
    update(spec, scale, decay, s.g, s.w, s.a, s.b);
    for (std::size_t i = 0; i < 64; ++i) {
      const double g = before.g[i] * 0.5;
      const double m = 0.9 * before.a[i] + 0.1 * g, v = 0.95 * before.b[i] + 0.05 * g * g;
      const double w = before.w[i] * (decay ? 1 - 0.01 * 0.1 : 1);
      const double change =
          0.01 * (m / (1 - std::pow(0.9, 3))) / (std::sqrt(v / (1 - std::pow(0.95, 3))) + 1e-8);
      CHECK(s.w[i] == doctest::Approx(w - change).epsilon(4e-7));
      CHECK(s.a[i] == doctest::Approx(m).epsilon(1e-6));
      CHECK(s.b[i] == doctest::Approx(v).epsilon(1e-6));
    }
    for (const bool nesterov : {false, true}) {
      spec.kind = OptimizerKind::kSgd;
      spec.nesterov = nesterov;
      State t = before;
      update(spec, scale, decay, t.g, t.w, t.a, {});
      for (std::size_t i = 0; i < 64; ++i) {
        const double g = before.g[i] * 0.5 + (decay ? 0.1 * before.w[i] : 0);
        const double buf = 0.9 * before.a[i] + g;
        CHECK(t.a[i] == doctest::Approx(buf).epsilon(1e-6));
        CHECK(t.w[i] ==
              doctest::Approx(before.w[i] - 0.01 * (nesterov ? g + 0.9 * buf : buf)).epsilon(4e-7));
      }
    }
  }
}

// Goal: a tensor of a group gets the bits of one that is alone with the group's rate and decay.
TEST_CASE("optimizers: a group's rate and decay are those of an optimizer of its own") {
  const UpdateGroup groups[] = {{1, 0}, {1, 0.1}, {0.25, 0.5}, {0, 0.1}};
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    OptimizerSpec spec;
    spec.kind = kind;
    const StepScale scale{.rate = 3e-3, .clip_scale = 0.37, .t = 9};
    const UpdateNumbers numbers = update_numbers(spec, scale, groups);
    for (std::uint32_t g = 0; g < std::size(groups); ++g) {
      CAPTURE(g);
      State here = random_state(300, 4), alone = here;
      update(numbers, g, here.g, here.w, here.a, here.b);
      OptimizerSpec own = spec;
      own.weight_decay = groups[g].weight_decay;
      StepScale of_group = scale;
      of_group.rate = scale.rate * groups[g].rate_factor;
      update(own, of_group, /*decay=*/true, alone.g, alone.w, alone.a, alone.b);
      CHECK(here.w == alone.w);
      CHECK(here.a == alone.a);
      CHECK(here.b == alone.b);
    }
  }
}

// Goal: a formula has the bits of the same operations written in C++, for Adam's and SGD's.
TEST_CASE("optimizers: a formula of AdamW and of SGD has their bits, however spans are cut") {
  OptimizerSpec adamw, sgd, formula;
  adamw.beta1 = 0.9;
  adamw.beta2 = 0.95;
  adamw.epsilon = 1e-8;
  sgd.kind = OptimizerKind::kSgd;
  sgd.momentum = 0.9;
  sgd.nesterov = true;
  sgd.weight_decay = adamw.weight_decay;
  formula.kind = OptimizerKind::kElementwise;
  formula.weight_decay = adamw.weight_decay;
  const std::pair<OptimizerSpec, std::string> cases[] = {
      {adamw,
       "m = 0.9 * m + (1 - 0.9) * g\n"
       "v = 0.95 * v + (1 - 0.95) * (g * g)\n"
       "root = 1 / sqrt(1 - power(0.95, step))\n"
       "w = w * (1 - rate * decay) - rate / (1 - power(0.9, step)) * (m / (sqrt(v) * root + "
       "1e-8))"},
      {sgd, "d = g + decay * w\nm = 0.9 * m + d\nw = w - rate * (1 * d + 0.9 * m)"}};
  for (const auto& [built_in, text] : cases) {
    formula.update = text;
    CHECK(moments(formula) == moments(built_in));
    for (const std::uint64_t t : {1u, 2u, 9u, 1000u}) {
      const StepScale scale{.rate = 3e-3, .clip_scale = 0.37, .t = t};
      State here = random_state(1000, 4), there = here;
      update_range(built_in, scale, here, 0, 1000);
      for (std::size_t at = 0; at < 1000; at += 300)
        update_range(formula, scale, there, at, std::min<std::size_t>(300, 1000 - at));
      CHECK(here.w == there.w);
      CHECK(here.a == there.a);
      if (moments(built_in) == 2) CHECK(here.b == there.b);
    }
  }
}

TEST_CASE("optimizers: what a formula's functions come to") {
  OptimizerSpec formula;
  formula.kind = OptimizerKind::kElementwise;
  const auto of = [&](const std::string& expression, float g, float w, float m) {
    formula.update = "w = " + expression + " + 0 * w";
    State s{{g}, {w}, {m}, {0}};
    update_range(formula, {.rate = 0.5, .clip_scale = 1, .t = 3}, s, 0, 1);
    return s.w[0];
  };
  CHECK(of("sign(g)", -3, 1, 0) == -1);
  CHECK(of("sign(g)", 0, 1, 0) == 0);
  CHECK(of("sign(rate)", 0, 1, 0) == 1);
  CHECK(of("abs(g) + min(g, m) + max(g, m)", -2, 1, 5) == 5);
  CHECK(of("min(step, 2) + max(step, 2) + abs(-step)", -2, 1, 5) == 8);
  CHECK(of("select(g, m, 7)", 2, 1, 5) == 5);
  CHECK(of("select(g, m, 7)", 0, 1, 5) == 7);
  CHECK(of("select(step - 2, g, m)", 2, 1, 5) == 2);
  CHECK(of("select(2 - step, 1, 4)", 2, 1, 5) == 4);
  CHECK(of("sqrt(m) + sqrt(4) + power(2, step) + power(rate, 2)", 2, 1, 9) == 13.25f);
  CHECK(of("-g - -m", 2, 1, 9) == 7);
}

// Goal: what is no number does not look like one later, as a comparison with it would make it.
TEST_CASE("optimizers: a formula's min, max and sign of no number are none") {
  OptimizerSpec formula;
  formula.kind = OptimizerKind::kElementwise;
  for (const char* const expression :
       {"min(sqrt(g), m)", "min(m, sqrt(g))", "max(sqrt(g), m)", "max(m, sqrt(g))", "sign(sqrt(g))",
        "m * min(sqrt(-step), 1)", "m * max(1, sqrt(-step))", "m * max(sqrt(-step), 1)"}) {
    formula.update = std::string("w = w + ") + expression;
    State s{{-1}, {1}, {5}, {0}};
    update_range(formula, {.rate = 0.5, .clip_scale = 1, .t = 3}, s, 0, 1);
    CHECK_MESSAGE(std::isnan(s.w[0]), expression);
  }
}

TEST_CASE("optimizers: of statistics the mean is subtracted, and nothing else") {
  const UpdateGroup groups[] = {{1, 0}, {1, 0.1}, {1, 0, true}};
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd}) {
    OptimizerSpec spec;
    spec.kind = kind;
    State here = random_state(300, 4);
    const State before = here;
    update(update_numbers(spec, {.rate = 3e-3, .clip_scale = 0.37, .t = 9}, groups), 2, here.g,
           here.w, here.a, here.b);
    for (std::size_t i = 0; i < here.w.size(); ++i) CHECK(here.w[i] == before.w[i] - before.g[i]);
    CHECK(here.a == before.a);
    CHECK(here.b == before.b);
  }
}

TEST_CASE("optimizers: clipping, moments, and Adam without decay") {
  CHECK(clip_factor(10, 0) == 1);
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(4, 1) == 1.0 / (4 + 1e-6));
  CHECK(moments({.kind = OptimizerKind::kAdamW}) == 2);
  CHECK(moments({.kind = OptimizerKind::kAdam}) == 2);
  CHECK(moments({.kind = OptimizerKind::kSgd}) == 1);
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kAdam;
  const StepScale scale{.rate = 0.01};
  State a = random_state(9, 3), b = a;
  update(spec, scale, /*decay=*/true, a.g, a.w, a.a, a.b);
  spec.kind = OptimizerKind::kAdamW;
  update(spec, scale, /*decay=*/false, b.g, b.w, b.a, b.b);
  CHECK(a.w == b.w);
}

// Mathematical libraries differ in the last bit, states must not.
TEST_CASE("optimizers: a power is right to the last bit, and the floats made of it are libm's") {
  CHECK(power(0.5, 3) == 0.125);
  CHECK(power(0.9, 0) == 1);
  CHECK(power(0, 5) == 0);
  CHECK(power(1, 1'000'000) == 1);
  CHECK(power(0.9, 2) == 0.81);
  CHECK(power(0.5, 1'000'000) == 0);
  CHECK(power(2, 1000) == 0x1p1000);
  CHECK(power(2, 1100) == HUGE_VAL);
  CHECK(power(1.01, 1'000'003) == HUGE_VAL);
  CHECK(power(-3, 100'001) == -HUGE_VAL);
  for (const double beta : {0.8, 0.9, 0.95, 0.99, 0.999, 0.9999})
    for (std::uint64_t t = 1; t <= 20'000; ++t) {
      const double ours = power(beta, t), theirs = std::pow(beta, static_cast<double>(t));
      REQUIRE(std::fabs(ours - theirs) <= 2.3e-16 * theirs + 1e-300);
      REQUIRE(static_cast<float>(1e-3 / (1 - ours)) == static_cast<float>(1e-3 / (1 - theirs)));
      REQUIRE(static_cast<float>(1 / std::sqrt(1 - ours)) ==
              static_cast<float>(1 / std::sqrt(1 - theirs)));
    }
}

TEST_CASE("optimizers: a zero gradient from zero moments leaves everything zero") {
  std::vector<float> zero(256), w(256), m(256), v(256);
  update(OptimizerSpec{}, {.rate = 0.1}, true, zero, w, m, v);
  CHECK(w == zero);
  CHECK(m == zero);
  CHECK(v == zero);
}

}  // namespace
}  // namespace starling::kernels
