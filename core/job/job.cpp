#include "core/job/job.h"

#include <algorithm>
#include <map>
#include <span>
#include <sstream>
#include <utility>

#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/job/schedule.h"
#include "core/job/words.h"

namespace starling {
namespace {

using namespace job_words;

// Writes what a schedule has beside warm-up, floor and length, where that is chosen.
std::string schedule_lines(const OptimizerSpec& o) {
  const OptimizerSpec usual;
  std::string lines;
  if (!o.schedule.empty()) lines += "schedule = " + quoted(o.schedule) + "\n";
  if (o.step_every != usual.step_every)
    lines += "step_every = " + std::to_string(o.step_every) + "\n";
  if (o.step_factor != usual.step_factor)
    lines += "step_factor = " + number_text(o.step_factor) + "\n";
  if (o.decay_steps != usual.decay_steps)
    lines += "decay_steps = " + std::to_string(o.decay_steps) + "\n";
  if (o.start != usual.start) lines += "start = " + number_text(o.start) + "\n";
  if (!o.fractions.empty()) lines += "fractions = " + list_text(o.fractions, number_text) + "\n";
  return lines;
}

// Writes groups in one line, as job_differences() compares the canonical text line by line.
std::string groups_line(const std::vector<GroupSpec>& groups) {
  std::string all;
  for (const GroupSpec& group : groups) {
    std::string names;
    for (const std::string& name : group.tensors)
      names += (names.empty() ? "" : ", ") + quoted(name);
    all += (all.empty() ? "{ tensors = [" : ", { tensors = [") + names + "]";
    if (group.rate_factor) all += ", rate_factor = " + number_text(*group.rate_factor);
    if (group.weight_decay) all += ", weight_decay = " + number_text(*group.weight_decay);
    if (group.statistics) all += ", statistics = true";
    all += " }";
  }
  return groups.empty() ? "" : "groups = [" + all + "]\n";
}

// Writes the keys of [optimizer] or of [local].
std::string optimizer_lines(const OptimizerSpec& o) {
  std::ostringstream out;
  out << "kind = \"" << word_of(kOptimizers, int(o.kind))
      << "\"\npeak_rate = " << number_text(o.peak_rate) << "\nfloor = " << number_text(o.floor)
      << "\nwarmup_steps = " << o.warmup_steps << "\nschedule_steps = " << o.schedule_steps
      << "\nclip = " << number_text(o.clip) << "\n";
  out << schedule_lines(o);
  if (o.kind == OptimizerKind::kOwn) {
    out << "name = " << quoted(o.name) << "\n";
  } else if (o.kind == OptimizerKind::kElementwise) {
    out << "update = " << quoted(o.update) << "\n";
  } else if (o.kind == OptimizerKind::kSgd) {
    out << "momentum = " << number_text(o.momentum)
        << "\nnesterov = " << (o.nesterov ? "true" : "false") << "\n";
  } else {
    out << "beta1 = " << number_text(o.beta1) << "\nbeta2 = " << number_text(o.beta2)
        << "\nepsilon = " << number_text(o.epsilon) << "\n";
  }
  if (o.kind != OptimizerKind::kAdam)
    out << "weight_decay = " << number_text(o.weight_decay) << "\n";
  out << groups_line(o.groups);
  return out.str();
}

// Writes [elastic]. A key is written only if chosen where checkpoints of builds without it have hashes of this text.
std::string elastic_lines(const ElasticSpec& e) {
  const ElasticSpec usual;
  std::ostringstream out;
  out << "\n[elastic]\nlease_ms = " << e.lease_ms << "\nstate_timeout_ms = " << e.state_timeout_ms
      << "\ncoordinator_timeout_ms = " << e.coordinator_timeout_ms
      << "\nstart_timeout_ms = " << e.start_timeout_ms << "\n";
  if (e.standstill_steps != usual.standstill_steps)
    out << "standstill_steps = " << e.standstill_steps << "\n";
  if (e.standstill_ms != usual.standstill_ms) out << "standstill_ms = " << e.standstill_ms << "\n";
  if (e.slowest != usual.slowest) out << "slowest = " << e.slowest << "\n";
  out << "shares = \"" << word_of(kShares, int(e.shares)) << "\"\nseal = \""
      << word_of(kSeals, int(e.seal))
      << "\"\nledger_events = " << (e.ledger_events ? "true" : "false")
      << "\ndigest_every = " << e.digest_every << "\n";
  if (e.recheck != usual.recheck) out << "recheck = " << e.recheck << "\n";
  if (e.on_mismatch == OnMismatch::kStop) out << "on_mismatch = \"stop\"\n";
  return out.str();
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
    out << "loss_scale = " << (1u << rule.first) << "\nloss_scale_steps = " << job.loss_scale_steps
        << "\n";
  if (job.offload != Offload::kNone)
    out << "offload = \"" << word_of(kOffloads, int(job.offload)) << "\"\n";
  if (job.recompute) out << "recompute = true\n";
  out << "\n[model]\nkind = \"" << kind_of(job.model).word << "\"\n";
  std::visit([&out](const auto& spec) { spec.write(out); }, job.model);
  if (const LoraSpec lora = lora_of(job.model); lora.on())
    out << "\n[lora]\nrank = " << lora.rank << "\nalpha = " << number_text(lora.alpha) << "\n"
        << texts_line("targets", lora.targets)
        << (lora.base.empty() ? "" : "base = " + quoted(lora.base) + "\n");
  out << "\n[optimizer]\n" << optimizer_lines(job.optimizer);
  if (job.local.on())
    out << "\n[local]\nsteps = " << job.local.steps << "\n" << optimizer_lines(job.local.optimizer);
  if (job.numbers.grid_bits != 0)
    out << "\n[numbers]\ngrid_bits = " << job.numbers.grid_bits << "\nrounding = \""
        << word_of(kGridRoundings, int(job.numbers.rounding)) << "\"\n";
  if (input_of(job.model)) {
    out << "\n[data]\nkind = \"" << word_of(kData, int(job.data.kind))
        << "\"\npath = " << quoted(job.data.path) << "\n";
    out << texts_line("extensions", job.data.extensions);
    if (job.data.order == DataOrder::kLanes) out << "order = \"lanes\"\n";
    if (!job.data.cache.empty())
      out << "cache = " << quoted(job.data.cache) << "\ncache_bytes = " << job.data.cache_bytes
          << "\n";
  } else if (!job.data.path.empty()) {
    out << "\n[data]\npath = " << quoted(job.data.path) << "\n";
  }
  out << elastic_lines(job.elastic);
  if (job.checkpoint.on())
    out << "\n[checkpoint]\ndir = " << quoted(job.checkpoint.dir)
        << (job.checkpoint.every < kCheckpointsByTime
                ? "\nevery = " + std::to_string(job.checkpoint.every)
                : "")
        << "\nkeep = " << job.checkpoint.keep << "\n";
  if (job.checkpoint.on() && job.checkpoint.every_seconds != 0)
    out << "every_seconds = " << job.checkpoint.every_seconds << "\n";
  if (job.checkpoint.on() && job.checkpoint.accepts != 0)
    out << "accepts = " << quoted(hex(job.checkpoint.accepts)) << "\n";
  if (job.checkpoint.on() && job.checkpoint.tended) out << "tended = true\n";
  if (job.evaluate.on()) {
    const EvaluateSpec& e = job.evaluate;
    out << "\n[evaluate]\n";
    if (!e.path.empty()) out << "path = " << quoted(e.path) << "\n";
    if (e.samples != 0) out << "samples = " << e.samples << "\n";
    out << "every = " << e.every << "\n";
    if (e.batches != 0) out << "batches = " << e.batches << "\n";
    out << texts_line("metrics", e.metrics);
  }
  out << identity_lines(job.identity);
  return out.str();
}

namespace {

Job essence_of(const Job& job) {
  // Out: the name, where data, their cache and script lie (what they give is part of the fingerprint), compute time,
  // copies, [elastic] but its digest_every, what passes compute twice, where a script's state lies, what is done about a
  // skipped step, checkpoints and whose tokens let workers in, none of which reaches a bit of the result. In: everything
  // else; steps too, since a worker whose hash matches ends at its own job's last step, and digest_every, since a digest
  // is the sum of what all members add at the same step.
  Job essence = job;
  const Job neutral;
  essence.name.clear();
  // A script's processes compute with the instructions of "auto" wherever its workers keep the state.
  if (kind_of(job.model).is_script && (job.isa == "cuda" || job.isa == "emulated"))
    essence.isa = neutral.isa;
  essence.data.path.clear();
  essence.data.cache.clear();
  essence.data.cache_bytes = neutral.data.cache_bytes;
  essence.evaluate.path.clear();
  std::visit(
      [](auto& spec) {
        if constexpr (requires { spec.drop_idle(); }) spec.drop_idle();
      },
      essence.model);
  essence.replicas = neutral.replicas;
  essence.on_nonfinite = neutral.on_nonfinite;
  essence.recompute = neutral.recompute;
  essence.offload = neutral.offload;
  essence.elastic = {};
  essence.elastic.digest_every = job.elastic.digest_every;
  essence.checkpoint = neutral.checkpoint;
  essence.identity = {};
  const auto set_length = [](OptimizerSpec& optimizer, std::uint64_t steps) {
    if (optimizer.schedule_steps == 0) optimizer.schedule_steps = steps;
    if (!has_length(optimizer)) optimizer.schedule_steps = 0;
  };
  set_length(essence.optimizer, job.steps);
  if (job.local.on()) set_length(essence.local.optimizer, local_steps(job));
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
  agreed.elastic.lease_ms = job.elastic.lease_ms;
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
  essence.elastic.digest_every = 0;
  essence.evaluate = {};
  std::visit(
      [](auto& spec) {
        if constexpr (requires { spec.drop_texts(); }) spec.drop_texts();
      },
      essence.model);
  return essence;
}

// A value for a line that people read.
std::string brief(const std::string& value) {
  constexpr std::size_t kShown = 200;
  return value.size() <= kShown ? value : value.substr(0, kShown) + "..";
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
  // A section that one of them alone has is one difference.
  const auto lacks = [](const auto& values, const std::string& section) {
    const auto it = values.lower_bound(section);
    return it == values.end() || !it->first.starts_with(section);
  };
  std::string named;
  for (const auto& [key, unused] : all) {
    const std::string section = key.substr(0, key.find(']') + 1);
    const bool none_in_a = lacks(in_a, section), none_in_b = lacks(in_b, section);
    if (none_in_a || none_in_b) {
      if (section != named)
        differences.push_back(section + " is " +
                              (none_in_a ? "nothing and there" : "there and nothing"));
      named = section;
    } else if (value(in_a, key) != value(in_b, key)) {
      differences.push_back(key + " is " + brief(value(in_a, key)) + " and " +
                            brief(value(in_b, key)));
    }
  }
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
    text.append(key).append(" is ").append(brief(one)).append(" here and ");
    text.append(brief(other)).append(" there");
  }
  return text;
}

}  // namespace starling
