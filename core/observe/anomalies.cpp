#include "core/observe/anomalies.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

namespace starling {
namespace {

constexpr double kLossFactor = 1.25, kNormFactor = 8;
// A worker is slow that has computed less than this part of what the one in the middle has.
constexpr double kSlow = 1.0 / 3;
constexpr std::uint64_t kStepsOfShares = 64;

std::string brief(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

std::optional<std::string> Leap::take(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  std::optional<std::string> before;
  if (window_.size() == kWindow) {
    const double usual = median({window_.begin(), window_.end()});
    std::vector<double> distances;
    for (const double each : window_) distances.push_back(std::abs(each - usual));
    const double above = value - usual;
    const auto [least, most] = std::ranges::minmax(window_);
    if (above > kFar * median(std::move(distances)) && above > kBeyond * (most - usual) &&
        above > (factor_ - 1) * std::abs(usual)) {
      before = "about " + brief(usual) + " (" + brief(least) + " to " + brief(most) + ")";
      window_.clear();
    } else {
      window_.pop_front();
    }
  }
  window_.push_back(value);
  return before;
}

Anomalies::Anomalies(const Job& job)
    : skips_(job),
      loss_(kLossFactor),
      norm_(kNormFactor),
      shares_by_speed_(job.elastic.shares == ShareRule::kSpeed) {}

std::optional<event::Warning> Anomalies::take(const Event& event) {
  if (auto warning = skips_.take(event)) return warning;
  if (const auto* step = std::get_if<event::StepPassed>(&event)) return leap_in(*step);
  if (const auto* ledger = std::get_if<event::LedgerPassed>(&event)) return slow_one(*ledger);
  if (const auto* epoch = std::get_if<event::EpochFormed>(&event)) begin(*epoch);
  return std::nullopt;
}

void Anomalies::begin(const event::EpochFormed& epoch) {
  epoch_ = epoch.id;
  steps_ = 0;
  computed_.clear();
  slow_.clear();
  members_.clear();
  for (const event::EpochMember& member : epoch.members) {
    names_[member.id] = member.name;
    if (!member.draining && computes(member.role)) members_.push_back(member.id);
  }
}

std::optional<event::Warning> Anomalies::leap_in(const event::StepPassed& step) {
  const StepRecord& record = step.record;
  if (record.skipped || (last_step_ && record.version <= *last_step_)) return std::nullopt;
  last_step_ = record.version;
  const auto loss = loss_.take(record.loss), norm = norm_.take(record.norm);
  if (!loss && !norm) return std::nullopt;
  const std::string what = loss ? "loss" : "gradient's norm";
  return event::Warning{"the " + what + " of step " + std::to_string(record.version) + " is " +
                        brief(loss ? record.loss : record.norm) + ", those of the " +
                        std::to_string(Leap::kWindow) + " steps before it are " +
                        loss.value_or(norm.value_or(""))};
}

// A share that follows the speed of each worker says which one is slow. Members that an epoch begins with are compared
// among themselves, over so many of its steps.
std::optional<event::Warning> Anomalies::slow_one(const event::LedgerPassed& ledger) {
  if (!shares_by_speed_ || (last_ledger_ && ledger.version <= *last_ledger_)) return std::nullopt;
  last_ledger_ = ledger.version;
  if (ledger.epoch != epoch_) return std::nullopt;  // a late line, or an epoch that was not told
  for (const auto& [micro_batch, worker] : ledger.workers) ++computed_[worker];
  if (++steps_ < kStepsOfShares) return std::nullopt;
  auto computed = std::exchange(computed_, {});
  steps_ = 0;
  // With fewer micro-batches than two for each, some of the workers compute less however fast they are.
  if (members_.size() < 3 || ledger.workers.size() < 2 * members_.size()) return std::nullopt;
  std::vector<double> counts;
  for (const std::uint64_t worker : members_)
    counts.push_back(static_cast<double>(computed[worker]));
  const double usual = median(counts);
  // An epoch's first shares are a guess, and one that was low is mended in the steps that follow.
  const auto before = std::exchange(slow_, {});
  for (const std::uint64_t worker : members_) {
    if (static_cast<double>(computed[worker]) < kSlow * usual)
      slow_.insert(worker);
    else
      told_.erase(worker);
  }
  for (const std::uint64_t worker : slow_) {
    if (!before.contains(worker) || !told_.insert(worker).second) continue;
    const std::uint64_t count = computed[worker];
    const auto name = names_.find(worker);
    return event::Warning{(name == names_.end() ? "a worker" : name->second) + " has computed " +
                          std::to_string(count) + " micro-batches of the last " +
                          std::to_string(kStepsOfShares) + " steps, the worker in the middle " +
                          brief(usual) + ": it is much slower than the others"};
  }
  return std::nullopt;
}

}  // namespace starling
