// What follows when state is gone (docs/design.md, section 9): a restart from a checkpoint, or the
// end of the job.

#include <algorithm>
#include <utility>

#include "core/base/exit.h"
#include "elastic/membership/forming.h"

namespace starling::elastic {

using namespace forming_command;

void Forming::lose_state(const std::vector<Reporter>& reporters, Version base) {
  const bool left = group_.plan() && everybody_leaves(*group_.plan(), group_);
  if (left && !group_.checkpoints().empty()) return all_have_left(reporters);
  std::string first, last, holders;
  std::size_t others = 0;
  for (SegmentId s = 0; s < config_.segments; ++s) {
    if (copied(reporters, s, base)) continue;
    const std::string name = s < config_.tensors.size() ? config_.tensors[s] : "segment";
    if (name == last) continue;
    last = name;
    if (!first.empty()) {
      ++others;
      continue;
    }
    first = name;
    if (group_.plan())
      for (Rank r : group_.plan()->holders[s])
        holders += (holders.empty() ? "" : ", ") + group_.plan()->members[r].name;
  }
  std::string names = first + " (held by " + holders + ")";
  if (others > 0) names += " and of " + std::to_string(others) + " more";
  const std::string why = "no living worker has a current copy of " + names;
  const auto own = own_end();
  const bool for_good = own && own->code == kExitBadInput && reporters.empty();
  if (!for_good && restart(reporters, why)) return;
  if (own) return end(own->code, own->reason);
  end(kExitStateLost, "state lost: " + why + "; " + newest_checkpoint());
}

// No plan can have both of these two, and the others can do without neither.
void Forming::lose_apart(const std::vector<Reporter>& reporters, const Links::Apart& apart) {
  const std::string why = apart.names + " have not connected to each other for " +
                          std::to_string(roster_.now_ms() - apart.since_ms) +
                          " ms, and nobody else has what each of them has";
  if (restart(reporters, why)) return;
  end(kExitStateLost, "state lost: " + why + "; " + newest_checkpoint());
}

// Ends a job all of whose workers have ended themselves with the same exit code: with their code
// and reason, which explain the lost state. lose_state() does not restart after bad input that all
// of them met, as they would meet it again.
std::optional<End> Forming::own_end() {
  if (!group_.plan()) return std::nullopt;
  std::optional<End> found;
  for (const Member& m : group_.plan()->members) {
    if (!roster_.certainly_dead(m.who)) return std::nullopt;
    const Contact& c = roster_.meet(m.who);
    if (c.died_with == 0 || (found && found->code != c.died_with)) return std::nullopt;
    found = End{c.died_with, "every worker has ended itself, the last one " + m.name + ": " +
                                 c.died_of + "; " + newest_checkpoint()};
  }
  return found;
}

// The members had notice and have written a checkpoint. Joiners go on from there; if none comes,
// the run has ended in order.
void Forming::all_have_left(const std::vector<Reporter>& reporters) {
  const std::string why = "every worker has left as announced";
  if (!roster_.waiting_joiners().empty() && restart(reporters, why)) return;
  if (roster_.now_ms() - question_->begun_ms <= config_.elastic.start_timeout_ms) return;
  end(kExitTerminated, why + ", and nobody has come for " +
                           std::to_string(config_.elastic.start_timeout_ms) + " ms; " +
                           newest_checkpoint());
}

// State is gone, and no worker can still run an epoch with it (R11): all members begin anew.
bool Forming::restart(const std::vector<Reporter>& reporters, const std::string& why) {
  if (group_.checkpoints().empty() || !group_.plan()) return false;
  if (!fenced(reporters) && !config_.bugs.r11_no_fence) return false;
  Restarted restarted;
  restarted.lost = group_.plan()->id;
  restarted.version = group_.checkpoints().back().version;
  restarted.cause = why;
  commands_.push_back(ProposeRestart{std::move(restarted)});
  return true;
}

void Forming::no_newcomer() {
  if (roster_.now_ms() - restarted_ms_ <= config_.elastic.start_timeout_ms) return;
  end(kExitStateLost, "state lost: " + group_.restart()->cause + "; no worker came within " +
                          std::to_string(config_.elastic.start_timeout_ms) + " ms to go on; " +
                          newest_checkpoint());
}

void Forming::end(std::uint8_t code, std::string reason) {
  commands_.push_back(End{code, std::move(reason)});
}

bool everybody_leaves(const Plan& plan, const Group& group) {
  bool leaves = false;
  for (const Member& m : plan.members) {
    if (m.joiner || !holds(m.role)) continue;
    const auto* worker = group.find(m.who);
    if (!worker || (!worker->leaving && !worker->dead)) return false;
    leaves = leaves || worker->leaving;
  }
  return leaves;
}

std::string Forming::newest_checkpoint(Version doubted_from) const {
  const Checkpoint* newest = nullptr;
  for (const Checkpoint& c : group_.checkpoints())
    if (!withdrawn_ || c.version <= group_.start()) newest = &c;
  if (newest == nullptr) return "there is no checkpoint to start from";
  const Version first = std::min(doubted_from, newest->doubted_from);
  std::string text = "the newest checkpoint is of step " + std::to_string(newest->version) +
                     " in " + config_.checkpoint.dir;
  if (first < newest->version) text += ", in doubt from step " + std::to_string(first) + " on";
  return text;
}

}  // namespace starling::elastic
