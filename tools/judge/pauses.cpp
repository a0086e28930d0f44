#include "tools/judge/pauses.h"

#include <algorithm>

namespace starling::judge {
namespace {

constexpr double kNear_s = 1.0;      // faults so near to each other share a pause
constexpr double kAftermath_s = 10;  // a fault may force an epoch so long after it is over

// Returns commit times in order, with the step's duration.
std::vector<Told<event::StepPassed>> in_time(const Story& story) {
  auto steps = story.step_lines;
  std::stable_sort(steps.begin(), steps.end(),
                   [](const auto& a, const auto& b) { return a.t < b.t; });
  return steps;
}

// Measures the commits around t; false if there is none on one side.
bool measure(const std::vector<Told<event::StepPassed>>& steps, double t, Pause& pause) {
  const auto after = std::upper_bound(steps.begin(), steps.end(), t,
                                      [](double at, const auto& step) { return at < step.t; });
  if (after == steps.begin() || after == steps.end()) return false;
  pause.gap_ms = 1000 * (after->t - (after - 1)->t);
  std::vector<double> before;
  for (auto it = after; it != steps.begin() && before.size() < 10;) before.push_back((--it)->ms);
  pause.step_ms = median(before);
  pause.over_ms = pause.gap_ms - 2 * pause.step_ms;
  return true;
}

bool alone(const Deed& deed, double end, const std::vector<Deed>& deeds) {
  for (const Deed& other : deeds) {
    if (&other == &deed || other.outcome != Deed::Outcome::kDone) continue;
    if (other.t <= end + kNear_s && std::max(other.t, other.until_t) >= deed.t - kNear_s)
      return false;
  }
  return true;
}

// A death that no guard tells is certain to nobody: the group waits for that worker's silence.
bool guarded(const Deed& deed, const std::vector<Deed>& deeds) {
  const auto without_guard = [&](const Target& target) {
    return std::any_of(deeds.begin(), deeds.end(), [&](const Deed& other) {
      return other.outcome == Deed::Outcome::kDone && other.judged.takes_guard &&
             other.t <= deed.t &&
             std::any_of(other.targets.begin(), other.targets.end(), [&](const Target& bare) {
               return bare.name == target.name && bare.id == target.id;
             });
    });
  };
  return std::none_of(deed.targets.begin(), deed.targets.end(), without_guard);
}

}  // namespace

double committed_at(const Told<event::EpochFormed>& epoch) {
  return epoch.t - epoch.resume_ms.value_or(0) / 1000;
}

std::vector<Pause> pauses_of(const Story& story, const std::vector<Deed>& deeds) {
  const auto steps = in_time(story);
  std::vector<Pause> pauses;
  std::vector<const Told<event::EpochFormed>*> explained;
  for (const Deed& deed : deeds) {
    if (deed.outcome != Deed::Outcome::kDone || !deed.judged.timed) continue;
    Pause pause;
    pause.t = deed.t;
    pause.kill = true;
    pause.what = deed.kind;
    for (const Target& target : deed.targets) pause.what += " " + target.name;
    pause.guarded = guarded(deed, deeds);
    if (!pause.guarded) pause.what += " without its guard";
    if (!measure(steps, deed.t, pause)) continue;
    const double end = deed.t + pause.gap_ms / 1000;
    const bool restarted = std::any_of(story.restarts.begin(), story.restarts.end(),
                                       [&](const auto& r) { return r.t >= deed.t && r.t <= end; });
    pause.alone = !restarted && alone(deed, end, deeds);
    for (const auto& epoch : story.epochs) {
      if (epoch.kind != PlanKind::kForced || committed_at(epoch) < deed.t ||
          committed_at(epoch) > end)
        continue;
      explained.push_back(&epoch);
      pause.epoch = to_string(epoch.id);
      pause.detect_ms = epoch.detect_ms.value_or(0);
      pause.form_ms = epoch.form_ms.value_or(0);
      pause.resume_ms = epoch.resume_ms.value_or(0);
      break;
    }
    pauses.push_back(std::move(pause));
  }
  for (const auto& epoch : story.epochs) {
    if (epoch.kind != PlanKind::kForced ||
        std::find(explained.begin(), explained.end(), &epoch) != explained.end())
      continue;
    Pause pause;
    pause.t = committed_at(epoch);
    pause.what = epoch.cause;
    pause.epoch = to_string(epoch.id);
    pause.detect_ms = epoch.detect_ms.value_or(0);
    pause.form_ms = epoch.form_ms.value_or(0);
    pause.resume_ms = epoch.resume_ms.value_or(0);
    if (measure(steps, pause.t, pause)) pauses.push_back(std::move(pause));
  }
  std::stable_sort(pauses.begin(), pauses.end(),
                   [](const Pause& a, const Pause& b) { return a.t < b.t; });
  return pauses;
}

std::vector<const Told<event::EpochFormed>*> unexplained(const Story& story,
                                                         const std::vector<Deed>& deeds) {
  std::vector<const Told<event::EpochFormed>*> found;
  for (const auto& epoch : story.epochs) {
    if (epoch.kind != PlanKind::kForced) continue;
    const double at = committed_at(epoch);
    const bool explained = std::any_of(deeds.begin(), deeds.end(), [&](const Deed& deed) {
      return deed.outcome == Deed::Outcome::kDone && deed.judged.forces_epochs &&
             deed.t <= at + 0.1 && at <= std::max(deed.t, deed.until_t) + kAftermath_s;
    });
    if (!explained) found.push_back(&epoch);
  }
  return found;
}

}  // namespace starling::judge
