// The leader tells of contributions that differ when they are computed again, and leaves out a worker
// that is known to compute wrongly (docs/design.md, section 8).

#include <algorithm>

#include "elastic/membership/fingerprint.h"
#include "elastic/membership/leader.h"

namespace starling::elastic {
namespace {

// True for the first, the tenth, the hundredth and so on.
bool is_due(std::uint64_t count) {
  while (count % 10 == 0) count /= 10;
  return count == 1;
}

const Group::Worker* with_counter(const Group& group, std::uint64_t counter) {
  for (const auto& [nonce, worker] : group.workers())
    if (worker.join.who.counter == counter) return &worker;
  return nullptr;
}

std::string name_of(const Group& group, std::uint64_t counter) {
  const auto* worker = with_counter(group, counter);
  return worker ? worker->join.name : "worker " + std::to_string(counter);
}

std::string micro_batch_text(const Difference& d) {
  return "micro-batch " + std::to_string(d.micro_batch) + " of step " + std::to_string(d.version);
}

}  // namespace

void Leader::review_differences(const std::vector<Difference>& differences) {
  for (const Difference& d : differences) {
    if (d.micro_batch >= config_.micro_batches) continue;
    if (const auto found = suspicions_.take(d.by, d))
      tell_difference(d, config_.pure_model ? found->wrong : std::nullopt);
  }
}

void Leader::tell_difference(const Difference& d, std::optional<std::uint64_t> wrong) {
  tell(event::Mismatch{d.version, d.micro_batch, d.worker, d.by, wrong});
  const std::string worker = name_of(group_, d.worker), finder = name_of(group_, d.by);
  std::string text =
      micro_batch_text(d) + ": " + finder + " computes another gradient, loss or metric than ";
  text += d.by == d.worker ? "it did before" : worker + ", whose is in the sum";
  if (wrong)
    text += "; " + name_of(group_, *wrong) + " is wrong";
  else if (!config_.pure_model)
    text +=
        "; model or data keep something from one micro-batch to the next, the workers have other "
        "data, or a processor or memory is wrong";
  else
    text += "; which of the two is wrong cannot be told";
  if (is_due(suspicions_.count())) warn(text + "; the result is in doubt (docs/data.md)");
  const auto* life = wrong ? with_counter(group_, *wrong) : nullptr;
  if (!life || !roster_.find(life->join.who))
    doubt_result(d);
  else if (wrong_.emplace(*wrong, text).second)
    taint(life->join.who, life->join.name,
          "computes wrong gradients, as seen in " + micro_batch_text(d));
  if (config_.elastic.on_mismatch == OnMismatch::kStop && !proposals_.end())
    end_job(1, text + ", and on_mismatch is \"stop\"; " + newest_checkpoint());
}

// The first step of a model that keeps something between micro-batches. Earlier runs had the same
// one, unless its script was another then.
Version Leader::kept_since() const {
  const Join* group = roster_.standard();
  for (const Checkpoint& c : group_.checkpoints())
    if (c.version == group_.begun() && group &&
        other_script(group->fingerprint_text, c.fingerprint_text))
      return c.version;
  return Version{0};
}

// Every worker of a model that keeps something between micro-batches is as wrong as the one that was
// found, also before a restart; of a pure one it is one of these two.
void Leader::doubt_result(const Difference& d) {
  if (!config_.pure_model) return doubt_from(kept_since());
  Version first = kNoVersion;
  for (const std::uint64_t counter : {d.worker, d.by}) {
    const auto* life = with_counter(group_, counter);
    first = std::min(first, life ? first_of(life->join.who) : group_.start());
  }
  doubt_from(first);
}

// Refuses a wrong worker once others hold copies of all segments, so that no state is lost with it.
void Leader::expel(const Incarnation& who, const std::string& name) {
  const auto found = wrong_.find(who.counter);
  if (found == wrong_.end() || !others_have_all_of(who)) return;
  roster_.told_to_go(who);
  send(who, Refused{name + " computes wrong gradients: " + found->second});
}

bool Leader::others_have_all_of(const Incarnation& who) const {
  if (!group_.plan()) return true;
  const Plan& plan = *group_.plan();
  return std::ranges::all_of(plan.holders, [&](const std::vector<Rank>& ranks) {
    return std::ranges::any_of(ranks, [&](Rank rank) {
      const Incarnation& other = plan.members[rank].who;
      return other.nonce != who.nonce && !roster_.certainly_dead(other) &&
             !wrong_.count(other.counter);
    });
  });
}

}  // namespace starling::elastic
