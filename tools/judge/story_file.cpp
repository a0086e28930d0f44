// This file puts lines of events.jsonl to their places in a story.

#include <cmath>
#include <fstream>
#include <utility>

#include "core/base/overloaded.h"
#include "core/observe/event_reader.h"
#include "tools/judge/story.h"

namespace starling::judge {
namespace {

// A process id that no process has becomes none: kill() takes 0xffffffff for all processes.
template <class E>
Told<E> with_process(Told<E> told) {
  if (!std::in_range<int>(told.pid)) told.pid = 0;
  return told;
}

void add_event(Story& story, const Event& event, double t) {
  const auto told = [t]<class E>(const E& e) { return Told<E>{e, t}; };
  std::visit(
      Overloaded{
          [&](const event::Started& e) {
            if (story.started) story.oddities.push_back("a second `start`");
            story.started = true;
            story.start = e;
          },
          [&](const event::WorkerChanged& e) { story.workers.push_back(with_process(told(e))); },
          [&](const event::LeaderElected& e) { story.leaders.push_back(with_process(told(e))); },
          [&](const event::EpochFormed& e) { story.epochs.push_back(told(e)); },
          [&](const event::Exposed& e) { story.exposures.push_back(told(e)); },
          [&](const event::StepPassed& e) {
            if (!std::isfinite(e.ms)) story.oddities.push_back("a step whose time is no number");
            story.step_lines.push_back(told(e));
          },
          [&](const event::Evaluated& e) { story.evaluation_lines.push_back(told(e)); },
          [&](const event::LedgerPassed& e) { story.ledger_lines.push_back(told(e)); },
          [&](const event::Restarted& e) { story.restarts.push_back(told(e)); },
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
          [&](const event::Done& e) { story.done = told(e); },
          [&](const event::Ended& e) {
            story.failed = told(event::Failed{128 + e.signal, e.reason});
          },
          [&](const event::Failed& e) { story.failed = told(e); },
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
