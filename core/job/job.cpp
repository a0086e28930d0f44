#include "core/job/job.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numbers>
#include <span>
#include <sstream>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/job/schedule.h"
#include "core/job/words.h"

namespace starling {
namespace {

using namespace job_words;

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// cos(pi x) for x in [0, 1] from additions and products alone: libm's cos may differ in the last
// bit between two machines, and every worker must have the same learning rate.
double cos_pi(double x) {
  if (x > 0.5) return -cos_pi(1 - x);
  const bool sine = x > 0.25;  // cos(pi x) = sin(pi (1/2 - x)), again of an argument up to pi/4
  const double a = (sine ? 0.5 - x : x) * std::numbers::pi;
  double term = sine ? a : 1, sum = term;
  for (int n = sine ? 3 : 2; n < 22; n += 2) {  // Taylor; the last term is below 1e-20
    term *= -a * a / (n * (n - 1));
    sum += term;
  }
  return sum;
}

}  // namespace

std::string format_job(const Job& job) {
  std::ostringstream out;
  out << "[job]\nname = " << quoted(job.name) << "\nseed = " << job.seed
      << "\nsteps = " << job.steps << "\nmicro_batches = " << job.micro_batches
      << "\nsequences = " << job.micro_batch_sequences << "\nreplicas = " << job.replicas
      << "\nisa = " << quoted(job.isa) << "\n";
  // Written only if chosen, so that hashes of jobs stay what they were.
  if (job.on_nonfinite == NonFinite::kStop) out << "on_nonfinite = \"stop\"\n";
  if (job.precision != Precision::kFp32)
    out << "precision = \"" << word_of(kPrecisions, int(job.precision)) << "\"\n";
  if (const LossScaleRule rule = loss_scale_rule(job); rule.on)
    out << "loss_scale = " << (1u << rule.first) << "\nloss_scale_steps = " << rule.every << "\n";
  if (job.offload != Offload::kNone)
    out << "offload = \"" << word_of(kOffloads, int(job.offload)) << "\"\n";
  if (job.recompute) out << "recompute = true\n";
  out << "\n[model]\nkind = \"" << kind_of(job.model).word << "\"\n";
  std::visit([&out](const auto& spec) { spec.write(out); }, job.model);
  const OptimizerSpec& o = job.optimizer;
  out << "\n[optimizer]\nkind = \"" << word_of(kOptimizers, int(o.kind))
      << "\"\npeak_rate = " << number_text(o.peak_rate) << "\nfloor = " << number_text(o.floor)
      << "\nwarmup_steps = " << o.warmup_steps << "\nschedule_steps = " << o.schedule_steps
      << "\nclip = " << number_text(o.clip) << "\n";
  // Written only if chosen, as above.
  if (!o.schedule.empty()) out << "schedule = " << quoted(o.schedule) << "\n";
  if (o.kind == OptimizerKind::kOwn) {
    out << "name = " << quoted(o.name) << "\n";
  } else if (o.kind == OptimizerKind::kSgd) {
    out << "momentum = " << number_text(o.momentum)
        << "\nnesterov = " << (o.nesterov ? "true" : "false") << "\n";
  } else {
    out << "beta1 = " << number_text(o.beta1) << "\nbeta2 = " << number_text(o.beta2)
        << "\nepsilon = " << number_text(o.epsilon) << "\n";
  }
  if (o.kind != OptimizerKind::kAdam)
    out << "weight_decay = " << number_text(o.weight_decay) << "\n";
  if (input_of(job.model)) {
    out << "\n[data]\nkind = \"" << word_of(kData, int(job.data.kind))
        << "\"\npath = " << quoted(job.data.path) << "\n";
    out << texts_line("extensions", job.data.extensions);
  } else if (!job.data.path.empty()) {
    out << "\n[data]\npath = " << quoted(job.data.path) << "\n";
  }
  out << "\n[elastic]\nlease_ms = " << job.lease_ms
      << "\nstate_timeout_ms = " << job.state_timeout_ms
      << "\ncoordinator_timeout_ms = " << job.coordinator_timeout_ms
      << "\nstart_timeout_ms = " << job.start_timeout_ms;
  // Written only if chosen: checkpoints of builds without these keys have hashes of this text.
  if (job.standstill_steps != Job{}.standstill_steps)
    out << "\nstandstill_steps = " << job.standstill_steps;
  if (job.standstill_ms != Job{}.standstill_ms) out << "\nstandstill_ms = " << job.standstill_ms;
  out << "\nshares = \"" << word_of(kShares, int(job.shares)) << "\"\nseal = \""
      << word_of(kSeals, int(job.seal)) << "\""
      << "\nledger_events = " << (job.ledger_events ? "true" : "false")
      << "\ndigest_every = " << job.digest_every << "\n";
  if (job.recheck != Job{}.recheck) out << "recheck = " << job.recheck << "\n";
  if (job.on_mismatch == OnMismatch::kStop) out << "on_mismatch = \"stop\"\n";
  if (job.checkpoint.on())
    out << "\n[checkpoint]\ndir = " << quoted(job.checkpoint.dir)
        << "\nevery = " << job.checkpoint.every << "\nkeep = " << job.checkpoint.keep << "\n";
  if (job.checkpoint.on() && job.checkpoint.accepts != 0)
    out << "accepts = " << quoted(hex(job.checkpoint.accepts)) << "\n";
  return out.str();
}

namespace {

Job essence_of(const Job& job) {
  // Out: the name, where data and script lie (what they give is part of the fingerprint), compute time,
  // copies, shares, seals, timeouts, what passes compute twice, what is done about a skipped step,
  // events and checkpoints, none of which reaches a bit of the result. In: everything else; steps
  // too, since a worker whose hash matches ends at its own job's last step, and digest_every, since
  // a digest is the sum of what all members add at the same step.
  Job essence = job;
  const Job neutral;
  essence.name.clear();
  essence.data.path.clear();
  std::visit(
      [](auto& spec) {
        if constexpr (requires { spec.drop_idle(); }) spec.drop_idle();
      },
      essence.model);
  essence.replicas = neutral.replicas;
  essence.on_nonfinite = neutral.on_nonfinite;
  essence.recompute = neutral.recompute;
  essence.offload = neutral.offload;
  essence.lease_ms = neutral.lease_ms;
  essence.state_timeout_ms = neutral.state_timeout_ms;
  essence.coordinator_timeout_ms = neutral.coordinator_timeout_ms;
  essence.start_timeout_ms = neutral.start_timeout_ms;
  essence.standstill_steps = neutral.standstill_steps;
  essence.standstill_ms = neutral.standstill_ms;
  essence.shares = neutral.shares;
  essence.seal = neutral.seal;
  essence.ledger_events = neutral.ledger_events;
  essence.recheck = neutral.recheck;
  essence.on_mismatch = neutral.on_mismatch;
  essence.checkpoint = neutral.checkpoint;
  if (essence.optimizer.schedule_steps == 0) essence.optimizer.schedule_steps = job.steps;
  return essence;
}

std::uint64_t hash_of(const Job& essence) {
  const std::string text = format_job(essence);
  return hash64(as_bytes(std::span<const char>(text)));
}

}  // namespace

std::uint64_t job_hash(const Job& job) {
  // The hash also covers values that coordinators and workers must have alike though no bit depends
  // on them: a worker with a longer lease is heard too rarely, and one that checkpoints at other
  // versions writes parts that no other worker completes.
  Job agreed = essence_of(job);
  agreed.lease_ms = job.lease_ms;
  if (job.checkpoint.on()) {
    agreed.checkpoint.dir.assign(1, '/');  // where it lies may differ
    agreed.checkpoint.every = job.checkpoint.every;
  }
  return hash_of(agreed);
}

namespace {

Job state_essence_of(const Job& job) {
  Job essence = essence_of(job);
  essence.steps = 0;
  essence.digest_every = 0;
  std::visit(
      [](auto& spec) {
        if constexpr (requires { spec.drop_texts(); }) spec.drop_texts();
      },
      essence.model);
  return essence;
}

// "[optimizer].peak_rate" -> "0.001"
std::map<std::string, std::string> values_of(const Job& essence) {
  std::map<std::string, std::string> values;
  std::istringstream text(format_job(essence));
  std::string section;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("[")) section = line;
    if (const auto at = line.find(" = "); at != std::string::npos)
      values[section + "." + line.substr(0, at)] = line.substr(at + 3);
  }
  return values;
}

}  // namespace

