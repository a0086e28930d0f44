#pragma once
// Small runs as they would stand in events.jsonl, to be bent by tests.

#include <cstdio>
#include <string>
#include <vector>

#include "core/observe/event_line.h"
#include "tools/chaos/faults/table.h"
#include "tools/judge/story.h"

namespace starling::judge {

inline EpochId epoch_id(const std::string& text) {
  EpochId id;
  std::sscanf(text.c_str(), "%lu.%lu", &id.term, &id.counter);
  return id;
}

// The value from `first` on that has this word.
template <class Word>
Word of_word(const std::string& word, Word first) {
  while (to_string(first) != word) first = static_cast<Word>(static_cast<int>(first) + 1);
  return first;
}

// Of a tale's end, unless another one is asked for: that of Tale::done('d').
inline constexpr const char* kTaleDigest = "00000000000000000000000000000064";

// Two micro-batches a step by workers 1 and 2, a step every 0.1 s from t = 1 on; epoch 1.1 of
// workers 1, 2 and 3, each segment 0..2 at two of them.
struct Tale {
  std::vector<std::string> lines;

  Tale& start(std::uint64_t steps = 5) {
    event::Started start;
    start.name = "tale";
    start.steps = steps;
    start.micro_batches = 2;
    start.monotonic_ns = 5;
    start.address = "a";
    start.keys = "k";
    return tell(0, start);
  }
  Tale& worker(double t, int id, const std::string& what, int pid = 0) {
    return tell(t, event::WorkerChanged{std::uint64_t(id), of_word(what, WorkerChange::kJoined),
                                        "worker-" + std::to_string(id),
                                        std::uint64_t(pid != 0 ? pid : 100 + id)});
  }
  // base < 0: prepared
  Tale& epoch(double t, const std::string& id, const std::string& before, const std::string& kind,
              int base, const std::vector<int>& members, const std::string& cause = "lost") {
    event::EpochFormed epoch{epoch_id(id), of_word(kind, PlanKind::kFresh), epoch_id(before)};
    epoch.cause = cause;
    if (base >= 0) epoch.base = Version(base);
    const auto n = static_cast<std::uint32_t>(members.size());
    for (std::uint32_t r = 0; r < n; ++r) {
      const auto worker = static_cast<std::uint64_t>(members[r]);
      epoch.members.push_back({worker, "worker-" + std::to_string(worker), false, false});
      epoch.holders.push_back(
          {{SegmentId(r), 1},
           {SegmentId((r + n - 1) % n), 1}});  // r at rank r and the one after it
    }
    epoch.detect_ms = 1.0;
    epoch.form_ms = 2.0;
    epoch.resume_ms = 20.0;
    return tell(t, epoch);
  }
  Tale& step(double t, int version, double loss = 2, double norm = 1) {
    return step(t, version, {1, 1}, 3, loss, norm);
  }
  Tale& step(double t, int version, const EpochId& epoch, std::uint32_t world, double loss = 2,
             double norm = 1) {
    return tell(t, event::StepPassed{{Version(version), loss, norm, 8}, epoch, world, 100});
  }
  Tale& ledger(double t, int version, const std::string& rows = "[0,1],[1,2]") {
    return add("{\"t\":" + std::to_string(t) + ",\"ev\":\"ledger\",\"version\":" +
               std::to_string(version) + ",\"epoch\":\"1.1\",\"workers\":[" + rows + "]}");
  }
  Tale& restart(double t, Version version, const std::string& lost) {
    return tell(t, event::Restarted{version, epoch_id(lost), "lost"});
  }
  Tale& steps(int from, int to) {
    for (int v = from; v < to; ++v) step(1 + 0.1 * v, v).ledger(1 + 0.1 * v, v);
    return *this;
  }
  Tale& done(char digest = 'd') {
    return tell(2, event::Done{5, {static_cast<std::uint64_t>(digest), 0}, 2.0});
  }
  Tale& failed(double t, int code) { return tell(t, event::Failed{code, "state lost"}); }
  Tale& tell(double t, const Event& event) {
    return add("{\"t\":" + std::to_string(t) + "," + event_text(event).substr(1));
  }
  Tale& add(std::string line) {
    lines.push_back(std::move(line));
    return *this;
  }
  Story story() const {
    Story told;
    for (const auto& line : lines) told.add(line);
    return told;
  }
};

inline Tale beginning() {
  Tale tale;
  tale.start();
  for (int id = 1; id <= 3; ++id) tale.worker(0.5, id, "joined");
  return tale.epoch(0.9, "1.1", "0.0", "fresh", 0, {1, 2, 3}, "start");
}
inline Story quiet_story() {
  return beginning().steps(0, 5).done().story();
}

inline Deed deed(const chaos::FaultKind* kind, double t, int worker, double until_t = 0) {
  Deed made;
  made.kind = kind->word;
  made.judged = kind->judged;
  made.shown = kind->shown;
  made.outcome = Deed::Outcome::kDone;
  made.t = t;
  made.until_t = until_t > 0 ? until_t : t;
  made.targets = {{"worker-" + std::to_string(worker), std::uint64_t(worker), 100 + worker}};
  made.effects = {{"process is gone", true, false, 0.001}};
  return made;
}

}  // namespace starling::judge
