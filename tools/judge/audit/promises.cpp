#include "tools/judge/audit/promises.h"

#include <algorithm>
#include <map>

#include "tools/judge/audit/case.h"
#include "tools/judge/audit/difference.h"

namespace starling::audit {
namespace {

using judge::Finding;
using judge::Verdict;

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

// Says whether people, or a script whose stop was true, went back to a checkpoint before that end.
bool went_back(const Index& run, Version end) {
  return std::ranges::any_of(run.h.restarts, [&](const RestartFact& r) {
    return r.by_people && r.version <= end && run.steps.rbegin()->second->epoch <= r.lost;
  });
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
  const bool back = run.end() > done.version && went_back(run, done.version);
  const Version end = back ? done.version : run.end();
  if (done.version == h.start.steps && end < done.version)
    p1.missing(h, done.line,
               "done at version " + number(done.version) + ", steps end at " + number(run.end()) +
                   ", the job has " + number(h.start.steps));
  else if (done.version != end || done.version != h.start.steps)
    p1.refute(done.line, "done at version " + number(done.version) + ", steps end at " +
                             number(run.end()) + ", the job has " + number(h.start.steps));
  else if (const auto last = run.steps.find(end - 1);
           last != run.steps.end() && !same_bits(last->second->loss, done.loss))
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
  if (!run.h.done.empty() && run.end() > run.h.done.front().version)
    shown += "; it went back there from step " + number(run.end());
  if (run.h.start.job_number("elastic.recheck") == std::uint64_t{0})
    shown += "; recheck is 0, no micro-batch was computed twice";
  Verdict verdict = p1.verdict("P1", "one record", shown);
  if (verdict.finding == Finding::kHeld)
    verdict.why += "; its bits are compared with those of another run by `starling audit` of both";
  return verdict;
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
  std::string shown =
      count(h.epochs.size(), "epoch") + ", " + number(forced) +
      " of them after a loss or for another rate, each from the last committed version";
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
