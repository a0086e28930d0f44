#include "tools/chaos/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tools/chaos/faults/table.h"
#include "tools/judge/pauses.h"

namespace starling::chaos {
namespace {

constexpr double kLane = 14;

double end_of(const judge::Story& story) {
  double end = 1;
  for (const auto& step : story.step_lines) end = std::max(end, step.t);
  for (const auto& epoch : story.epochs) end = std::max(end, epoch.t);
  if (story.done) end = std::max(end, story.done->t);
  if (story.failed) end = std::max(end, story.failed->t);
  return end;
}

std::string tip_of(const judge::Deed& deed, const judge::Target& target) {
  std::string tip = fixed(deed.t, 2) + " s: " + deed.kind + " " + target.name;
  if (deed.until_t > deed.t) tip += ", for " + fixed(deed.until_t - deed.t, 2) + " s";
  for (const judge::Effect& effect : deed.effects)
    tip += "; " + effect.what +
           (effect.seen ? " after " + fixed(1000 * effect.after_s, 0) + " ms" : " (not seen)");
  return tip;
}

void draw_workers(Chart& chart, const judge::Story& story, const std::vector<judge::Deed>& deeds,
                  double end) {
  const auto lives = lives_of(story, end);
  std::size_t lanes = 1;
  for (const Life& life : lives) lanes = std::max(lanes, life.lane + 1);
  const double top = chart.strip("workers", double(lanes) * kLane);
  std::map<std::uint64_t, double> y_of;
  for (const Life& life : lives) {
    const double y = top + double(life.lane) * kLane;
    y_of[life.id] = y;
    chart.bar(life.from, life.to, y + 2, kLane - 4, "life",
              life.name + ", life " + std::to_string(life.id) + ", from " + fixed(life.from, 2) +
                  " s to " + fixed(life.to, 2) + " s" + (life.end.empty() ? "" : ", " + life.end));
  }
  const double coordinators = chart.strip("coordinators", kLane);
  for (const judge::Deed& deed : deeds) {
    if (deed.outcome != judge::Deed::Outcome::kDone) continue;
    const judge::Shown& shown = deed.shown;
    for (const judge::Target& target : deed.targets) {
      double y = coordinators;
      if (!shown.on_coordinators) {
        auto found = y_of.find(target.id);
        if (target.id == 0)  // it had not joined yet
          for (const Life& life : lives)
            if (life.name == target.name && life.from >= deed.t) {
              found = y_of.find(life.id);
              break;
            }
        if (found == y_of.end()) continue;
        y = found->second;
      }
      if (shown.sign)
        chart.mark(deed.t, y + kLane - 3, shown.sign, shown.style, tip_of(deed, target));
      else
        chart.bar(deed.t, deed.until_t, y + 1, kLane - 2, shown.style, tip_of(deed, target));
    }
  }
}

using Words = std::vector<std::string>;

void add_once(Words& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

std::string joined(const Words& words, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : last) + words[i];
  return text;
}

}  // namespace

void draw_epochs(Chart& chart, const judge::Story& story) {
  const double top = chart.strip("epochs", 18);
  for (const auto& epoch : story.epochs) {
    std::string tip = "epoch " + to_string(epoch.id) + ", " + to_string(epoch.kind) + ", " +
                      std::to_string(epoch.members.size()) + " workers: " + epoch.cause;
    if (epoch.detect_ms) tip += "; detect " + fixed(*epoch.detect_ms, 0) + " ms";
    if (epoch.form_ms) tip += ", form " + fixed(*epoch.form_ms, 0) + " ms";
    if (epoch.resume_ms) tip += ", resume " + fixed(*epoch.resume_ms, 0) + " ms";
    chart.tick(judge::committed_at(epoch), top, 18,
               epoch.kind == PlanKind::kPrepared ? "prepared" : "forced", tip);
  }
}

std::vector<Life> lives_of(const judge::Story& story, double end) {
  std::vector<Life> lives;
  std::map<std::uint64_t, std::size_t> index;
  const auto life_of = [&](std::uint64_t id, const std::string& name, double t) -> Life& {
    const auto [it, fresh] = index.emplace(id, lives.size());
    if (fresh) lives.push_back({id, name, t, end, "", 0});
    return lives[it->second];
  };
  for (const auto& seen : story.workers) {
    Life& life = life_of(seen.id, seen.name, seen.t);
    if (seen.what == WorkerChange::kJoined || !life.end.empty()) continue;
    life.to = seen.t;
    life.end = to_string(seen.what);
  }
  // Adds the lives that only epochs tell of.
  for (const auto& epoch : story.epochs)
    for (const event::EpochMember& m : epoch.members)
      life_of(m.id, m.name, judge::committed_at(epoch));
  std::sort(lives.begin(), lives.end(),
            [](const Life& a, const Life& b) { return a.from < b.from; });
  std::vector<double> free_from;
  for (Life& life : lives) {
    std::size_t lane = 0;
    while (lane < free_from.size() && free_from[lane] > life.from) ++lane;
    if (lane == free_from.size()) free_from.push_back(0);
    free_from[lane] = life.to;
    life.lane = lane;
  }
  return lives;
}

std::string legend() {
  Words parts;
  const auto add_signs = [&](bool announced, bool of_links) {
    for (const FaultKind* kind : fault_kinds())
      if (kind->shown.sign && kind->judged.announced == announced &&
          (kind->link != FaultKind::Link::kNothing) == of_links)
        add_once(parts, std::string(kind->shown.sign) + " " + kind->shown.meaning);
  };
  add_signs(false, false);
  add_signs(true, false);
  add_signs(false, true);
  for (const auto& [style, colour] :
       {std::pair<std::string, std::string>("stopped", "grey"), {"slow", "yellow"}}) {
    Words meanings;
    for (const FaultKind* kind : fault_kinds())
      if (!kind->shown.sign && kind->shown.style == style) add_once(meanings, kind->shown.meaning);
    parts.push_back(colour + " " + joined(meanings, " or "));
  }
  return joined(parts, ", ");
}

TimeAxis axis_of(const judge::Story& story, std::optional<double> width) {
  TimeAxis axis = TimeAxis::of(0, end_of(story));
  if (width) axis.width = *width;
  return axis;
}

Chart timeline(const judge::Story& story, const std::vector<judge::Deed>& deeds,
               std::optional<double> width) {
  const double end = end_of(story);
  Chart chart(axis_of(story, width));
  draw_workers(chart, story, deeds, end);
  draw_epochs(chart, story);

  std::vector<judge::Point> world, loss, copies;
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest, most = 1;
  for (const auto& step : story.step_lines) {
    world.push_back({step.t, double(step.world)});
    most = std::max(most, double(step.world));
    loss.push_back({step.t, step.record.loss});
    if (!std::isfinite(step.record.loss)) continue;
    lowest = std::min(lowest, step.record.loss);
    highest = std::max(highest, step.record.loss);
  }
  double top = chart.strip("world size", 50);
  chart.scale(top, 50, 0, most, "");
  chart.curve(world, top, 50, 0, most, true, "curve");

  double wanted = 1;
  for (const auto& exposure : story.exposures) {
    copies.push_back({exposure.t, double(exposure.copies_min)});
    wanted = std::max(wanted, double(exposure.wanted));
  }
  top = chart.strip("copies", 50);
  chart.scale(top, 50, 0, wanted, " wanted");
  chart.curve(copies, top, 50, 0, wanted, true, "curve second");

  if (lowest <= highest) {
    top = chart.strip("loss", 120);
    chart.scale(top, 120, lowest, highest, "");
    chart.curve(loss, top, 120, lowest, highest, false, "curve");
  }
  chart.time_labels();
  return chart;
}

}  // namespace starling::chaos
