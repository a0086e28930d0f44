#include "tools/judge/audit/difference.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace starling::audit {
namespace {

constexpr const char* kSteps = "job.steps";
constexpr const char* kSchedule = "optimizer.schedule_steps";

// Returns whether a key of the job reaches no bit of a step that both runs have. The length of
// the schedule does, and that of the job where the schedule has none of its own: other_job().
bool neutral(const std::string& key) {
  if (key == "job.name" || key == "job.replicas" || key == "data.path" ||
      key.starts_with("data.cache"))
    return true;
  if (key == kSteps || key == kSchedule) return true;
  // A script's arguments say where to write as well as what to compute, which the steps show.
  for (const char* of_script :
       {"script", "module", "arguments", "text", "at", "earlier", "started"})
    if (key == std::string("model.") + of_script) return true;
  return key.rfind("elastic.", 0) == 0 || key.rfind("checkpoint.", 0) == 0 ||
         key.rfind("evaluate.", 0) == 0;
}

// Returns the steps of warm-up and cosine: 0 means the job's.
std::string schedule_of(const StartFact& start) {
  const auto text = [&](const char* key) {
    const auto it = start.job.find(key);
    return it == start.job.end() ? std::string("0") : it->second;
  };
  const std::string own = text(kSchedule);
  return own == "0" ? text(kSteps) : own;
}

}  // namespace

std::vector<std::string> other_job(const StartFact& a, const StartFact& b) {
  std::vector<std::string> other;
  const auto value = [](const StartFact& start, const std::string& key) {
    const auto it = start.job.find(key);
    return it == start.job.end() ? std::string("not set") : it->second;
  };
  std::map<std::string, std::string> keys = a.job;
  keys.insert(b.job.begin(), b.job.end());
  for (const auto& [key, unused] : keys)
    if (!neutral(key) && value(a, key) != value(b, key))
      other.push_back(key + " is " + value(a, key) + " and " + value(b, key));
  if (schedule_of(a) != schedule_of(b)) {
    const bool both_of_job = value(a, kSchedule) == value(b, kSchedule);
    other.push_back(std::string(both_of_job ? kSteps : "the schedule's length") + " is " +
                    schedule_of(a) + " and " + schedule_of(b));
  }
  const std::string unknown(32, '0');
  if (a.data != b.data && a.data != unknown && b.data != unknown)
    other.push_back("the data differ: " + a.data + " and " + b.data);
  return other;
}

namespace {

struct State {
  std::map<Version, const StepFact*> steps;
  std::map<Version, std::string> digests;
  std::map<Version, const EvaluationFact*> evaluations;
};

State state_of(const History& history) {
  State state;
  for (const StepFact& step : history.steps) {
    state.steps.emplace(step.version, &step);
    if (!step.digest.empty()) state.digests.emplace(step.version, step.digest);
  }
  for (const EvaluationFact& e : history.evaluations) state.evaluations.emplace(e.version, &e);
  for (const DoneFact& done : history.done) state.digests.emplace(done.version, done.digest);
  return state;
}

std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::optional<Difference> metric_difference(Version version, const std::string& what,
                                            const std::vector<double>& a,
                                            const std::vector<double>& b) {
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && same_bits(a[i], b[i])) continue;
    const auto shown = [i](const std::vector<double>& metrics) {
      return i < metrics.size() ? exact(metrics[i]) : std::string("none");
    };
    return Difference{version, what + " " + std::to_string(i), shown(a), shown(b)};
  }
  return std::nullopt;
}

std::optional<Difference> step_difference(const StepFact& a, const StepFact& b) {
  const auto differs = [&](const char* what, std::string of_a, std::string of_b) {
    return Difference{a.version, what, std::move(of_a), std::move(of_b)};
  };
  // Before what follows from it: an admin has changed it, or the schedule is another one.
  if (a.rate && b.rate && !same_bits(*a.rate, *b.rate))
    return differs("learning rate", exact(*a.rate), exact(*b.rate));
  if (!same_bits(a.loss, b.loss)) return differs("loss", exact(a.loss), exact(b.loss));
  if (!same_bits(a.norm, b.norm)) return differs("norm", exact(a.norm), exact(b.norm));
  if (a.tokens != b.tokens)
    return differs("tokens", std::to_string(a.tokens), std::to_string(b.tokens));
  if (a.skipped != b.skipped)
    return differs("skipped", a.skipped ? "yes" : "no", b.skipped ? "yes" : "no");
  if (a.scale != b.scale) return differs("scale", std::to_string(a.scale), std::to_string(b.scale));
  if (a.ledger_hash != b.ledger_hash) return differs("ledger_hash", a.ledger_hash, b.ledger_hash);
  return metric_difference(a.version, "metric", a.metrics, b.metrics);
}

