#pragma once
// What the promises are judged with: the facts of one run by version and epoch, and what speaks
// against a promise.
//
// Threads: none; values.

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "tools/judge/audit/history.h"
#include "tools/judge/verdict.h"

namespace starling::audit {

// A Case collects what speaks against a promise: the first place in the file, and mere doubts.
class Case {
 public:
  void refute(Line line, const std::string& text) {
    if (refuted_ != 0 && refuted_ <= line) return;
    refuted_ = line;
    why_ = line_text(line) + ": " + text;
  }
  void doubt(const std::string& text) {
    if (doubt_.empty()) doubt_ = text;
  }
  // Notes that a fact is missing: that refutes the run only if the file is whole.
  void missing(const History& history, Line line, const std::string& text) {
    const std::string why = why_incomplete(history);
    if (why.empty()) return refute(line, text);
    doubt("incomplete: " + text + "; " + why);
  }
  // `shown`: what holds, if no fact speaks against it.
  judge::Verdict verdict(const char* promise, const char* name, const std::string& shown) const {
    if (refuted_ != 0) return {promise, name, judge::Finding::kBroken, why_};
    if (!doubt_.empty())
      return {promise, name, judge::Finding::kNotShown,
              doubt_ + (shown.empty() ? "" : "; as far as it goes: " + shown)};
    return {promise, name, judge::Finding::kHeld, shown};
  }

 private:
  Line refuted_ = 0;
  std::string why_, doubt_;
};

inline std::string number(std::uint64_t n) {
  return std::to_string(n);
}
inline std::string count(std::uint64_t n, const char* what) {
  return number(n) + " " + what + (n == 1 ? "" : "s");
}

// An Index finds the facts by version or epoch. Of several for one version it has the first.
struct Index {
  explicit Index(const History& history) : h(history) {
    for (const StepFact& step : h.steps) steps.emplace(step.version, &step);
    for (const EpochFact& epoch : h.epochs) epochs.emplace(epoch.id, &epoch);
    for (const StepFact& step : h.steps) entered.insert(step.epoch);
    for (const LedgerFact& ledger : h.ledgers) entered.insert(ledger.epoch);
    begin = h.start.from;
    for (const RestartFact& restart : h.restarts) begin = std::min(begin, restart.version);
  }
  // Returns whether steps from `version` on, passed in `before`, were done again before `after`.
  bool done_again(const EpochId& before, const EpochId& after, Version version) const {
    return std::any_of(h.restarts.begin(), h.restarts.end(), [&](const RestartFact& restart) {
      return before <= restart.lost && restart.lost < after && restart.version <= version;
    });
  }
  Version end() const { return steps.empty() ? h.start.from : steps.rbegin()->first + 1; }

  const History& h;
  std::map<Version, const StepFact*> steps;
  std::map<EpochId, const EpochFact*> epochs;
  std::set<EpochId> entered;  // epochs in which a worker told of a step
  Version begin = 0;          // first step of all
};

// P2 of a run: each micro-batch of each step once, each sample of a pass once.
judge::Verdict exactly_once_promise(const Index& run);

}  // namespace starling::audit
