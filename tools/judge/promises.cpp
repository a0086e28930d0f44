#include "tools/judge/promises.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>

#include "core/base/exit.h"
#include "tools/judge/differences.h"
#include "tools/judge/ledger.h"
#include "tools/judge/pauses.h"

namespace starling::judge {
namespace {

std::string ms_text(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f ms", ms);
  return text;
}

Verdict held(std::string why) {
  return {{}, {}, Finding::kHeld, std::move(why)};
}
Verdict broken(std::string why) {
  return {{}, {}, Finding::kBroken, std::move(why)};
}
Verdict not_tested(std::string why) {
  return {{}, {}, Finding::kNotShown, std::move(why)};
}

constexpr double kClock_s = 0.05;  // between two processes that tell what they saw

std::string end_of(const Evidence& e) {
  std::string text = "the run ended with exit code " + std::to_string(e.run_status);
  if (e.loud.failed) return text + ": " + e.loud.failed->reason;
  if (!e.run_errors.empty()) return text + ": " + e.run_errors.back();
  return text;
}

// ---- P1 to P3 ---------------------------------------------------------------------------------

// Says whether the deeds until t took every copy of some segment of the epoch's first placement.
std::optional<std::string> copies_taken(const Evidence& e, const event::EpochFormed& epoch,
                                        double t) {
  std::set<std::uint64_t> gone;
  std::set<int> gone_pids;
  for (const Deed& deed : e.deeds) {
    if (deed.outcome != Deed::Outcome::kDone || deed.t > t) continue;
    const bool still = deed.until_t > t;
    if (!deed.judged.takes && !still) continue;
    for (const Target& target : deed.targets) {
      gone.insert(target.id);
      gone_pids.insert(target.pid);
    }
  }
  for (const event::WorkerChanged& worker : e.loud.workers)
    if (worker.pid != 0 && gone_pids.count(static_cast<int>(worker.pid))) gone.insert(worker.id);
  const auto holders = holders_by_segment(epoch);
  for (std::size_t s = 0; s < holders.size(); ++s) {
    if (holders[s].empty() || !std::all_of(holders[s].begin(), holders[s].end(),
                                           [&](std::uint64_t id) { return gone.count(id) > 0; }))
      continue;
    std::string names;
    for (const event::EpochMember& m : epoch.members)
      if (std::find(holders[s].begin(), holders[s].end(), m.id) != holders[s].end())
        names += (names.empty() ? "" : ", ") + m.name;
    std::string text =
        "all copies of segment " + std::to_string(s) + " (at " + names + ") were taken";
    const auto shown = std::find_if(e.loud.exposures.rbegin(), e.loud.exposures.rend(),
                                    [&](const auto& exposure) { return exposure.t <= t; });
    if (shown != e.loud.exposures.rend())
      text +=
          ", with " + std::to_string(shown->copies_min) + " copies of some segment shown before";
    return text;
  }
  return std::nullopt;
}

std::optional<std::string> copies_taken_before(const Evidence& e,
                                               const Told<event::Restarted>& restart) {
  for (const auto& epoch : e.loud.epochs)
    if (epoch.id == restart.lost) return copies_taken(e, epoch, restart.t);
  return std::nullopt;
}

Verdict same_bits(const Evidence& e) {
  if (const auto difference = first_difference(e)) return broken(difference->text);
  const std::string steps = count_of(e.loud.committed().size(), "step");
  if (!e.loud.done) {
    if (e.attached) return not_tested("the job had not ended");
    if (last_copies_taken(e))
      return not_tested("all copies of some state were taken; " + steps + " before that " +
                        (e.quiet ? "have the undisturbed bits" : "were committed"));
    return broken(end_of(e) + ", without a digest");
  }
  if (e.reference_digest.empty()) return not_tested("there is no digest to compare with");
  const std::string digest = starling::to_string(e.loud.done->digest);
  if (digest != e.reference_digest)
    return broken("digest " + digest + ", undisturbed " + e.reference_digest);
  // Equal digests of two runs that both doubt their own bits prove nothing.
  for (const Story* story : {&e.loud, e.quiet ? &*e.quiet : nullptr})
    if (story && !story->doubts.empty())
      return not_tested((story == &e.loud ? "" : "the undisturbed run: ") + story->doubts.front());
  return held("digest " + e.reference_digest +
              (e.quiet ? ", " + compared_text(e.loud) : " as given"));
}

Verdict exactly_once(const Evidence& e) {
  if (e.loud.ledger_lines.empty()) return not_tested("the job writes no ledger events");
  const LedgerCount count = count_ledgers(e.loud, /*from_start=*/!e.attached);
  if (count.wrong) return broken(*count.wrong);
  const auto difference = first_difference_of_steps(e);
  if (difference && difference->norm_only)
    return broken("the ledger is whole, but its sum is not that of its micro-batches: " +
                  difference->text);
  return held(count_of(count.once, "pair") + " of step and micro-batch, each once");
}

Verdict no_way_back(const Evidence& e) {
  const Story& s = e.loud;
  for (const auto& restart : s.restarts)
    if (!copies_taken_before(e, restart))
      return broken("steps from " + std::to_string(restart.version) +
                    " on were done again although their state was not gone");
  std::size_t forced = 0, compared = 0;
  Version last_base = 0;
  for (const auto& epoch : s.epochs) {
    if (!epoch.base || epoch.kind != PlanKind::kForced) continue;
    ++forced;
    const std::string where =
        "epoch " + to_string(epoch.id) + " begins at version " + std::to_string(*epoch.base) + ", ";
    if (*epoch.base < last_base && s.restarts.empty())
      return broken(where + "an earlier one at " + std::to_string(last_base));
    last_base = std::max(last_base, *epoch.base);
    if (!epoch.resume_ms || !s.restarts.empty()) continue;  // its commit's time is not known
    ++compared;
    const double formed = committed_at(epoch) - epoch.form_ms.value_or(0) / 1000 - kClock_s;
    for (const auto& step : s.step_lines)
      if (step.t < formed && step.record.version >= *epoch.base)
        return broken(where + "after step " + std::to_string(step.record.version) +
                      " had been committed");
  }
  if (!s.restarts.empty())
    return held(count_of(s.restarts.size(), "restart") + ", each after some state was gone");
  if (forced == 0) return not_tested("no epoch was forced");
  if (compared == 0) return not_tested("no step followed in an epoch that was forced");
  return held(count_of(compared, "forced epoch") +
              ", each begins where the last step was committed; no checkpoint was read");
}

// ---- P4 ---------------------------------------------------------------------------------------

// Returns workers that may have computed in step v: members of the epochs from the last forced
// one that begins at or before v to the first that begins after it. None: the story has a gap.
std::optional<std::set<std::uint64_t>> may_compute(const Story& s, Version version) {
  std::size_t from = 0;
  for (std::size_t i = 0; i < s.epochs.size(); ++i)
    if (s.epochs[i].base && *s.epochs[i].base <= version) from = i;
  std::set<std::uint64_t> members;
  for (std::size_t i = from; i < s.epochs.size(); ++i) {
    const event::EpochFormed& epoch = s.epochs[i];
    if (i > from && epoch.predecessor != s.epochs[i - 1].id) return std::nullopt;
    if (i > from && epoch.base) break;
    for (const event::EpochMember& m : epoch.members) members.insert(m.id);
  }
  return members;
}

// Judges the last ledger of a step, after a restart; a run
// that failed before it did its steps again is not judged.
std::optional<std::string> computed_outside(const Story& s) {
  if (!s.restarts.empty() && !s.done) return std::nullopt;
  std::map<Version, const event::LedgerPassed*> last;
  for (const event::LedgerPassed& ledger : s.ledger_lines) last[ledger.version] = &ledger;
  for (const event::LedgerPassed& ledger : s.ledger_lines) {
    if (last[ledger.version] != &ledger) continue;
    const auto members = may_compute(s, ledger.version);
    if (!members) continue;
    for (const auto& [micro_batch, worker] : ledger.workers)
      if (!members->count(worker))
        return name_of(s, worker) + " counts in step " + std::to_string(ledger.version) +
               ", of whose epoch it was no member";
  }
  return std::nullopt;
}

// A worker that wakes up left out has so many seconds to find it out, on
// a busy machine; seconds in which the machine stood still do not count.
constexpr double kLastsS = 3;

double stalled(const Evidence& e, double from, double to) {
  double seconds = 0;
  for (const Stall& stall : e.stalls)
    seconds += std::max(0.0, std::min(to, stall.to) - std::max(from, stall.from));
  return seconds;
}

// A life that ends after this may have ended because the job did.
double watched_until(const Evidence& e) {
  return std::min(e.watched_until_t, e.loud.end_t().value_or(e.watched_until_t));
}

Verdict fenced(const Evidence& e) {
  if (auto outside = computed_outside(e.loud)) return broken(*outside);
  const double end = watched_until(e) - kClock_s;
  std::size_t tested = 0;
  for (const Revenant& r : e.revenants) {
    const std::string who = r.who.name + " (process " + std::to_string(r.who.pid) + ")";
    const bool ended = r.gone_t && *r.gone_t < end;
    const double until = ended ? *r.gone_t : end;
    if (until - r.woken_t - stalled(e, r.woken_t, until) > kLastsS)
      return broken(who + ", left out of epoch " + r.epoch + ", woke up and lives on");
    for (const auto& epoch : e.loud.epochs)
      if (epoch.t > r.woken_t + 1 && r.who.id != 0 && is_member(epoch, r.who.id))
        return broken(who + ", left out of epoch " + r.epoch + ", is a member of epoch " +
                      to_string(epoch.id) + " with its old life");
    tested += ended;
  }
  if (e.revenants.empty()) return not_tested("nobody was left out while it could not act");
  if (tested == 0)
    return not_tested(count_of(e.revenants.size(), "worker") +
                      " woke up left out, each too late to end before the job did");
  return held(count_of(tested, "worker") +
              " woke up left out and ended that life; nobody computed outside its epochs");
}

// ---- P5 to P8 ---------------------------------------------------------------------------------

// Only its parent sees the run's exit code; an event tells it, too.
Verdict clear_end_attached(const Evidence& e) {
  if (!e.loud.over()) return not_tested("the job goes on");
  if (e.loud.done) return not_tested("no state was lost");
  const std::string end = "the run failed with code " + std::to_string(e.loud.failed->code) + ": " +
                          e.loud.failed->reason;
  const auto taken = last_copies_taken(e);
  return e.loud.failed->code == kExitStateLost && taken ? held(end + ", after " + *taken)
                                                        : broken(end);
}

Verdict clear_end(const Evidence& e) {
  if (e.attached) return clear_end_attached(e);
  for (const ProcessEnd& end : e.ends)
    if (!end.expected)
      return broken(end.name + " (process " + std::to_string(end.pid) + ") ended with status " +
                    std::to_string(end.status));
  if (e.loud.done && e.run_status == 0) {
    const auto& restarts = e.loud.restarts;
    if (restarts.empty()) return not_tested("no state was lost");
    return held(count_of(restarts.size(), "restart") + " from a checkpoint, the last from step " +
                std::to_string(restarts.back().version) + " after " +
                copies_taken_before(e, restarts.back()).value_or("nothing that was done here"));
  }
  const bool told = e.loud.failed && e.loud.failed->code == e.run_status;
  if (!told) return broken(end_of(e) + ", which no event tells");
  if (e.run_errors.size() != 1)
    return broken(end_of(e) + ", in " + count_of(e.run_errors.size(), "line"));
  if (e.run_status != 4) return broken(end_of(e));
  const auto taken = last_copies_taken(e);
  if (!taken) return broken(end_of(e) + "; but somebody had a copy");
  return held("exit code 4 and one line, after " + *taken);
}

Verdict nothing_left(const Evidence& e) {
  if (!e.leftovers.empty())
    return broken(
        e.leftovers.front() +
        (e.leftovers.size() > 1 ? " and " + std::to_string(e.leftovers.size() - 1) + " more" : ""));
  if (e.attached) return not_tested("the run is not ours to end");
  return held("no process, socket or file of the run is there");
}

// Returns whether the machine stood still when this epoch was formed, or shortly before.
bool stood_still(const Evidence& e, const Told<event::EpochFormed>& epoch) {
  constexpr double kAfterStall_s = 3;  // a lease and an election
  const double at = committed_at(epoch);
  return std::any_of(e.stalls.begin(), e.stalls.end(), [&](const Stall& stall) {
    return stall.from <= at && at <= stall.to + kAfterStall_s;
  });
}

Verdict short_pauses(const Evidence& e) {
  // A run that is not ours may have been disturbed by others, too.
  using Epochs = std::vector<const Told<event::EpochFormed>*>;
  for (const auto* epoch : e.attached ? Epochs() : unexplained(e.loud, e.deeds)) {
    if (stood_still(e, *epoch)) continue;
    return broken("epoch " + to_string(epoch->id) + " (" + epoch->cause +
                  ") was forced, and nothing but joins and leaves was under way");
  }
  std::vector<double> over;
  double worst = 0;
  std::size_t bare = 0;
  for (const Pause& pause : pauses_of(e.loud, e.deeds)) {
    if (!pause.kill || !pause.alone) continue;
    if (!pause.guarded) {
      ++bare;
      continue;
    }
    over.push_back(std::max(0.0, pause.over_ms));
    worst = std::max(worst, over.back());
  }
  // A deed that the job's end overtook could not have stopped a worker.
  const auto announced = std::count_if(e.deeds.begin(), e.deeds.end(), [&](const Deed& d) {
    return !e.attached && d.judged.announced && d.all_seen();
  });
  const std::string quietly =
      announced > 0 ? "; " + std::to_string(announced) + " joins and leaves stopped nobody" : "";
  if (over.empty() && announced == 0)
    return not_tested(bare == 0 ? "no kill, join or leave stood alone"
                                : "no join or leave stood alone, and no kill but of workers whose "
                                  "guards were dead before");
  const auto kills = std::count_if(e.deeds.begin(), e.deeds.end(), [](const Deed& d) {
    return d.outcome == Deed::Outcome::kDone && d.judged.timed;
  });
  if (over.empty() && kills == 0) return held(quietly.substr(2));
  if (over.empty())
    return held("for joins and leaves: " + quietly.substr(2) +
                "; kills are not tested, as none of " + std::to_string(kills) + " stood alone" +
                (bare == 0 ? "" : " with a guard to tell it"));
  const double typical = median(over);
  const std::string text = "median of " + count_of(over.size(), "kill") + ": " + ms_text(typical) +
                           " beyond the lost work (worst " + ms_text(worst) + ")";
  if (typical > e.pause_ms_max) return broken(text + ", allowed " + ms_text(e.pause_ms_max));
  return held(text + quietly +
              (bare == 0 ? "" : "; not counted: " + count_of(bare, "kill") + " without a guard"));
}

Verdict nobody_gets_in(const Evidence& e) {
  std::size_t met = 0;
  for (const Stranger& stranger : e.strangers) {
    if (!stranger.refused) return broken(stranger.how + ": " + stranger.seen);
    met += stranger.met;
  }
  if (e.strangers.empty()) return not_tested("nobody tried");
  if (met == 0) return not_tested("of those who tried none met anybody");
  return held(count_of(met, "attempt") + " without a key, each refused");
}

Verdict faults_had_effect(const Evidence& e) {
  std::size_t done = 0, seen = 0, held_back = 0, not_reached = 0;
  for (const Deed& deed : e.deeds) {
    done += deed.outcome == Deed::Outcome::kDone;
    seen += deed.all_seen();
    held_back += deed.outcome == Deed::Outcome::kHeldBack;
    not_reached += deed.outcome == Deed::Outcome::kNotReached;
    if (deed.outcome != Deed::Outcome::kDone || deed.verified()) continue;
    for (const Effect& effect : deed.effects)
      if (!effect.seen && !effect.overtaken)
        return broken(deed.kind + " at " + std::to_string(deed.planned_s) + " s: not seen that " +
                      effect.what);
  }
  if (e.deeds.empty()) return not_tested("there was none");
  std::string text =
      done == 0   ? "none done"
      : seen == 0 ? count_of(done, "fault") + " done, and the job ended before an effect was seen"
      : seen < done
          ? count_of(done, "fault") + " done and each effect seen, but for " +
                std::to_string(done - seen) + " that the job's end or another fault overtook"
          : count_of(done, "fault") + " done and each effect seen";
  if (held_back > 0) text += ", " + std::to_string(held_back) + " held back";
  if (not_reached > 0) text += ", " + std::to_string(not_reached) + " not reached";
  return seen > 0 ? held(text) : not_tested(text);
}

}  // namespace

const char* to_string(Finding finding) {
  switch (finding) {
    case Finding::kHeld:
      return "held";
    case Finding::kBroken:
      return "broken";
    case Finding::kNotShown:
      return "not tested";
  }
  return "unknown";
}

std::vector<Verdict> verdicts_of(const Evidence& evidence) {
  const struct {
    const char* promise;
    const char* title;
    Verdict (*judge)(const Evidence&);
  } promises[] = {{"P1", "same bits", same_bits},
                  {"P2", "exactly once", exactly_once},
                  {"P3", "no way back", no_way_back},
                  {"P4", "fenced", fenced},
                  {"P5", "clear ends", clear_end},
                  {"P6", "nothing left", nothing_left},
                  {"P7", "short pauses", short_pauses},
                  {"P8", "nobody gets in", nobody_gets_in},
                  {"faults", "had their effect", faults_had_effect}};
  std::vector<Verdict> verdicts;
  for (const auto& promise : promises) {
    Verdict verdict = promise.judge(evidence);
    verdict.promise = promise.promise;
    verdict.title = promise.title;
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

bool all_held(const std::vector<Verdict>& verdicts) {
  return std::none_of(verdicts.begin(), verdicts.end(),
                      [](const Verdict& v) { return v.finding == Finding::kBroken; });
}

bool anything_done(const Evidence& evidence) {
  return evidence.deeds.empty() ||
         std::any_of(evidence.deeds.begin(), evidence.deeds.end(),
                     [](const Deed& d) { return d.outcome == Deed::Outcome::kDone; });
}

std::string conclusion(const std::vector<Verdict>& verdicts) {
  if (!all_held(verdicts)) return "BROKEN";
  std::string untested;
  for (const Verdict& v : verdicts)
    if (v.finding == Finding::kNotShown) untested += (untested.empty() ? "" : ", ") + v.promise;
  if (untested.empty()) return "every promise held";
  return "every promise that was tested held; not tested: " + untested;
}

std::optional<std::string> last_copies_taken(const Evidence& e) {
  const auto* last = e.loud.last_epoch();
  if (!last) return std::nullopt;
  return copies_taken(e, *last,
                      e.loud.failed ? e.loud.failed->t : std::numeric_limits<double>::infinity());
}

}  // namespace starling::judge