std::optional<Difference> evaluation_difference(const EvaluationFact& a, const EvaluationFact& b) {
  if (!same_bits(a.loss, b.loss))
    return Difference{a.version, "held-out loss", exact(a.loss), exact(b.loss)};
  return metric_difference(a.version, "held-out metric", a.metrics, b.metrics);
}

// Evaluations over other batches, or of other metrics, are others.
bool same_evaluations(const StartFact& a, const StartFact& b) {
  return std::ranges::all_of(
      std::vector<std::string>{"evaluate.batches", "evaluate.samples", "evaluate.metrics"},
      [&](const std::string& key) {
        const auto x = a.job.find(key), y = b.job.find(key);
        return (x == a.job.end() ? "" : x->second) == (y == b.job.end() ? "" : y->second);
      });
}

}  // namespace

Comparison compare(const History& a, const History& b) {
  Comparison result;
  result.other_job = other_job(a.start, b.start);
  // A coordinator that was started by hand computes nothing, and tells no fingerprint.
  const std::string &of_run_a = a.start.fingerprint, &of_run_b = b.start.fingerprint;
  if (!of_run_a.empty() && !of_run_b.empty() && of_run_a != of_run_b)
    result.notes.push_back("they ran on different arithmetic: " + of_run_a + " and " + of_run_b);
  if (!result.other_job.empty()) return result;
  for (const char* key : {"arguments", "text"}) {
    const auto said = [&](const History& h) {
      const auto it = h.start.job.find(std::string("model.") + key);
      return it == h.start.job.end() ? std::string("none") : it->second;
    };
    if (said(a) != said(b))
      result.notes.push_back(std::string("the script's ") + key + " differ: " + said(a) + " and " +
                             said(b));
  }
  const State of_a = state_of(a), of_b = state_of(b);

  const bool evaluations = same_evaluations(a.start, b.start);
  std::map<Version, bool> versions;  // of steps, digests and evaluations that both have
  for (const auto& [v, evaluation] : of_a.evaluations)
    if (of_b.evaluations.count(v)) versions.emplace(v, true);
  for (const auto& [v, step] : of_a.steps)
    if (of_b.steps.count(v)) versions.emplace(v, true);
  for (const auto& [v, digest] : of_a.digests)
    if (of_b.digests.count(v)) versions.emplace(v, true);
  for (const auto& [v, unused] : versions) {
    const auto digest_a = of_a.digests.find(v), digest_b = of_b.digests.find(v);
    if (digest_a != of_a.digests.end() && digest_b != of_b.digests.end()) {
      ++result.digests;
      if (digest_a->second == digest_b->second) {
        if (!result.first) result.same_state = v;
      } else if (!result.first) {
        result.first = Difference{v, "digest", digest_a->second, digest_b->second};
      }
    }
    if (const auto x = of_a.evaluations.find(v), y = of_b.evaluations.find(v);
        x != of_a.evaluations.end() && y != of_b.evaluations.end() && evaluations) {
      ++result.evaluations;
      if (!result.first) result.first = evaluation_difference(*x->second, *y->second);
    }
    const auto step_a = of_a.steps.find(v), step_b = of_b.steps.find(v);
    if (step_a == of_a.steps.end() || step_b == of_b.steps.end()) continue;
    ++result.steps;
    if (!result.first) result.first = step_difference(*step_a->second, *step_b->second);
  }
  if (!a.done.empty() && !b.done.empty() && a.done.front().version == b.done.front().version)
    result.same_end = a.done.front().digest == b.done.front().digest;
  return result;
}

}  // namespace starling::audit
