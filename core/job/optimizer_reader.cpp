#include "core/job/optimizer_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/job/formula.h"
#include "core/job/rate_change.h"
#include "core/job/schedule.h"

namespace starling::job_words {
namespace {

constexpr std::size_t kGroupSpecsMax = 1024;
constexpr std::size_t kNamesMax = 65536;  // tensors
constexpr std::size_t kNameBytesMax = 512;
constexpr std::uint32_t kLocalStepsMax = 4096;
// Passes of a step: random numbers have 24 bits for the number of a pass.
constexpr std::uint64_t kPassesMax = 1 << 20;

// What one of the built-in schedules alone has.
struct KeyOf {
  const char *key, *schedule;
};
constexpr KeyOf kKeysOf[] = {{"step_every", "step"},
                             {"step_factor", "step"},
                             {"decay_steps", "warm-up-stable-decay"},
                             {"start", "one-cycle"},
                             {"fractions", "sampled"}};

std::vector<double> read_fractions(Section& s) {
  std::vector<double> fractions;
  const toml::array* array = s.array("fractions", true, kFractionsMax);
  if (!array) return fractions;
  for (const toml::node& node : *array) {
    const auto value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value || !(*value >= 0) || !(*value <= 1)) {
      s.expected("fractions", node, "numbers from 0.0 to 1.0, of peak_rate");
      return {};
    }
    fractions.push_back(*value);
  }
  return fractions;
}

void read_schedule(Section& s, OptimizerSpec& o) {
  s.text("schedule", o.schedule, 64, false);
  // An application's takes the place of a built-in one.
  const bool own = Named<Schedule>::find(o.schedule) != nullptr;
  if (!own && o.schedule == "cosine") o.schedule.clear();  // as if nothing were named
  const std::string name = own ? "" : o.schedule;
  for (const KeyOf& of : kKeysOf)
    if (name != of.schedule)
      s.refuse({of.key}, "to the schedule \"" + (o.schedule.empty() ? "cosine" : o.schedule) +
                             "\", only to \"" + of.schedule + "\"");
  if (name == "step") {
    s.integer("step_every", o.step_every, 1, kStepsMax, /*required=*/true);
    s.number("step_factor", o.step_factor, 0, 1, /*above=*/true);
  } else if (name == "warm-up-stable-decay") {
    s.integer("decay_steps", o.decay_steps, 1, kStepsMax, /*required=*/true);
  } else if (name == "one-cycle") {
    s.number("start", o.start, 0, 1);
  } else if (name == "sampled") {
    o.fractions = read_fractions(s);
  }
}

// Reads one of `groups`; errors are noted as of a section of its own.
GroupSpec read_group(Section s, OptimizerKind kind) {
  GroupSpec group;
  if (const toml::array* tensors = s.array("tensors", true, kNamesMax)) {
    for (const toml::node& node : *tensors) {
      const auto* value = node.as_string();
      if (!value || value->get().empty() || value->get().size() > kNameBytesMax) {
        s.expected("tensors", node, "names or patterns like \"*.bias\"");
        break;
      }
      group.tensors.push_back(value->get());
    }
    if (tensors->empty()) s.wrong("tensors", "tensors must be at least one name or pattern");
  }
  if (s.has("rate_factor")) s.number("rate_factor", group.rate_factor.emplace(), 0, 1e6);
  if (kind == OptimizerKind::kAdam)
    s.refuse({"weight_decay"}, "to kind \"adam\"");
  else if (s.has("weight_decay"))
    s.number("weight_decay", group.weight_decay.emplace(), 0, 1000);
  s.boolean("statistics", group.statistics);
  if (group.statistics)
    s.refuse({"rate_factor", "weight_decay"}, "to statistics, which no rate and no decay changes");
  s.finish();
  return group;
}

void read_groups(Section& s, OptimizerSpec& o) {
  const toml::array* groups = s.array("groups", false, kGroupSpecsMax);
  if (!groups) return;
  for (const toml::node& node : *groups) {
    if (!node.is_table())
      return s.expected("groups", node,
                        "tables like { tensors = [\"*.bias\"], weight_decay = 0.0 }");
    if (node.as_table()->contains("lr"))
      return s.wrong("groups", "lr of a group is rate_factor here, times the learning rate");
    o.groups.push_back(read_group(s.inner("groups", *node.as_table()), o.kind));
  }
}

// Refuses a formula that ignores the job's rate or weight_decay, which would have no effect.
void check_formula(Section& s, const OptimizerSpec& o) {
  const auto formula = parse_formula(o.update);
  if (!s.good()) return;
  if (!formula) return s.wrong("update", "update: " + formula.error().text());
  if (!depends_on(formula.value(), Operation::kRate))
    return s.wrong("update", "update: nothing is made of `rate`, and no schedule would change it");
  const bool decays = o.weight_decay > 0 || std::ranges::any_of(o.groups, [](const GroupSpec& one) {
                        return one.weight_decay.value_or(0) > 0;
                      });
  if (decays && !depends_on(formula.value(), Operation::kDecay))
    s.wrong("update", "update: nothing is made of `decay`, and weight_decay would change nothing");
}

// The relations between lengths, of an optimizer that makes so many steps of the job, or local ones.
void check_lengths(Section& s, std::uint64_t steps, const char* unit, const OptimizerSpec& o) {
  if (!s.good()) return;
  const std::uint64_t schedule = o.schedule_steps ? o.schedule_steps : steps;
  if (o.warmup_steps >= schedule)
    s.wrong("warmup_steps", "warmup_steps must be below the schedule's " +
                                std::to_string(schedule) + " " + unit + ", is " +
                                std::to_string(o.warmup_steps));
  const bool own = Named<Schedule>::find(o.schedule) != nullptr;
  if (own) return;
  if (o.schedule == "one-cycle" && o.warmup_steps == 0)
    s.wrong("warmup_steps", "warmup_steps must be at least 1 for the schedule \"one-cycle\", is 0");
  if (o.decay_steps > schedule - o.warmup_steps)
    s.wrong("decay_steps", "decay_steps must be at most the " +
                               std::to_string(schedule - o.warmup_steps) +
                               " steps after the warm-up, is " + std::to_string(o.decay_steps));
  if (o.schedule == "sampled" && o.warmup_steps != 0)
    s.wrong("warmup_steps", "warmup_steps does not apply to the schedule \"sampled\"");
  if (o.schedule == "sampled" && o.fractions.size() < steps)
    s.wrong("fractions", "the schedule was sampled for " + std::to_string(o.fractions.size()) +
                             " steps, the job has " + std::to_string(steps) + " " + unit +
                             ": a schedule that is named has no end");
}

// Reads the keys of an optimizer that makes so many steps.
void read_keys(Section& s, std::uint64_t steps, const char* unit, OptimizerSpec& o) {
  s.choice("kind", o.kind, kOptimizers, true);
  s.number("peak_rate", o.peak_rate, 0, kPeakRateMax, /*above=*/true, /*required=*/true);
  s.number("floor", o.floor, 0, 1);
  s.integer("warmup_steps", o.warmup_steps, 0, kStepsMax);
  s.integer("schedule_steps", o.schedule_steps, 0, kStepsMax);
  s.number("clip", o.clip, 0, 1e30);
  read_schedule(s, o);
  const std::string kind = "to kind \"" + std::string(word_of(kOptimizers, int(o.kind))) + "\"";
  if (o.kind != OptimizerKind::kOwn) s.refuse({"name"}, kind);
  if (o.kind != OptimizerKind::kElementwise) s.refuse({"update"}, kind);
  if (o.kind == OptimizerKind::kOwn) {
    s.text("name", o.name, 64, true);
    s.refuse({"beta1", "beta2", "epsilon", "momentum", "nesterov"}, kind);
  } else if (o.kind == OptimizerKind::kElementwise) {
    s.text("update", o.update, kFormulaBytesMax, true);
    s.refuse({"beta1", "beta2", "epsilon", "momentum", "nesterov"}, kind);
  } else if (o.kind == OptimizerKind::kSgd) {
    s.refuse({"beta1", "beta2", "epsilon"}, kind);
    s.number("momentum", o.momentum, 0, 0.999999);
    s.boolean("nesterov", o.nesterov);
  } else {
    s.refuse({"momentum", "nesterov"}, kind);
    s.number("beta1", o.beta1, 0, 0.999999);
    s.number("beta2", o.beta2, 0, 0.999999);
    s.number("epsilon", o.epsilon, 0, 1, /*above=*/true);
  }
  if (o.kind != OptimizerKind::kAdamW) o.weight_decay = 0;  // a default only for AdamW
  if (o.kind == OptimizerKind::kAdam) {
    s.refuse({"weight_decay"}, kind);
  } else {
    s.number("weight_decay", o.weight_decay, 0, 1000);
  }
  read_groups(s, o);
  if (o.kind == OptimizerKind::kElementwise) check_formula(s, o);
  check_lengths(s, steps, unit, o);
  s.finish();
}

}  // namespace

