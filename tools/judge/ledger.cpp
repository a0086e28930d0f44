#include "tools/judge/ledger.h"

#include <algorithm>
#include <map>
#include <set>

namespace starling::judge {
namespace {

class Counter {
 public:
  explicit Counter(const Story& story) : story_(story) {
    for (const auto& worker : story.workers) known_.insert(worker.id);
    for (const auto& epoch : story.epochs)
      for (const auto& member : epoch.members) known_.insert(member.id);
  }

  LedgerCount count(bool from_start) {
    if (!story_.oddities.empty()) note(story_.oddities.front());
    std::set<Version> steps;
    for (const auto& step : story_.step_lines)
      if (const Version version = step.record.version; !steps.insert(version).second)
        note(step_text(version) + " was committed twice");
    if (from_start && !steps.empty() && *steps.rbegin() + 1 != steps.size()) {
      note("of steps 0 to " + std::to_string(*steps.rbegin()) + " only " +
           std::to_string(steps.size()) + " were committed");
      out_.lost += (*steps.rbegin() + 1 - steps.size()) * story_.start.micro_batches;
    }
    const auto ledgers = ledgers_that_count(steps);
    for (const Version version : steps) {
      const auto it = ledgers.find(version);
      if (it != ledgers.end()) {
        count_rows(*it->second);
      } else {
        note(step_text(version) + " has no ledger");
        out_.lost += story_.start.micro_batches;
      }
    }
    return std::move(out_);
  }

 private:
  static std::string step_text(Version version) { return "step " + std::to_string(version); }
  void note(std::string text) {
    if (!out_.wrong) out_.wrong = std::move(text);
  }

  // A step may be done once more for each restart from its version or an earlier one.
  std::map<Version, const event::LedgerPassed*> ledgers_that_count(const std::set<Version>& steps) {
    std::map<Version, const event::LedgerPassed*> last;
    std::map<Version, std::size_t> times;
    for (const event::LedgerPassed& ledger : story_.ledger_lines) {
      const Version version = ledger.version;
      if (!steps.count(version))
        note(step_text(version) + ": has a ledger and was never committed");
      const auto allowed =
          1 + std::count_if(story_.restarts.begin(), story_.restarts.end(),
                            [&](const event::Restarted& r) { return r.version <= version; });
      if (++times[version] > std::size_t(allowed)) {
        note(step_text(version) + ": has two ledgers");
        out_.duplicated += ledger.workers.size();
      }
      last[version] = &ledger;
    }
    return last;
  }

  void count_rows(const event::LedgerPassed& ledger) {
    const std::uint64_t all = story_.start.micro_batches;
    const std::string where = step_text(ledger.version) + ": ";
    std::set<MicroBatch> seen;
    for (const auto& [micro_batch, worker] : ledger.workers) {
      const std::string text = where + "micro-batch " + std::to_string(micro_batch);
      if (micro_batch >= all) {
        note(text + " of " + std::to_string(all));
        continue;
      }
      if (!seen.insert(micro_batch).second) {
        note(text + " was counted twice");
        ++out_.duplicated;
      }
      if (!known_.count(worker))
        note(text + " by " + name_of(story_, worker) + ", which never joined");
    }
    out_.once += seen.size();
    out_.lost += all - seen.size();
    if (seen.size() != all)
      note(where + "only " + std::to_string(seen.size()) + " of " + std::to_string(all) +
           " micro-batches were counted");
  }

  const Story& story_;
  std::set<std::uint64_t> known_;  // workers that joined
  LedgerCount out_;
};

}  // namespace

LedgerCount count_ledgers(const Story& story, bool from_start) {
  return Counter(story).count(from_start);
}

}  // namespace starling::judge
