#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tools/judge/audit/case.h"
#include "tools/judge/audit/promises.h"
#include "tools/judge/audit/sample_order.h"

namespace starling::audit {
namespace {

using judge::Verdict;

// Returns the ledgers that count: one per version, the last one where a restart allows two.
std::map<Version, const LedgerFact*> ledgers_of(const Index& run, Case& p2) {
  std::map<Version, const LedgerFact*> ledgers;
  for (const LedgerFact& ledger : run.h.ledgers) {
    const auto [it, first] = ledgers.emplace(ledger.version, &ledger);
    if (first) continue;
    const bool again = run.done_again(it->second->epoch, ledger.epoch, ledger.version) &&
                       std::any_of(run.h.restarts.begin(), run.h.restarts.end(),
                                   [&](const RestartFact& r) { return r.line < ledger.line; });
    if (!again)
      p2.refute(ledger.line, "a second ledger of step " + number(ledger.version) +
                                 "; the first is in " + line_text(it->second->line));
    it->second = &ledger;
  }
  return ledgers;
}

// Returns whether a worker's rows may stand in a ledger: members of the epoch in which it passed
// may; and if that epoch began at the vote of this very step, those of the epochs before it, back
// to the last one known to have been entered: members voted there, and some may be lost since.
enum class Membership { kMember, kStranger, kNotTold };
Membership membership(const Index& run, const LedgerFact& ledger, std::uint64_t worker) {
  EpochId id = ledger.epoch;
  for (;;) {
    const auto it = run.epochs.find(id);
    if (it == run.epochs.end()) return Membership::kNotTold;
    const EpochFact& epoch = *it->second;
    if (std::find(epoch.members.begin(), epoch.members.end(), worker) != epoch.members.end())
      return Membership::kMember;
    const bool passed_here = id == ledger.epoch;
    const bool began_at_vote = epoch.begins_at_vote && epoch.base == ledger.version + 1;
    if (passed_here ? !began_at_vote : run.entered.count(id) != 0) return Membership::kStranger;
    if (epoch.predecessor >= id) return Membership::kStranger;
    id = epoch.predecessor;
  }
}

std::string samples_text(const StartFact& start, Version version, MicroBatch m) {
  if (!start.tells_samples()) return "";
  const SampleOrder order(start);
  std::string text;
  const std::uint32_t shown = std::min<std::uint32_t>(start.sequences, 4);
  for (std::uint32_t b = 0; b < shown; ++b)
    text += (text.empty() ? " (samples " : ", ") + number(order.at({version.value(), m, b}).number);
  return text + (shown < start.sequences ? ", ..)" : ")");
}

void check_rows(const Index& run, const LedgerFact& ledger, Case& p2) {
  const std::uint32_t micro_batches = run.h.start.micro_batches;
  const std::string step = " of step " + number(ledger.version);
  std::map<MicroBatch, std::uint64_t> seen;
  for (const auto& [m, worker] : ledger.rows) {
    if (m >= micro_batches)
      return p2.refute(ledger.line, "micro-batch " + number(m) + step + " does not exist");
    const auto [it, first] = seen.emplace(m, worker);
    if (!first)
      return p2.refute(ledger.line, "micro-batch " + number(m) + step +
                                        samples_text(run.h.start, ledger.version, m) +
                                        " is counted twice, for " + worker_text(run.h, it->second) +
                                        " and " + worker_text(run.h, worker));
    switch (membership(run, ledger, worker)) {
      case Membership::kMember:
        break;
      case Membership::kStranger:
        return p2.refute(ledger.line, "micro-batch " + number(m) + step + " is by " +
                                          worker_text(run.h, worker) + ", no member of epoch " +
                                          to_string(ledger.epoch));
      case Membership::kNotTold:
        p2.doubt("the members of epoch " + to_string(ledger.epoch) + ", in which step " +
                 number(ledger.version) + " passed, are not told");
        break;
    }
  }
  for (MicroBatch m = 0; m < micro_batches; ++m)
    if (!seen.count(m))
      return p2.refute(ledger.line, "micro-batch " + number(m) + step +
                                        samples_text(run.h.start, ledger.version, m) +
                                        " is missing");
}

// Counts uses of samples by pass. It shows for each place that places of one pass have
// different samples: the inverse of the order leads back from its sample to it alone.
std::map<std::uint64_t, std::uint64_t> count_uses(
    const Index& run, const std::map<Version, const LedgerFact*>& ledgers, Case& p2) {
  const StartFact& start = run.h.start;
  std::map<std::uint64_t, std::uint64_t> uses;
  if (!start.tells_samples()) return uses;
  const SampleOrder order(start);
  for (const auto& [version, ledger] : ledgers) {
    if (!run.steps.count(version)) continue;
    for (const auto& [m, worker] : ledger->rows)
      for (std::uint32_t b = 0; m < start.micro_batches && b < start.sequences; ++b) {
        const SampleOrder::Place place{version.value(), m, b};
        const auto sample = order.at(place);
        if (sample.number >= start.samples || order.of(sample) != place)
          p2.refute(ledger->line, "the order of pass " + number(sample.pass) + " has sample " +
                                      number(sample.number) + " at two places");
        ++uses[sample.pass];
      }
  }
  return uses;
}

std::string passes_text(const std::map<std::uint64_t, std::uint64_t>& uses, std::uint64_t samples) {
  std::uint64_t complete = 0;
  std::string rest;
  for (const auto& [pass, n] : uses) {
    if (n == samples)
      ++complete;
    else
      rest += (rest.empty() ? "" : ", ") + number(n) + " of " + count(samples, "sample") +
              " once in pass " + number(pass);
  }
  if (complete == 0) return rest;
  return "all " + count(samples, "sample") + " once in " +
         (complete == 1 ? "1 complete pass" : "each of " + number(complete) + " complete passes") +
         (rest.empty() ? "" : ", and ") + rest;
}

}  // namespace

Verdict exactly_once_promise(const Index& run) {
  const History& h = run.h;
  Case p2;
  const auto told = h.start.job.find("elastic.ledger_events");
  if (h.ledgers.empty() && told != h.start.job.end() && told->second == "false") {
    p2.doubt(
        "this run wrote no ledger (ledger_events = false in its job): who computed what is "
        "not told");
    return p2.verdict("P2", "exactly once", "");
  }
  const auto ledgers = ledgers_of(run, p2);
  std::set<std::uint64_t> workers;
  for (const auto& [version, ledger] : ledgers) {
    if (!run.steps.count(version))
      p2.missing(h, ledger->line, "a ledger of step " + number(version) + ", which has no record");
    check_rows(run, *ledger, p2);
    for (const auto& [m, worker] : ledger->rows) workers.insert(worker);
  }
  for (const auto& [version, step] : run.steps) {
    if (ledgers.count(version)) continue;
    // The two lines are written one after the other: a run that ended in between lacks one.
    if (h.done.empty() && version + 1 == run.end())
      p2.doubt("the last step, " + number(version) + ", has no ledger");
    else
      p2.missing(h, step->line, "step " + number(version) + " has no ledger");
  }
  if (run.steps.empty()) p2.doubt("no step was committed");
  if (h.start.samples == 0 && !h.start.own_order())
    p2.doubt("which samples the micro-batches hold is not told (`samples` is 0)");
  const auto uses = count_uses(run, ledgers, p2);
  std::string shown = number(std::uint64_t{h.start.micro_batches} * ledgers.size()) +
                      " micro-batches (" + count(ledgers.size(), "step") + " of " +
                      number(h.start.micro_batches) + "), each once, by " +
                      count(workers.size(), "worker");
  if (!uses.empty()) shown += "; " + passes_text(uses, h.start.samples);
  if (h.start.own_order()) shown += "; which samples they have is the script's to say";
  return p2.verdict("P2", "exactly once", shown);
}

std::vector<Use> uses_of(const History& history, std::uint64_t sample) {
  const StartFact& start = history.start;
  std::map<Version, std::vector<const LedgerFact*>> ledgers;
  for (const LedgerFact& ledger : history.ledgers) ledgers[ledger.version].push_back(&ledger);
  const Version end = Index(history).end();
  std::vector<Use> uses;
  const SampleOrder order(start);
  for (std::uint64_t pass = 0;; ++pass) {
    // The first pass that ends too early need not lack this
    // sample's place, so go on until a pass begins beyond the end.
    if (order.begins_behind(pass, end.value())) return uses;
    const SampleOrder::Place place = order.of({pass, sample});
    Use use;
    use.pass = pass;
    use.step = place.step;
    use.micro_batch = place.micro_batch;
    use.place = place.sequence;
    if (use.step >= end) continue;
    for (const LedgerFact* ledger : ledgers[Version(use.step)])
      for (const auto& [m, worker] : ledger->rows)
        if (m == use.micro_batch) use.workers.push_back(worker);
    uses.push_back(std::move(use));
  }
}

}  // namespace starling::audit
