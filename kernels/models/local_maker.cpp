#include "kernels/models/local_maker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/quantise.h"
#include "kernels/optim/optimizer.h"

namespace starling::kernels {
namespace {

std::uint64_t largest_of_several_uses(const Layout& layout) {
  std::uint64_t most = 0;
  for (const Part& part : layout.parts())
    if (part.uses > 1) most = std::max(most, part.elements());
  return most;
}

// MeanResult is the mean of the passes that are finite, of so many.
class MeanResult {
 public:
  explicit MeanResult(std::uint32_t passes) : passes_(passes) {}

  std::uint32_t finite() const { return finite_; }
  // Errors: kBadInput  it has another number of metrics than the passes before.
  Result<> add(const MicroBatchResult& result) {
    if (added_++ == 0) metrics_.resize(result.metrics.size());
    if (result.metrics.size() != metrics_.size())
      return Error(Code::kBadInput, "a pass gave " + std::to_string(result.metrics.size()) +
                                        " metrics, the pass before " +
                                        std::to_string(metrics_.size()));
    tokens_ += result.tokens;
    if (!result.finite) return ok();
    ++finite_;
    for (std::size_t i = 0; i < metrics_.size(); ++i) metrics_[i] += result.metrics[i];
    loss_ += result.loss;
    return ok();
  }
  MicroBatchResult value() const {
    const auto mean = [this](double sum) {
      return finite_ > 0 ? sum / finite_ : std::numeric_limits<double>::quiet_NaN();
    };
    std::vector<double> metrics = metrics_;
    std::ranges::transform(metrics, metrics.begin(), mean);
    return {.loss = mean(loss_),
            .tokens = tokens_,
            .finite = finite_ > 0,
            .metrics = std::move(metrics),
            .skipped = passes_ - finite_};
  }