void read_local(Section s, Job& job) {
  if (!s.there()) return;
  s.integer("steps", job.local.steps, 1, kLocalStepsMax, /*required=*/true);
  const std::uint32_t sequences = job.micro_batch_sequences;
  if (s.good() && sequences % job.local.steps != 0)
    s.wrong("steps", "steps must divide the sequences of a micro-batch, " +
                         std::to_string(sequences) + " in [job], is " +
                         std::to_string(job.local.steps));
  if (s.good() && local_steps(job) > kStepsMax)
    s.wrong("steps", "steps times those of the job must be at most " + std::to_string(kStepsMax));
  if (s.good() && std::uint64_t{job.micro_batches} * job.local.steps > kPassesMax)
    s.wrong("steps", "steps times micro_batches in [job] must be at most " +
                         std::to_string(kPassesMax) + ", is " +
                         std::to_string(std::uint64_t{job.micro_batches} * job.local.steps));
  read_keys(s, local_steps(job), "local steps", job.local.optimizer);
  if (std::ranges::any_of(job.local.optimizer.groups, &GroupSpec::statistics))
    s.wrong("groups", "statistics are those that groups of [optimizer] name");
}

void read_optimizer(Section s, Job& job) {
  if (job.local.on()) {
    // The step subtracts the difference that local steps made, not a gradient: a bound for gradients' norms says nothing
    // of it, and the rate of [local] falls already.
    job.optimizer.floor = 1;
    job.optimizer.clip = 0;
  }
  read_keys(s, job.steps, "steps", job.optimizer);
}

}  // namespace starling::job_words
