#include "kernels/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "core/job/formula.h"
#include "core/job/schedule.h"
#include "kernels/optim/formula_update.h"
#include "kernels/optim/own.h"
#include "kernels/optim/update.h"

namespace starling::kernels {

static_assert(kUpdateGroupsMax == kGroupsMax);

double clip_factor(double norm, double clip) {
  if (clip == 0) return 1;
  return std::min(1.0, clip / (norm + 1e-6));
}

namespace {

// A Pair is an unevaluated sum of two doubles.
struct Pair {
  double high = 0, low = 0;
};

// Is exact (Dekker, Numerische Mathematik 18, 1971), but for what lies below the smallest double or near the largest.
Pair product(double a, double b) {
  constexpr double kSplit = 134217729;  // 2^27 + 1
  const auto upper = [](double x) {
    const double scaled = kSplit * x;
    return scaled - (scaled - x);
  };
  const double high = a * b;
  if (!(std::fabs(a) < 0x1p996 && std::fabs(b) < 0x1p996 && std::fabs(high) < 0x1p996))
    return {high, 0};  // what follows would be no number
  const double a1 = upper(a), a2 = a - a1, b1 = upper(b), b2 = b - b1;
  return {high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
}

Pair product(const Pair& a, const Pair& b) {
  const Pair most = product(a.high, b.high);
  if (std::isinf(most.high)) return most;
  const double low = most.low + (a.high * b.low + a.low * b.high);
  const double high = most.high + low;
  return {high, low - (high - most.high)};
}

}  // namespace

double power(double base, std::uint64_t exponent) {
  Pair result{1, 0}, square{base, 0};
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = product(result, square);
    if (exponent > 1) square = product(square, square);
  }
  return result.high + result.low;
}

namespace {

// The optimizer of a formula, at the same address as long as the process is there.
const OwnOptimizer* of_formula(const std::string& text) {
  struct Made {
    Mutex mutex;
    std::map<std::string, OwnOptimizer> of STARLING_GUARDED_BY(mutex);
  };
  static Made made;
  const MutexLock lock(made.mutex);
  auto it = made.of.find(text);
  if (it == made.of.end()) {
    auto formula = parse_formula(text);
    STARLING_CHECK(formula);  // the job's reader has parsed the text
    it = made.of.emplace(text, optimizer_of(std::move(formula.value()))).first;
  }
  return &it->second;
}

// Null: it is one of the built-in ones, or the application has not brought it.
const OwnOptimizer* own_of(const OptimizerSpec& spec) {
  if (spec.kind == OptimizerKind::kElementwise) return of_formula(spec.update);
  return spec.kind == OptimizerKind::kOwn ? Named<OwnOptimizer>::find(spec.name) : nullptr;
}

}  // namespace

unsigned moments(const OptimizerSpec& spec) {
  if (const auto* own = own_of(spec)) return own->moments;
  return spec.kind == OptimizerKind::kSgd ? 1 : 2;
}

namespace {

Result<> check_optimizer(const OptimizerSpec& spec, const std::string& section) {
  STARLING_TRY(check_schedule(spec, section));
  if (spec.kind != OptimizerKind::kOwn) return ok();
  const auto* own = Named<OwnOptimizer>::find(spec.name);
  if (own == nullptr)
    return Error(Code::kBadInput, "this program has no optimizer \"" + spec.name + "\", it has " +
                                      Named<OwnOptimizer>::known() + "; [" + section + "].name");
  if (own->moments < 1 || own->moments > 2 || !own->update)
    return Error(Code::kBadInput, "the optimizer \"" + spec.name +
                                      "\" must have 1 or 2 moments and an update; [" + section +
                                      "].name");
  return ok();
}

}  // namespace

Result<> check_optimizers(const Job& job) {
  STARLING_TRY(check_optimizer(job.optimizer, "optimizer"));
  if (job.local.on()) {
    STARLING_TRY(check_optimizer(job.local.optimizer, "local"));
  }
  return ok();
}

UpdateNumbers update_numbers(const OptimizerSpec& spec, const StepScale& scale,
                             std::span<const UpdateGroup> groups) {
  STARLING_CHECK(groups.size() <= kUpdateGroupsMax);
  UpdateNumbers n{};
  n.clip = static_cast<float>(scale.clip_scale);
  n.sgd = spec.kind == OptimizerKind::kSgd;
  for (std::size_t i = 0; i < groups.size(); ++i) n.groups[i].statistics = groups[i].statistics;
  if (spec.kind == OptimizerKind::kOwn || spec.kind == OptimizerKind::kElementwise) {
    n.mine = own_of(spec);
    STARLING_CHECK(n.mine != nullptr);
    n.t = scale.t;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      n.groups[i].own_rate = scale.rate * groups[i].rate_factor;
      n.groups[i].own_decay = groups[i].weight_decay;
    }
    return n;
  }
  if (n.sgd) {
    n.mu = static_cast<float>(spec.momentum);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      n.groups[i].rate = static_cast<float>(scale.rate * groups[i].rate_factor);
      n.groups[i].decay = static_cast<float>(groups[i].weight_decay);
    }
    // Nesterov looks one momentum step ahead: g + mu buf. Plain momentum takes buf alone.
    n.own = spec.nesterov ? 1.0f : 0.0f;
    n.ahead = spec.nesterov ? n.mu : 1.0f;
    return n;
  }
  n.b1 = static_cast<float>(spec.beta1);
  n.c1 = static_cast<float>(1 - spec.beta1);
  n.b2 = static_cast<float>(spec.beta2);
  n.c2 = static_cast<float>(1 - spec.beta2);
  n.eps = static_cast<float>(spec.epsilon);
  n.root = static_cast<float>(1 / std::sqrt(1 - power(spec.beta2, scale.t)));
  const bool decays = spec.kind == OptimizerKind::kAdamW;
  const double correction = 1 - power(spec.beta1, scale.t);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double rate = scale.rate * groups[i].rate_factor;
    n.groups[i].rate = static_cast<float>(rate / correction);
    n.groups[i].decay = static_cast<float>(decays ? 1 - rate * groups[i].weight_decay : 1.0);
  }
  return n;
}