 private:
  const std::uint32_t passes_;
  std::uint32_t added_ = 0, finite_ = 0;
  std::uint64_t tokens_ = 0;
  double loss_ = 0;
  std::vector<double> metrics_;
};

}  // namespace

LocalMaker::LocalMaker(std::unique_ptr<GradientMaker> inner, const Job& job, const Layout& layout,
                       Device& device)
    : GradientMaker(layout, inner->queue()),
      inner_(std::move(inner)),
      local_{job.local.steps, local_optimizer(job)},
      schedule_(local_steps(job)),
      precision_(job.precision),
      blocks_(local_.optimizer, layout, device, queue()),
      moments_(moments(local_.optimizer)),
      weights_(Array<float>::exported(device, layout.elements())),
      first_(device, layout.elements()),
      second_(device, moments_ == 2 ? layout.elements() : 0),
      gradient_(device, layout.elements()),
      rounded_(precision_ == Precision::kFp32 ? Array<float>()
                                              : Array<float>::exported(device, layout.elements())),
      zeros_(device, largest_of_several_uses(layout)),
      norms_(Array<std::uint64_t>::pinned(device, SquareSum::kWords)),
      broken_(Array<std::uint32_t>::pinned(device, 1)) {
  STARLING_CHECK(local_.on());
}

std::uint64_t LocalMaker::bytes(const Job& job, const Layout& layout) {
  const bool rounds = job.precision != Precision::kFp32;
  // Weights, gradient, moments; what passes read.
  const std::uint64_t arrays = 2 + moments(job.local.optimizer) + (rounds ? 1 : 0);
  return arrays * layout.elements() * sizeof(float);
}

Result<MicroBatchResult> LocalMaker::evaluate(const Working& working, const Batch& batch) {
  return inner_->evaluate(working, batch);
}

Result<MicroBatchResult> LocalMaker::pass(const Batch& batch) {
  if (!begin()) return MicroBatchResult{};  // and make() tells
  MeanResult mean(local_.steps);
  std::int32_t scale = working().scale;
  for (std::uint32_t i = 0; i < local_.steps && goes_on(); ++i) {
    const auto over = [&](double part) { passed((i + part) / local_.steps); };
    STARLING_TRY(part, part_of(batch, i, local_.steps));
    STARLING_TRY(made, compute(part, over, scale));
    STARLING_TRY(mean.add(made.result));
    if (made.result.finite) step(batch.draw.step * local_.steps + i, mean.finite(), made.norm);
  }
  hand_over();
  return mean.value();
}

bool LocalMaker::begin() {
  for (std::size_t p = 0; p < layout().parts().size(); ++p)
    if (!await(PartId(p))) return false;
  const std::uint64_t bytes = layout().elements() * sizeof(float);
  queue().copy(weights_.data(), working().parameters, bytes);
  if (rounded_.size() > 0) queue().copy(rounded_.data(), working().parameters, bytes);
  queue().zero(first_.data(), bytes);
  if (moments_ == 2) queue().zero(second_.data(), bytes);
  queue().wait();  // another process may read the weights
  return true;
}

Result<LocalMaker::Pass> LocalMaker::compute(const Batch& batch,
                                             const std::function<void(double)>& over,
                                             std::int32_t& scale) {
  std::vector<bool> written(layout().parts().size());
  PassHooks hooks;
  hooks.before_taking = over;
  hooks.take = [&](PartId p, std::uint32_t, const float* gradient) {
    const Part& part = layout().parts()[p];
    queue().multiple({.from = gradient,
                      .factor = inverse_power_of_two(inner_->scale()),
                      .adds = written[p],
                      .to = gradient_.data() + part.first(),
                      .elements = part.elements()});
    written[p] = true;
    if (!inner_->gives_ahead()) queue().wait();  // the gradient may be on its way to the device
  };
  while (true) {
    written.assign(written.size(), false);
    STARLING_TRY(result, inner_->make({.parameters = read().data(),
                                       .exponents = nullptr,
                                       .scale = scale,
                                       .place = read().place()},
                                      batch, hooks));
    std::ranges::fill(norms_.all(), 0);
    broken_.all()[0] = 0;
    queue().norm({.gradient = gradient_.data(),
                  .used = blocks_.used.data(),
                  .counted = blocks_.in_norm.data(),
                  .blocks = layout().blocks(),
                  .bins = norms_.data(),
                  .broken = broken_.data()});
    queue().wait();
    const bool finite = broken_.all()[0] == 0;
    // A scale that is too large is no property of the gradient.
    if (result.finite && !finite && inner_->scale() > 0) {
      --scale;
      continue;
    }
    result.finite = result.finite && finite;
    const double squares =
        SquareSum::sum_of(std::span<const std::uint64_t, SquareSum::kWords>(norms_.all())).value();
    return Pass{std::move(result), std::sqrt(squares)};
  }
}

void LocalMaker::step(std::uint64_t number, std::uint64_t update, double norm) {
  const StepScale scale{.rate = learning_rate(local_.optimizer, number, schedule_),
                        .clip_scale = clip_factor(norm, local_.optimizer.clip),
                        .t = update};
  queue().local_step({.gradient = gradient_.data(),
                      .used = blocks_.used.data(),
                      .groups = blocks_.group_of.data(),
                      .weights = weights_.data(),
                      .first = first_.data(),
                      .second = moments_ == 2 ? second_.data() : nullptr,
                      .numbers = update_numbers(local_.optimizer, scale, blocks_.groups),
                      .parameters = rounded_.size() > 0 ? rounded_.data() : weights_.data(),
                      .precision = precision_,
                      .blocks = layout().blocks()});
  queue().wait();  // another process may read the weights
}

void LocalMaker::hand_over() {
  queue().difference({.before = working().parameters,
                      .after = weights_.data(),
                      .difference = gradient_.data(),
                      .elements = layout().elements()});
  for (std::size_t p = layout().parts().size(); p-- > 0;) {
    const Part& part = layout().parts()[p];
    give(PartId(p), 0, gradient_.data() + part.first());
    for (std::uint32_t use = 1; use < part.uses; ++use) give(PartId(p), use, zeros_.data());
  }
}

}  // namespace starling::kernels