std::uint64_t state_hash(const Job& job) {
  return hash_of(state_essence_of(job));
}

std::vector<std::string> state_differences(const Job& a, const Job& b) {
  const auto in_a = values_of(state_essence_of(a)), in_b = values_of(state_essence_of(b));
  std::map<std::string, std::string> all = in_b;
  all.insert(in_a.begin(), in_a.end());
  const auto value = [](const auto& values, const std::string& key) {
    const auto it = values.find(key);
    return it == values.end() ? "nothing" : it->second;
  };
  std::vector<std::string> differences;
  for (const auto& [key, unused] : all)
    if (value(in_a, key) != value(in_b, key))
      differences.push_back(key + " is " + value(in_a, key) + " and " + value(in_b, key));
  return differences;
}

namespace {

// "job.seed" -> "1", of a job's canonical text.
std::map<std::string, std::string> keys_of(const Job& job) {
  std::map<std::string, std::string> found;
  std::istringstream lines(format_job(job));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find(" = ");
    if (line.size() > 2 && line.front() == '[')
      section = line.substr(1, line.size() - 2) + ".";
    else if (equals != std::string::npos)
      found[section + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return found;
}

}  // namespace

std::string job_differences(const Job& here, const Job& there) {
  const auto mine = keys_of(essence_of(here)), theirs = keys_of(essence_of(there));
  std::map<std::string, std::string> all = mine;
  all.insert(theirs.begin(), theirs.end());
  std::string text;
  for (const auto& [key, any] : all) {
    const auto a = mine.find(key), b = theirs.find(key);
    const std::string one = a == mine.end() ? "not set" : a->second;
    const std::string other = b == theirs.end() ? "not set" : b->second;
    if (one == other) continue;
    if (!text.empty()) text.append(", ");
    text.append(key).append(" is ").append(one).append(" here and ").append(other).append(" there");
  }
  return text;
}

Result<> check_schedule(const OptimizerSpec& optimizer) {
  if (optimizer.schedule.empty() || Named<Schedule>::find(optimizer.schedule) != nullptr)
    return ok();
  return Error(Code::kBadInput, "this program has no schedule \"" + optimizer.schedule +
                                    "\", it has " + Named<Schedule>::known() +
                                    "; [optimizer].schedule");
}

double learning_rate(const OptimizerSpec& optimizer, std::uint64_t step, std::uint64_t steps) {
  if (!optimizer.schedule.empty()) {
    const auto* own = Named<Schedule>::find(optimizer.schedule);
    STARLING_CHECK(own != nullptr);
    return own->rate(optimizer, step, optimizer.schedule_steps ? optimizer.schedule_steps : steps);
  }
  const double peak = optimizer.peak_rate, floor = optimizer.floor;
  const std::uint64_t warmup = optimizer.warmup_steps;
  const std::uint64_t schedule = optimizer.schedule_steps ? optimizer.schedule_steps : steps;
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step + 1 >= schedule) return peak * floor;  // the cosine's end, and whatever comes after
  const double part =
      static_cast<double>(step + 1 - warmup) / static_cast<double>(schedule - warmup);
  return peak * (floor + (1 - floor) * (1 + cos_pi(part)) / 2);
}

}  // namespace starling
