#include "tools/reference/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/models/first_gradient.h"
#include "kernels/models/model.h"
#include "kernels/optim/optimizer.h"
#include "tools/reference/fixture.h"

namespace starling::reference {

using namespace kernels;

namespace {

// Bounds are four to fifty times the error of PyTorch's own float32 run, to leave room for other
// orders of summation; every known bug of a model or optimizer is at least ten times beyond some.
struct Bounds {
  double number = 5e-7;  // losses, norms
  double rate = 1.2e-7;  // learning rates are stored rounded to float
  double gradient = 0, state = 0, moment = 0;
};
constexpr Bounds kGpt{.gradient = 3e-6, .state = 1e-4, .moment = 1e-5};
// bf16 has 8 bits: check one gradient alone, as steps with it lead elsewhere.
constexpr Bounds kGptBf16{.number = 5e-3, .gradient = 5e-2};
// Where a sum changes its sign, a ReLU lets all of a sample's gradient through or nothing.
constexpr Bounds kMlpBf16{.number = 5e-3, .gradient = 3e-1};
// fp16 has 11 bits: an eighth.
constexpr Bounds kGptFp16{.number = 6e-4, .gradient = 6e-3};
constexpr Bounds kMlpFp16{.number = 6e-4, .gradient = 4e-2};
constexpr Bounds kMlp{.gradient = 1e-6, .state = 2e-6, .moment = 2e-6};

// The keys' biases have a gradient that is zero but for rounding, and Adam makes steps of up to
// the learning rate out of rounding. So their end state is held against the sum of the rates only.
bool key_bias(const std::string& tensor) {
  return tensor.ends_with("attn.c_attn.bias");
}

const Bounds& bounds_of(const std::string& kind, Precision precision) {
  const bool gpt = kind == "gpt2";
  if (precision == Precision::kBf16) return gpt ? kGptBf16 : kMlpBf16;
  if (precision == Precision::kFp16) return gpt ? kGptFp16 : kMlpFp16;
  return gpt ? kGpt : kMlp;
}

double off(double got, double want, double largest) {
  const double difference = std::fabs(got - want);
  return largest > 0 ? difference / largest : difference;
}

// NaN is worse than any number, and stays.
void note(CheckRow& row, const std::string& tensor, double value) {
  if (std::isnan(row.off) || value <= row.off) return;
  row.off = value;
  row.tensor = tensor;
}

double largest(std::span<const float> values) {
  double top = 0;
  for (const float v : values) top = std::max(top, std::fabs(static_cast<double>(v)));
  return top;
}

class Checker {
 public:
  Checker(const Fixture& fixture, const Job& job, const Model& model, Device& device)
      : fixture_(fixture),
        layout_(model.tensors()),
        bounds_(bounds_of(fixture.kind, job.precision)),
        gradients_(job, model, layout_, device, fixture.sequences) {}

  Result<> start();                     // batch 0 at the initial parameters
  Result<> run(const FixtureRun& run);  // all steps of one optimizer
  std::vector<CheckRow> rows;

 private:
  struct Step {
    std::vector<double> losses;   // of the micro-batches
    double loss = 0, norm = 0;    // of the step
    std::vector<float> gradient;  // mean of the micro-batches'
  };
  Result<Step> compute(std::uint32_t k, std::span<const float> parameters);
  void update(const FixtureRun& run, const StepScale& scale, const Step& step);
  Result<> compare_numbers(CheckRow& row, const std::string& name, std::span<const double> got);
  Result<> compare_state(const std::string& kind, const std::string& stored,
                         std::span<const float> got, double bound, bool skip_keys);
  Result<> compare_keys(const FixtureRun& run, double rates);

