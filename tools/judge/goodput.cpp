#include "tools/judge/goodput.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "tools/judge/pauses.h"

namespace starling::judge {
namespace {

constexpr int kSizes = 6;  // measured at most: each is a run of its own

struct Turn {  // from then on these are the members
  double t = 0;
  const event::EpochFormed* epoch = nullptr;
};

std::vector<Turn> turns_of(const Story& story) {
  std::map<Version, double> committed;
  std::map<EpochId, Version> first_step;  // of each epoch
  for (const auto& step : story.step_lines) {
    committed.emplace(step.record.version, step.t);
    first_step.emplace(step.epoch, step.record.version);
  }
  std::vector<Turn> turns;
  for (const auto& epoch : story.epochs) {
    if (epoch.base) {
      turns.push_back({committed_at(epoch), &epoch});
      continue;
    }
    const auto first = first_step.find(epoch.id);
    if (first == first_step.end() || first->second == 0) continue;  // it never ran
    const auto before = committed.find(first->second - 1);
    if (before != committed.end()) turns.push_back({before->second, &epoch});
  }
  std::stable_sort(turns.begin(), turns.end(),
                   [](const Turn& a, const Turn& b) { return a.t < b.t; });
  return turns;
}

// Returns when each worker was taken away, by the counter of its incarnation.
std::map<std::uint64_t, double> taken_away(const Story& story, const std::vector<Deed>& deeds) {
  std::map<std::uint64_t, double> by_id;
  std::map<int, double> by_pid;
  for (const Deed& deed : deeds) {
    if (deed.outcome != Deed::Outcome::kDone) continue;
    // One that leaves without a last moment is gone with the epoch without it.
    if (!deed.judged.takes || (deed.judged.announced && deed.for_s <= 0)) continue;
    const double t = deed.t + deed.for_s;
    for (const Target& target : deed.targets) {
      if (target.id != 0) by_id.emplace(target.id, t);
      by_pid.emplace(target.pid, t);
    }
  }
  for (const event::WorkerChanged& worker : story.workers)
    if (const auto it = by_pid.find(static_cast<int>(worker.pid)); it != by_pid.end())
      by_id.emplace(worker.id, it->second);
  return by_id;
}

std::vector<Point> present_over_time(const Story& story, const std::vector<Deed>& deeds) {
  const auto turns = turns_of(story);
  const auto gone = taken_away(story, deeds);
  std::set<double> times;
  for (const Turn& turn : turns) times.insert(turn.t);
  for (const auto& [id, t] : gone) times.insert(t);
  std::vector<Point> present;
  for (const double t : times) {
    const auto after = std::upper_bound(turns.begin(), turns.end(), t,
                                        [](double at, const Turn& turn) { return at < turn.t; });
    if (after == turns.begin()) continue;
    const auto& members = (after - 1)->epoch->members;
    const auto there = std::count_if(members.begin(), members.end(), [&](const auto& member) {
      const auto it = gone.find(member.id);
      return it == gone.end() || t < it->second;
    });
    present.push_back({t, double(there)});
  }
  return present;
}

// Integrates f(value) dt over the time from `from` to `to`; 0 before the first point.
template <class F>
double integral(const std::vector<Point>& points, double from, double to, F f) {
  double sum = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double begin = std::max(points[i].t, from);
    const double end = std::min(i + 1 < points.size() ? points[i + 1].t : to, to);
    if (end > begin) sum += f(points[i].value) * (end - begin);
  }
  return sum;
}

// Returns rates of committed steps from `from` to `to` whose two steps before had their epoch.
std::vector<Rate> own_rates(const std::map<Version, Told<event::StepPassed>>& committed,
                            double micro_batches, double from, double to) {
  struct Time {
    double seconds = 0, steps = 0;
  };
  std::map<std::uint32_t, Time> by_world;
  const Told<event::StepPassed>* first = nullptr;  // the two before
  const Told<event::StepPassed>* second = nullptr;
  for (const auto& [version, step] : committed) {
    const bool quiet = first && first->epoch == step.epoch && second->epoch == step.epoch;
    if (quiet && step.world > 0 && second->t >= from && step.t <= to) {
      by_world[step.world].seconds += step.t - second->t;
      by_world[step.world].steps += 1;
    }
    first = std::exchange(second, &step);
  }
  std::vector<Rate> rates;
  for (const auto& [world, time] : by_world)
    if (time.seconds > 0)
      rates.push_back({double(world), micro_batches * time.steps / time.seconds / world});
  return rates;
}

}  // namespace

std::vector<double> sizes_between(double fewest, double most) {
  const int steps = static_cast<int>(std::min(most - fewest, double(kSizes - 1)));
  std::vector<double> sizes{fewest};
  for (int i = 1; i <= steps; ++i)
    sizes.push_back(std::round(fewest + (most - fewest) * i / steps));
  return sizes;
}

double rate_at(const std::vector<Rate>& measured, double workers) {
  if (measured.empty()) return 0;
  auto rates = measured;
  std::sort(rates.begin(), rates.end(),
            [](const Rate& a, const Rate& b) { return a.workers < b.workers; });
  if (workers <= rates.front().workers) return rates.front().per_worker;
  for (std::size_t i = 1; i < rates.size(); ++i) {
    const Rate &low = rates[i - 1], &high = rates[i];
    if (workers > high.workers || high.workers <= low.workers) continue;
    const double part = (workers - low.workers) / (high.workers - low.workers);
    return low.per_worker + part * (high.per_worker - low.per_worker);
  }
  return rates.back().per_worker;
}

std::vector<Rate> between(const std::vector<Rate>& before, const std::vector<Rate>& after) {
  std::vector<Rate> rates = before;
  for (std::size_t i = 0; i < rates.size() && i < after.size(); ++i)
    rates[i].per_worker = 2 / (1 / before[i].per_worker + 1 / after[i].per_worker);
  return rates;
}

double possible(const std::vector<Point>& workers, const std::vector<Rate>& rates, double from,
                double to) {
  return integral(workers, from, to, [&](double n) { return n * rate_at(rates, n); });
}

Goodput goodput_of(const Story& story, const std::vector<Deed>& deeds,
                   const std::vector<Rate>& rates, const std::vector<Point>& nodes,
                   double seconds) {
  Goodput out;
  if (story.step_lines.empty()) return out;
  const auto committed = story.committed();
  out.from_t = story.step_lines.front().t;
  const double end = out.from_t + seconds;
  double after = 0, last = out.from_t;
  for (const auto& [version, step] : committed) {
    last = std::max(last, step.t);
    if (step.t >= end && (after == 0 || step.t < after)) after = step.t;
  }
  out.reached = after != 0;
  out.to_t = out.reached ? after : story.done ? last : end;
  for (const auto& [version, step] : committed)
    if (step.t > out.from_t && step.t <= out.to_t) out.committed += story.start.micro_batches;

  out.present = present_over_time(story, deeds);
  out.worker_s = integral(out.present, out.from_t, out.to_t, [](double n) { return n; });
  out.possible = possible(out.present, rates, out.from_t, out.to_t);
  out.own_rates = own_rates(committed, story.start.micro_batches, out.from_t, out.to_t);
  out.own_possible = possible(out.present, out.own_rates, out.from_t, out.to_t);
  std::vector<Point> there = nodes;
  for (Point& point : there) point.t += out.from_t;
  out.trace_possible = possible(there, rates, out.from_t, out.to_t);
  return out;
}

}  // namespace starling::judge
