#include "tools/judge/audit/promises.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "core/data/permutation.h"

namespace starling::audit {
namespace {

using judge::Finding;
using judge::Verdict;

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

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
  Verdict verdict(const char* promise, const char* name, const std::string& shown) const {
    if (refuted_ != 0) return {promise, name, Finding::kBroken, why_};
    if (!doubt_.empty())
      return {promise, name, Finding::kNotShown,
              doubt_ + (shown.empty() ? "" : "; as far as it goes: " + shown)};
    return {promise, name, Finding::kHeld, shown};
  }

 private:
  Line refuted_ = 0;
  std::string why_, doubt_;
};

std::string number(std::uint64_t n) {
  return std::to_string(n);
}
std::string count(std::uint64_t n, const char* what) {
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

// ---- P1 ---------------------------------------------------------------------------------------

void check_records(const Index& run, Case& p1) {
  for (const StepFact& step : run.h.steps) {
    const StepFact& first = *run.steps.at(step.version);
    if (&first == &step) continue;
    const bool same = same_bits(first.loss, step.loss) && same_bits(first.norm, step.norm) &&
                      first.tokens == step.tokens && first.skipped == step.skipped &&
                      first.ledger_hash == step.ledger_hash && first.digest == step.digest &&
                      first.scale == step.scale;
    p1.refute(step.line, same ? "step " + number(step.version) + " is told twice"
                              : "two records of step " + number(step.version) +
                                    " differ; the first is in " + line_text(first.line));
  }
  std::map<Version, Line> evaluated;
  for (const EvaluationFact& e : run.h.evaluations)
    if (const auto [first, added] = evaluated.emplace(e.version, e.line); !added)
      p1.refute(e.line, "a second evaluation of version " + number(e.version) +
                            "; the first is in " + line_text(first->second));
  const std::uint64_t every = run.h.start.job_number("elastic.digest_every").value_or(0);
  const std::uint64_t tokens = run.h.start.tokens_per_step;
  Version next = run.begin;
  for (const auto& [version, step] : run.steps) {
    if (version != next)
      p1.missing(run.h, step->line,
                 "step " + number(version) + " follows, step " + number(next) + " is not there");
    next = version + 1;
    if (every != 0 && version % every == 0 && step->digest.empty())
      p1.refute(step->line, "step " + number(version) + " has no digest, one is due every " +
                                count(every, "step"));
    if (tokens != 0 && step->tokens != tokens)
      p1.refute(step->line, "step " + number(version) + " has " + number(step->tokens) +
                                " tokens, the job has " + number(tokens) + " a step");
  }
}

void check_end(const Index& run, Case& p1) {
  const History& h = run.h;
  for (const DoneFact& end : h.earlier_ends) {
    const auto step = run.steps.find(end.version), last = run.steps.find(end.version - 1);
    const bool other_digest = step != run.steps.end() && !step->second->digest.empty() &&
                              step->second->digest != end.digest;
    if (other_digest || (last != run.steps.end() && !same_bits(last->second->loss, end.loss)))
      p1.refute(end.line, std::string(other_digest ? "the digest" : "the loss") +
                              " of `done` at version " + number(end.version) +
                              " is not that of the run that went on from there");
  }
  if (h.done.empty()) {
    const std::string at = " at version " + number(run.end());
    // Steps may pass between the leader's word of an end and its commit, but none is lost by it.
    if (h.ended && !h.failed && h.ended->version > run.end())
      return p1.missing(h, h.ended->line,
                        "ended in order at version " + number(h.ended->version) +
                            ", steps end at " + number(run.end()));
    if (h.ended && !h.failed) return;
    return p1.doubt(h.failed ? "the run failed" + at + " with exit code " + number(h.failed->code) +
                                   " (" + h.failed->reason + ")"
                             : "the run ended" + at + " without `done`");
  }
  const DoneFact& done = h.done.front();
  if (h.failed)
    p1.refute(done.line, "`done` in a run that failed with exit code " + number(h.failed->code) +
                             " (" + h.failed->reason + ")");
  if (h.done.size() > 1) p1.refute(h.done[1].line, "a second `done`");
  if (h.after_done) p1.refute(*h.after_done, "something follows `done`");
  if (done.version == h.start.steps && run.end() < done.version)
    p1.missing(h, done.line,
               "done at version " + number(done.version) + ", steps end at " + number(run.end()) +
                   ", the job has " + number(h.start.steps));
  else if (done.version != run.end() || done.version != h.start.steps)
    p1.refute(done.line, "done at version " + number(done.version) + ", steps end at " +
                             number(run.end()) + ", the job has " + number(h.start.steps));
  else if (!run.steps.empty() && !same_bits(run.steps.rbegin()->second->loss, done.loss))
    p1.refute(done.line, "the loss of `done` is not that of the last step");
}

// Says how a run ended that people or their machines ended before the job was done.
std::string text_of(const EndedFact& e, Version at) {
  return "the run ended in order at version " + number(at) + " before the job was done (" +
         e.reason + (e.checkpoint ? "), with a checkpoint of step " + number(*e.checkpoint) : ")") +
         (e.checkpoint ? " from which --resume goes on" : "");
}

// Judges the run's own doubts. Micro-batches of a worker whose work is in doubt
// may be right, so a taint refutes nothing; a contribution that others compute
// otherwise was added, and is wrong unless the worker that computed it again is.
void check_doubts(const Index& run, Case& p1) {
  const History& h = run.h;
  for (const MismatchFact& m : h.mismatches) {
    const auto name = [&](std::uint64_t id) { return worker_text(h, id); };
    const std::string text = "step " + number(m.version) + ", micro-batch " +
                             number(m.micro_batch.value()) + ": " + name(m.by) +
                             " computes another gradient, loss or metric than " + name(m.worker) +
                             ", whose is in the sum";
    if (m.wrong == m.worker)
      p1.refute(m.line, text + " and is wrong");
    else
      p1.doubt(text + (m.wrong ? "; " + name(*m.wrong) + " is wrong" : ""));
  }
  // A leader tells of differences and doubts in its own file.
  for (const EpochFact& epoch : h.epochs)
    if (!h.start.coordinator.empty() && !h.led_terms.contains(epoch.id.term))
      p1.doubt("incomplete: differences and doubts of term " + number(epoch.id.term) +
               " are in the file of the coordinator that led it; " + why_incomplete(h));
  for (const std::string& script : h.other_scripts) p1.doubt(script);
  for (const std::string& other : h.other_arithmetic) p1.doubt(other);
  for (const TaintFact& t : h.taints)
    p1.doubt((t.name.empty() ? worker_text(h, t.worker) : t.name) + ": " + t.reason +
             "; the result is in doubt from step " + number(t.first) + " on");
}

// The title claims less than the promise: equality takes another run's events (difference.h).
Verdict one_record_promise(const Index& run) {
  Case p1;
  check_doubts(run, p1);
  check_records(run, p1);
  check_end(run, p1);
  std::uint64_t digests = 0;
  for (const StepFact& step : run.h.steps) digests += !step.digest.empty();
  std::string shown = count(run.steps.size(), "step") + ", one record each, " +
                      count(digests, "digest") + " on the way";
  if (!run.h.done.empty()) shown += ", final digest " + run.h.done.front().digest;
  if (run.h.done.empty() && run.h.ended && !run.h.failed)
    shown += "; " + text_of(*run.h.ended, run.end());
  if (run.h.start.job_number("elastic.recheck") == std::uint64_t{0})
    shown += "; recheck is 0, no micro-batch was computed twice";
  Verdict verdict = p1.verdict("P1", "one record", shown);
  if (verdict.finding == Finding::kHeld)
    verdict.why += "; its bits are compared with those of another run by `starling audit` of both";
  return verdict;
}

// ---- P2 ---------------------------------------------------------------------------------------

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
  if (start.samples == 0) return "";
  const std::uint64_t first = (version * start.micro_batches + m) * start.sequences;
  std::string text;
  const std::uint32_t shown = std::min<std::uint32_t>(start.sequences, 4);
  for (std::uint64_t place = first; place < first + shown; ++place)
    text += (text.empty() ? " (samples " : ", ") +
            number(Permutation(start.seed, place / start.samples,
                               start.samples)(place % start.samples));
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
  if (start.samples == 0) return uses;
  for (const auto& [version, ledger] : ledgers) {
    if (!run.steps.count(version)) continue;
    for (const auto& [m, worker] : ledger->rows) {
      const std::uint64_t first = (version * start.micro_batches + m) * start.sequences;
      for (std::uint64_t place = first; place < first + start.sequences; ++place) {
        const std::uint64_t pass = place / start.samples, i = place % start.samples;
        const Permutation order(start.seed, pass, start.samples);
        const std::uint64_t sample = order(i);
        if (sample >= start.samples || order.inverse(sample) != i)
          p2.refute(ledger->line, "the order of pass " + number(pass) + " has sample " +
                                      number(sample) + " at two places");
        ++uses[pass];
      }
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
  if (h.start.samples == 0)
    p2.doubt("which samples the micro-batches hold is not told (`samples` is 0)");
  const auto uses = count_uses(run, ledgers, p2);
  std::string shown = number(std::uint64_t{h.start.micro_batches} * ledgers.size()) +
                      " micro-batches (" + count(ledgers.size(), "step") + " of " +
                      number(h.start.micro_batches) + "), each once, by " +
                      count(workers.size(), "worker");
  if (!uses.empty()) shown += "; " + passes_text(uses, h.start.samples);
  return p2.verdict("P2", "exactly once", shown);
}

// ---- P3 ---------------------------------------------------------------------------------------

void check_order(const Index& run, Case& p3) {
  const StepFact* last = nullptr;
  for (const auto& [version, step] : run.steps) {
    if (last && step->epoch < last->epoch)
      p3.refute(step->line, "step " + number(version) + " was committed in epoch " +
                                to_string(step->epoch) + ", but step " + number(last->version) +
                                " in epoch " + to_string(last->epoch));
    else
      last = step;
  }
}

// Checks that each step told before a forced plan's epoch is below its base, and each told later
// is not, but for the step before the base: the epoch may begin at its vote, and joiners learn it.
void check_bases(const Index& run, Case& p3) {
  struct Range {
    const StepFact* low;
    const StepFact* high;
  };
  std::map<EpochId, Range> told;
  for (const auto& [version, step] : run.steps)
    told.emplace(step->epoch, Range{step, step}).first->second.high = step;
  for (const EpochFact& epoch : run.h.epochs) {
    if (!epoch.base) continue;
    for (const auto& [id, range] : told) {
      const std::string from = "epoch " + to_string(epoch.id) + " begins at version " +
                               number(*epoch.base) + ", but step ";
      if (id < epoch.id && range.high->version >= *epoch.base &&
          !run.done_again(id, epoch.id, *epoch.base))
        p3.refute(epoch.line, from + number(range.high->version) +
                                  " was committed before, in epoch " + to_string(id));
      if (id >= epoch.id && range.low->version + 1 < *epoch.base &&
          !run.done_again(epoch.id, id, range.low->version))
        p3.refute(range.low->line,
                  from + number(range.low->version) + " is told in epoch " + to_string(id));
    }
  }
}

Verdict no_way_back_promise(const Index& run) {
  const History& h = run.h;
  Case p3;
  check_order(run, p3);
  check_bases(run, p3);
  std::uint64_t lost = 0, resumed = 0;
  const RestartFact* first = nullptr;
  for (const RestartFact& restart : h.restarts) {
    (restart.by_people ? resumed : lost) += 1;
    if (!restart.by_people && !first) first = &restart;
  }
  if (first)
    p3.doubt("all copies of some segment were lost and the run began again from a checkpoint, " +
             count(lost, "time") + ", first at version " + number(first->version));
  if (h.epochs.empty()) p3.doubt("no epoch is told");
  std::uint64_t forced = 0;
  for (const EpochFact& epoch : h.epochs) forced += epoch.base.has_value() && epoch.predecessor;
  std::string shown = count(h.epochs.size(), "epoch") + ", " + number(forced) +
                      " of them after a loss, each from the last committed version";
  if (h.start.from > 0)
    shown += "; begun from the checkpoint of step " + number(h.start.from);
  else if (h.restarts.empty())
    shown += "; no checkpoint was read";
  if (resumed != 0)
    shown +=
        "; ended in order or done, and gone on with from a checkpoint, " + count(resumed, "time");
  const auto least =
      std::min_element(h.exposures.begin(), h.exposures.end(),
                       [](const auto& a, const auto& b) { return a.copies_min < b.copies_min; });
  if (least != h.exposures.end())
    shown += "; fewest copies of a segment in a plan: " + number(least->copies_min) + " of " +
             number(least->wanted) + " wanted, in epoch " + to_string(least->epoch);
  return p3.verdict("P3", "no way back", shown);
}

}  // namespace

std::vector<Verdict> audit(const History& history) {
  const Index run(history);
  return {one_record_promise(run), exactly_once_promise(run), no_way_back_promise(run)};
}

std::vector<Use> uses_of(const History& history, std::uint64_t sample) {
  const StartFact& start = history.start;
  std::map<Version, std::vector<const LedgerFact*>> ledgers;
  for (const LedgerFact& ledger : history.ledgers) ledgers[ledger.version].push_back(&ledger);
  const Version end = Index(history).end();
  std::vector<Use> uses;
  for (std::uint64_t pass = 0;; ++pass) {
    const std::uint64_t place =
        pass * start.samples + Permutation(start.seed, pass, start.samples).inverse(sample);
    const std::uint64_t micro_batch = place / start.sequences;
    Use use;
    use.pass = pass;
    use.step = micro_batch / start.micro_batches;
    use.micro_batch = static_cast<MicroBatch>(micro_batch % start.micro_batches);
    use.place = static_cast<std::uint32_t>(place % start.sequences);
    // The first pass that ends too early need not lack this
    // sample's place, so go on until a pass begins beyond the end.
    if (pass * start.samples >= end * start.micro_batches * start.sequences) return uses;
    if (use.step >= end) continue;
    for (const LedgerFact* ledger : ledgers[Version(use.step)])
      for (const auto& [m, worker] : ledger->rows)
        if (m == use.micro_batch) use.workers.push_back(worker);
    uses.push_back(std::move(use));
  }
}

const char* proof_text(Finding finding) {
  switch (finding) {
    case Finding::kHeld:
      return "held";
    case Finding::kBroken:
      return "refuted";
    case Finding::kNotShown:
      return "not shown";
  }
  return "unknown";
}

}  // namespace starling::audit
