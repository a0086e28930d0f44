#include "core/observe/loss_curve.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <variant>

namespace starling {
namespace {

constexpr std::size_t kStepsMax = std::size_t{1} << 16;  // 2 MiB
constexpr std::size_t kEpochsMax = 1000;                 // more lines than a picture has room for

}  // namespace

std::string label_of(const event::EpochFormed& epoch) {
  return to_string(epoch.id) + " " + to_string(epoch.kind) + ", " +
         std::to_string(epoch.members.size()) +
         (epoch.members.size() == 1 ? " worker" : " workers");
}

void LossCurve::on(const Event& event) {
  if (const auto* step = std::get_if<event::StepPassed>(&event)) add_step(*step);
  if (const auto* epoch = std::get_if<event::EpochFormed>(&event)) add_epoch(*epoch);
  if (const auto* e = std::get_if<event::Evaluated>(&event);
      e && evaluations_.size() < kStepsMax &&
      (evaluations_.empty() || evaluations_.back().version < e->version))
    evaluations_.push_back({e->version, e->loss});
}

void LossCurve::add_step(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  if (last_ && record.version <= *last_) return;
  last_ = record.version;
  if (steps_++ % every_ == 0)
    kept_.push_back({record.version, record.loss, record.norm, step.rate.value_or(std::nan(""))});
  if (kept_.size() < kStepsMax) return;
  for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
  kept_.resize((kept_.size() + 1) / 2);
  every_ *= 2;
}

void LossCurve::add_epoch(const event::EpochFormed& epoch) {
  if (epochs_.size() == kEpochsMax) return;
  // A prepared plan has no base: it begins about at the present version.
  const Version about = last_ ? *last_ + 1 : Version{0};
  const Version base = epoch.base.value_or(0);
  epochs_.push_back({base != 0 ? base : about, label_of(epoch)});
}

Result<> LossCurve::save(const std::string& path, const std::string& title) const {
  LossPicture picture{.title = title, .held_out = evaluations_, .epochs = epochs_};
  for (const Step& step : kept_) {
    picture.losses.push_back({step.version, step.loss});
    picture.norms.push_back({step.version, step.norm});
    picture.rates.push_back({step.version, step.rate});
  }
  return write_loss_svg(path, picture);
}

}  // namespace starling
