// This file turns lines of events.jsonl into the judge's own types. Of the program
// under test it knows the format alone, and the judge knows nothing of it.

#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "core/base/overloaded.h"
#include "core/observe/event_reader.h"
#include "tools/judge/story.h"

namespace starling::judge {
namespace {

std::optional<double> if_finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::vector<std::optional<double>> if_finite(const std::vector<double>& values) {
  std::vector<std::optional<double>> seen;
  for (const double value : values) seen.push_back(if_finite(value));
  return seen;
}

// Returns the id of a process of this machine; 0: none can have it.
int pid_of(std::uint64_t pid) {
  return pid <= std::uint64_t(std::numeric_limits<int>::max()) ? static_cast<int>(pid) : 0;
}

EpochSeen epoch_of(const event::EpochFormed& e, double t) {
  EpochSeen epoch;
  epoch.t = t;
  epoch.id = to_string(e.id);
  epoch.kind = to_string(e.kind);
  epoch.predecessor = to_string(e.predecessor);
  epoch.cause = e.cause;
  for (const event::EpochMember& m : e.members) epoch.members.push_back({m.id, m.name, m.draining});
  epoch.base = e.base;
  epoch.holders = e.holders;
  epoch.moves = e.moves;
  epoch.detect_ms = e.detect_ms;
  epoch.form_ms = e.form_ms;
  epoch.resume_ms = e.resume_ms;
  if (e.pause)
    epoch.pause = PauseSeen{e.pause->report_ms,  e.pause->plan_ms,   e.pause->connect_ms,
                            e.pause->compute_ms, e.pause->reduce_ms, e.pause->vote_ms};
  return epoch;
}

void begin_story(Story& story, const event::Started& e) {
  if (story.started) story.oddities.push_back("a second `start`");
  story.started = true;
  story.steps = e.steps;
  story.micro_batches = e.micro_batches;
  story.monotonic_ns = e.monotonic_ns;
  story.name = e.name;
  story.address = e.address;
  story.keys = e.keys;
}

void add_event(Story& story, const Event& event, double t) {
  std::visit(
      Overloaded{
          [&](const event::Started& e) { begin_story(story, e); },
          [&](const event::WorkerChanged& e) {
            story.workers.push_back({t, e.id, to_string(e.what), e.name, pid_of(e.pid),
                                     e.phase ? to_string(*e.phase) : std::string()});
          },
          [&](const event::EpochFormed& e) { story.epochs.push_back(epoch_of(e, t)); },
          [&](const event::StepPassed& e) {
            if (!std::isfinite(e.ms)) story.oddities.push_back("a step whose time is no number");
            story.step_lines.emplace_back(
                e.record.version,
                StepSeen{t, to_string(e.epoch), if_finite(e.record.loss), if_finite(e.record.norm),
                         if_finite(e.record.metrics), e.ms, e.world, e.on_device});
          },
          [&](const event::Evaluated& e) {
            story.evaluation_lines.emplace_back(
                e.version, EvaluationSeen{if_finite(e.loss), if_finite(e.metrics)});
          },
          [&](const event::LedgerPassed& e) {
            std::vector<LedgerRowSeen> rows;
            for (const auto& [m, worker] : e.workers) rows.push_back({m, worker});
            story.ledger_lines.emplace_back(e.version, std::move(rows));
          },
          [&](const event::Exposed& e) {
            story.exposures.push_back({t, to_string(e.epoch), e.segments, e.copies_min, e.wanted});
          },
          [&](const event::LeaderElected& e) {
            story.leaders.push_back(
                {t, e.term, e.coordinator, pid_of(e.pid), double(e.election_ms)});
          },
          [&](const event::Restarted& e) {
            story.restarts.push_back({t, e.version, to_string(e.lost)});
          },
          [&](const event::Tainted& e) {
            story.doubts.push_back(e.name + " is tainted from step " + std::to_string(e.first) +
                                   " on (" + e.reason + ")");
          },
          [&](const event::Mismatch& e) {
            story.doubts.push_back("step " + std::to_string(e.version) + ", micro-batch " +
                                   std::to_string(e.micro_batch.value()) + ": " +
                                   name_of(story, e.worker) + " and " + name_of(story, e.by) +
                                   " compute different gradients");
          },
          [&](const event::Warning& e) { story.warnings.push_back(e.text); },
          [&](const event::Done& e) {
            story.done = DoneSeen{t, e.version, starling::to_string(e.digest)};
          },
          [&](const event::Ended& e) {
            story.failed = FailedSeen{t, 128 + e.signal, e.reason};
          },
          [&](const event::Failed& e) {
            story.failed = FailedSeen{t, e.code, e.reason};
          },
          // The judge uses none of these.
          [](const OneOf<event::Continued, event::Dropped, event::CheckpointWritten,
                         event::NoticeGiven, event::TransportChosen, event::Preparing,
                         event::AdminActed, event::CoordinatorsChanged> auto&) {},
      },
      event);
}

}  // namespace

void Story::add(const std::string& text) {
  const auto line = read_event(text);
  if (!line) {
    oddities.push_back("a line that is no event (" + line.error().text() +
                       "): " + text.substr(0, 80));
    return;
  }
  const auto& [t, time, kind, event] = line.value();
  if (kind != event::Started::kKind) {
    if (!started) oddities.push_back("`" + kind + "` before `start`");
    if (done) oddities.push_back("`" + kind + "` after `done`");
  }
  if (event) add_event(*this, *event, t);
}

std::vector<std::string> Tail::lines() {
  std::vector<std::string> finished;
  std::ifstream file(path_, std::ios::binary);
  if (!file) return finished;
  file.seekg(static_cast<std::streamoff>(offset_));
  char buffer[65536];
  do {
    file.read(buffer, sizeof buffer);
    rest_.append(buffer, static_cast<std::size_t>(file.gcount()));
    offset_ += static_cast<std::uint64_t>(file.gcount());
  } while (file);
  std::size_t at = 0;
  for (std::size_t end; (end = rest_.find('\n', at)) != std::string::npos; at = end + 1)
    finished.push_back(rest_.substr(at, end - at));
  rest_.erase(0, at);
  return finished;
}

Story read_story(const std::string& path) {
  Story story;
  Tail tail(path);
  for (const std::string& line : tail.lines()) story.add(line);
  if (!tail.rest().empty()) story.oddities.push_back("the last line is cut");
  return story;
}

}  // namespace starling::judge