namespace {

void adam_loop(const UpdateNumbers& numbers, std::uint32_t group, std::span<const float> gradient,
               std::span<float> w, std::span<float> m, std::span<float> v) {
  const std::size_t n = gradient.size();
  STARLING_CHECK(w.size() == n);
  STARLING_CHECK(m.size() == n);
  STARLING_CHECK(v.size() == n);
  const AdamNumbers of_step = adam_numbers(numbers, group);
  const float* __restrict gp = gradient.data();
  float* __restrict wp = w.data();
  float* __restrict mp = m.data();
  float* __restrict vp = v.data();
  for (std::size_t i = 0; i < n; ++i) adam(of_step, gp[i], wp[i], mp[i], vp[i]);
}

void sgd_loop(const UpdateNumbers& numbers, std::uint32_t group, std::span<const float> gradient,
              std::span<float> w, std::span<float> buf) {
  const std::size_t n = gradient.size();
  STARLING_CHECK(w.size() == n);
  STARLING_CHECK(buf.size() == n);
  const SgdNumbers of_step = sgd_numbers(numbers, group);
  const float* __restrict gp = gradient.data();
  float* __restrict wp = w.data();
  float* __restrict bp = buf.data();
  for (std::size_t i = 0; i < n; ++i) sgd(of_step, gp[i], wp[i], bp[i]);
}

}  // namespace

void update(const UpdateNumbers& numbers, std::uint32_t group, std::span<const float> gradient,
            std::span<float> w, std::span<float> first, std::span<float> second) {
  STARLING_CHECK(group < kUpdateGroupsMax);
  const GroupNumbers& g = numbers.groups[group];
  if (g.statistics) {
    STARLING_CHECK(w.size() == gradient.size());
    for (std::size_t i = 0; i < w.size(); ++i) statistic(gradient[i], w[i]);
    return;
  }
  if (numbers.mine != nullptr)
    return numbers.mine->update({g.own_rate, numbers.clip, numbers.t, g.own_decay}, gradient, w,
                                first, second);
  if (numbers.sgd) return sgd_loop(numbers, group, gradient, w, first);
  adam_loop(numbers, group, gradient, w, first, second);
}

void update(const OptimizerSpec& spec, const StepScale& scale, bool decay,
            std::span<const float> gradient, std::span<float> w, std::span<float> first,
            std::span<float> second) {
  const UpdateGroup alone{1, decay ? spec.weight_decay : 0};
  update(update_numbers(spec, scale, {&alone, 1}), 0, gradient, w, first, second);
}

}  // namespace starling::kernels