  const Fixture& fixture_;
  const Layout layout_;
  const Bounds bounds_;
  WholeGradients gradients_;
  std::vector<float> w_, first_, second_;
};

Result<> Checker::start() {
  STARLING_TRY(parameters, fixture_state(fixture_, layout_, "param."));
  STARLING_TRY(step, compute(0, parameters));
  CheckRow losses{.kind = "loss", .bound = bounds_.number};
  STARLING_TRY(compare_numbers(losses, "micro_loss", step.losses));
  STARLING_TRY(compare_numbers(losses, "loss", {&step.loss, 1}));
  CheckRow norms{.kind = "grad_norm", .bound = bounds_.number};
  STARLING_TRY(compare_numbers(norms, "grad_norm", {&step.norm, 1}));
  rows.push_back(losses);
  rows.push_back(norms);
  return compare_state("grad", "grad.", step.gradient, bounds_.gradient, /*skip_keys=*/false);
}

Result<> Checker::run(const FixtureRun& run) {
  STARLING_TRY(parameters, fixture_state(fixture_, layout_, "param."));
  w_ = std::move(parameters);
  first_.assign(w_.size(), 0.0f);
  second_.assign(w_.size(), 0.0f);
  CheckRow losses{.kind = run.prefix + "loss<k>", .bound = bounds_.number};
  CheckRow norms{.kind = run.prefix + "grad_norm<k>", .bound = bounds_.number};
  CheckRow rates{.kind = run.prefix + "lr<k>", .bound = bounds_.rate};
  double sum_of_rates = 0;
  for (std::uint32_t k = 0; k < fixture_.steps; ++k) {
    STARLING_TRY(step, compute(k, w_));
    const double rate = learning_rate(run.optimizer, k, fixture_.steps);
    const std::string number = std::to_string(k);
    STARLING_TRY(compare_numbers(losses, run.prefix + "loss" + number, {&step.loss, 1}));
    STARLING_TRY(compare_numbers(norms, run.prefix + "grad_norm" + number, {&step.norm, 1}));
    STARLING_TRY(compare_numbers(rates, run.prefix + "lr" + number, {&rate, 1}));
    update(run, {rate, clip_factor(step.norm, run.optimizer.clip), k + 1}, step);
    sum_of_rates += rate;
  }
  rows.insert(rows.end(), {losses, norms, rates});
  const std::string p = run.prefix;
  STARLING_TRY(compare_state(p + "final", p + "final.", w_, bounds_.state, /*skip_keys=*/true));
  if (fixture_.kind == "gpt2") {
    STARLING_TRY(compare_keys(run, sum_of_rates));
  }
  if (moments(run.optimizer) == 1)
    return compare_state(p + "final_buf", p + "final_buf.", first_, bounds_.moment, false);
  STARLING_TRY(compare_state(p + "final_m", p + "final_m.", first_, bounds_.moment, false));
  return compare_state(p + "final_v", p + "final_v.", second_, bounds_.moment, false);
}

Result<Checker::Step> Checker::compute(std::uint32_t k, std::span<const float> parameters) {
  STARLING_TRY(batches, fixture_batches(fixture_, k));
  Step step;
  step.gradient.resize(layout_.elements());
  std::vector<double> sum(layout_.elements());
  const auto m = static_cast<double>(batches.size());
  for (const Batch& batch : batches) {
    STARLING_TRY(result, gradients_.compute(parameters, batch, step.gradient));
    step.losses.push_back(result.loss);
    step.loss += result.loss / m;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += step.gradient[i];
  }
  double squares = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    step.gradient[i] = static_cast<float>(sum[i] / m);
    squares += static_cast<double>(step.gradient[i]) * step.gradient[i];
  }
  step.norm = std::sqrt(squares);
  return step;
}

void Checker::update(const FixtureRun& run, const StepScale& scale, const Step& step) {
  for (const TensorPlace& place : layout_.tensors()) {
    const std::size_t at = std::size_t{place.first_block} * kBlock;
    const std::size_t n = place.spec.elements();
    kernels::update(run.optimizer, scale, place.spec.shape.size() >= 2,
                    std::span(step.gradient).subspan(at, n), std::span(w_).subspan(at, n),
                    std::span(first_).subspan(at, n), std::span(second_).subspan(at, n));
  }
}

Result<> Checker::compare_numbers(CheckRow& row, const std::string& name,
                                  std::span<const double> got) {
  STARLING_TRY(want, fixture_.file.floats(name));
  if (want.size() != got.size())
    return Error(Code::kBadInput, "tensor " + name + " has " + std::to_string(want.size()) +
                                      " elements; expected " + std::to_string(got.size()) +
                                      "; reference file " + fixture_.file.path());
  const double top = largest(want);
  for (std::size_t i = 0; i < got.size(); ++i) note(row, name, off(got[i], want[i], top));
  return ok();
}

Result<> Checker::compare_state(const std::string& kind, const std::string& stored,
                                std::span<const float> got, double bound, bool skip_keys) {
  STARLING_TRY(want, fixture_state(fixture_, layout_, stored));
  CheckRow row{.kind = kind, .bound = bound};
  for (const TensorPlace& place : layout_.tensors()) {
    const std::size_t at = std::size_t{place.first_block} * kBlock;
    const std::size_t n = place.spec.elements(), third = n / 3;
    const bool skip = skip_keys && key_bias(place.spec.name);
    const double top = largest(std::span(want).subspan(at, n));
    for (std::size_t i = 0; i < n; ++i) {
      if (skip && i / third == 1) continue;
      note(row, place.spec.name, off(got[at + i], want[at + i], top));
    }
  }
  rows.push_back(row);
  return ok();
}

Result<> Checker::compare_keys(const FixtureRun& run, double rates) {
  STARLING_TRY(want, fixture_state(fixture_, layout_, run.prefix + "final."));
  CheckRow row{.kind = run.prefix + "final, key biases, over sum of rates", .bound = 1};
  for (const TensorPlace& place : layout_.tensors()) {
    if (!key_bias(place.spec.name)) continue;
    const std::size_t third = place.spec.elements() / 3;
    const std::size_t keys = std::size_t{place.first_block} * kBlock + third;
    for (std::size_t i = keys; i < keys + third; ++i)
      note(row, place.spec.name, off(w_[i], want[i], rates));
  }
  rows.push_back(row);
  return ok();
}

}  // namespace

bool CheckReport::within() const {
  return std::all_of(rows.begin(), rows.end(), [](const CheckRow& r) { return r.within(); });
}

std::vector<std::string> CheckReport::lines() const {
  std::vector<std::string> out{"model " + model + ", isa " + isa};
  for (const CheckRow& r : rows) {
    char text[256];
    std::snprintf(text, sizeof text, "%-40s off %8.1e  bound %8.1e  %s  %s", r.kind.c_str(), r.off,
                  r.bound, r.within() ? "ok  " : "FAIL", r.tensor.c_str());
    out.emplace_back(text);
  }
  return out;
}

Result<CheckReport> check_fixture(const std::string& path, const std::string& isa,
                                  Precision precision) {
  STARLING_TRY(fixture, open_fixture(path));
  STARLING_TRY(model, make_model(fixture.model, isa));
  STARLING_TRY(device, open_device(isa));
  Job job;
  job.model = fixture.model;
  job.precision = precision;
  Checker checker(fixture, job, *model, *device);
  STARLING_TRY(checker.start());
  for (const FixtureRun& run : fixture.runs) {
    if (precision != Precision::kFp32) break;
    STARLING_TRY(checker.run(run));
  }
  const std::string arithmetic = device->has_arithmetic() ? device->name() : model->isa();
  return CheckReport{fixture.kind, arithmetic, std::move(checker.rows)};
}

}  // namespace starling::reference
