// Decides which workers compute the group's bits, from the group's data files (docs/design.md,
// section 5, Fingerprint and Data).

#include <algorithm>

#include "elastic/membership/fingerprint.h"
#include "elastic/membership/leader.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {
namespace {

// Whose data a worker's are compared with.
std::string text_of(const std::optional<Version>& checkpoint) {
  return checkpoint ? "the checkpoint of step " + std::to_string(*checkpoint) : "the group";
}

}  // namespace

// Why a worker with this fingerprint cannot be a member; none: it can.
std::optional<std::string> Leader::other_bits(const Join& m) const {
  const Join* group = roster_.standard();
  if (!group || group->fingerprint == m.fingerprint) return std::nullopt;
  return "this worker computes other bits than the group (" + group->name +
         "): " + fingerprint_differences(m.fingerprint_text, group->fingerprint_text);
}

// Why a worker with this fingerprint cannot go on from the checkpoints; none: it can. The newest
// one is used. A script may have been changed since: the command that resumes warns of it.
std::optional<std::string> Leader::other_checkpoint(const Join& m) const {
  const auto& all = group_.checkpoints();
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (it->fingerprint == m.fingerprint ||
        other_script_alone(m.fingerprint_text, it->fingerprint_text))
      continue;
    return "this worker computes other bits than the checkpoint of step " +
           std::to_string(it->version) + ": " +
           fingerprint_differences(m.fingerprint_text, it->fingerprint_text) +
           (other_script(m.fingerprint_text, it->fingerprint_text)
                ? "; put the text back as it was, or begin anew in another folder of checkpoints"
                : "");
  }
  return std::nullopt;
}

// Warns once each time that a worker begins to wait for data most of the time.
void Leader::tell_data_wait(const Incarnation& from, const std::string& name,
                            std::uint8_t percent) {
  if (percent == 0) {
    waits_for_data_.erase(from.nonce);
    return;
  }
  if (!group_.find(from) || !waits_for_data_.insert(from.nonce).second) return;
  warn(name + " waits for data " + std::to_string(percent) +
       " % of its time: they are read more slowly than they are used");
}

// The job's data are those of the newest checkpoint that knows them, also when the whole group has
// others: a run that goes on from it would come to another result. Later checkpoints say the same.
Leader::JobData Leader::data_of_job() {
  const auto& all = group_.checkpoints();
  const auto known = std::find_if(all.rbegin(), all.rend(),
                                  [](const Checkpoint& c) { return c.data != Digest{}; });
  const auto& group = roster_.data_of_group();
  if (known == all.rend() || group == known->data) return {group.value_or(Digest{}), {}};
  return {known->data, std::min(known->version, group_.start())};
}

std::optional<Version> Leader::unread() const {
  std::optional<Version> first;
  if (!group_.plan()) return first;
  for (const Member& m : group_.plan()->members)
    if (const auto from = unread_by(m.who)) first = std::min(first.value_or(*from), *from);
  return first;
}

std::optional<Version> Leader::unread_by(const Incarnation& who) const {
  if (roster_.data_of(who) != Digest{}) return std::nullopt;
  return first_of(who);
}

// The first step of this run that this worker may have computed in.
Version Leader::first_of(const Incarnation& who) const {
  const Contact* c = roster_.find(who);
  return std::max(c ? c->first : Version{0}, group_.start());
}

// Whether a worker's data are known to be the job's: without it, nothing more can show it.
bool Leader::reads_data_of_job(const Incarnation& who) {
  const Digest here = roster_.data_of(who), data = data_of_job().digest;
  return here != Digest{} && here == data;
}

// The workers that are no members any more once `next` is in force, may have computed, and are not
// known to have had the job's data. What members of an epoch compute counts only if another member
// has entered that epoch, too. After a restart nothing of theirs is left but the checkpoint.
std::vector<Member> Leader::gone_unread(const Plan& next) {
  std::vector<Member> gone;
  if (!group_.plan() || group_.restart()) return gone;
  std::vector<const Plan*> plans{&*group_.plan()};
  if (group_.plan()->kind == PlanKind::kPrepared && group_.predecessor())
    plans.push_back(&*group_.predecessor());
  for (const Plan* plan : plans) {
    const bool entered = next.kind == PlanKind::kPrepared ||
                         std::ranges::find(next.entered, plan->id) != next.entered.end();
    if (!entered) continue;
    for (const Member& m : plan->members) {
      const auto same = [&](const Member& other) { return other.who == m.who; };
      if (rank_in(next, m.who) || std::ranges::any_of(gone, same) || reads_data_of_job(m.who))
        continue;
      gone.push_back(m);
    }
  }
  return gone;
}

// Plan::doubted_from of a plan that these are gone in.
Version Leader::doubted_after(const std::vector<Member>& gone) const {
  if (!group_.plan() || group_.restart()) return kNoVersion;
  Version first = std::min(group_.plan()->doubted_from, tainted_from_.value_or(kNoVersion));
  for (const Member& m : gone) first = std::min(first, first_of(m.who));
  return first;
}

// Doubts of an earlier run stay: its workers are gone, or must be taken for it.
std::optional<Version> Leader::doubted_before() const {
  const auto& all = group_.checkpoints();
  if (all.empty() || all.back().doubted_from >= group_.start()) return std::nullopt;
  return all.back().doubted_from;
}

// Checkpoint::doubted_from.
Version Leader::doubted_from() const {
  if (const auto before = doubted_before()) return *before;
  const Version gone = group_.plan() ? group_.plan()->doubted_from : kNoVersion;
  return std::min({gone, tainted_from_.value_or(kNoVersion), unread().value_or(kNoVersion)});
}

// Called when a run begins. What a script imports is known once it has computed a gradient; of its
// own text and arguments the command has warned.
void Leader::tell_other_modules() {
  const Join* group = roster_.standard();
  if (!group || group_.checkpoints().empty()) return;
  const Checkpoint& from = group_.checkpoints().back();
  if (!other_modules_alone(group->fingerprint_text, from.fingerprint_text)) return;
  warn(
      "since the checkpoint of step " + std::to_string(from.version) +
      " the script has changed (a module that it imports is another one, or has another text); the "
      "steps from there on are those of the script as it is now");
}

// Called when a run begins, and before its end, as the leader may have changed in between.
void Leader::tell_doubts_before(bool to_people) {
  const auto first = doubted_before();
  if (!first) return;
  const std::string name = "the checkpoint of step " + std::to_string(group_.start());
  const std::string what =
      "steps before it are in doubt: a worker had not read all its data, had others, or computed "
      "wrongly, or a micro-batch had other bits when it was computed again";
  tell(event::Tainted{0, name, *first, group_.start(), what});
  if (!to_people) return;
  std::string cure;
  for (const Checkpoint& c : group_.checkpoints())
    if (c.doubted_from == kNoVersion)
      cure = "; that of step " + std::to_string(c.version) +
             " is not, and a run goes on from there once the newer ones are moved away";
  warn(name + ": " + what + "; from step " + std::to_string(*first) + " on" + cure);
}

// Called before the end is proposed. If one worker alone was ever a member, its data are not compared.
void Leader::tell_doubts(const Plan& plan) {
  tell_doubts_before(/*to_people=*/false);
  if (plan.doubted_from != kNoVersion && !tainted_from_)
    tell(event::Tainted{0, "a worker that is gone", plan.doubted_from, Version(config_.steps),
                        "had not read all its data, had others, or computed wrongly, or a "
                        "micro-batch had other bits "
                        "when it was computed again"});
  if (plan.members.size() == 1 && plan.predecessor == EpochId{} && group_.start() == 0) return;
  for (const Member& m : plan.members) {
    const auto first = unread_by(m.who);
    if (!first) continue;
    const std::string what =
        "has not read all its data before the job was done, so they were compared in part";
    tell(event::Tainted{m.who.counter, m.name, *first, Version(config_.steps), what});
    warn(m.name + " " + what);
  }
}

// Taints workers that a plan leaves out before their data were known to be the job's.
void Leader::tell_gone_unread(const std::vector<Member>& gone) {
  for (const Member& m : gone) {
    const Contact* c = roster_.find(m.who);
    if (c && c->other_data_told) continue;  // tainted already
    const std::string what =
        "is gone before its data were known to be those of the others, so they were compared in "
        "part";
    taint(m.who, m.name, what);
    warn(m.name + " " + what);
  }
}

// Why a worker with these data cannot be a member; none: it can, as far as is known.
std::optional<std::string> Leader::other_data(const Digest& here) {
  const auto [data, checkpoint] = data_of_job();
  if (here == Digest{} || data == Digest{} || here == data) return std::nullopt;
  return "the data here are others than those of " + text_of(checkpoint) + ": their digest is " +
         to_string(here) + ", and not " + to_string(data);
}

// P1: the fingerprint covers only a sample of large files, so all data are compared here.
void Leader::refuse_other_data(const Incarnation& who, const std::string& name) {
  const Digest here = roster_.data_of(who);
  auto why = other_data(here);
  if (!why) return;
  const auto [data, checkpoint] = data_of_job();
  const std::string whose = text_of(checkpoint);
  send(who, Refused{*std::move(why)});
  roster_.told_to_go(who);
  if (!roster_.other_data_is_due(who)) return;
  const std::string what = "reads other data than " + whose + ", digest " + to_string(here) +
                           " and not " + to_string(data);
  if (roster_.waits(who)) return warn(name + " " + what + ", and is told to go");  // not begun yet
  taint(who, name, what);
  const bool all_differ = checkpoint && roster_.data_of_group().value_or(data) != data;
  if (all_differ) withdraw_checkpoints();
  warn(name + " " + what +
       ", and is told to go; what it has computed, if anything, is in the result" +
       (all_differ || group_.checkpoints().empty() ? "" : " and in the checkpoints that followed"));
}

// The whole group reads other data than those that its run goes on from, so no member can go on.
void Leader::withdraw_checkpoints() {
  forming_.checkpoints_withdrawn();
  const auto& all = group_.checkpoints();
  if (!all.empty() && all.back().version > group_.start())
    warn("checkpoints above step " + std::to_string(group_.start()) +
         " are removed: they were computed from other data");
  take(drafts_.withdraw_above(group_.start()));
}

void Leader::taint(const Incarnation& who, const std::string& name, const std::string& what) {
  const Contact* c = roster_.find(who);
  event::Tainted tainted{who.counter, name, first_of(who), {}, what};
  if (c && c->version != kNoVersion) tainted.last = c->version;
  doubt_from(tainted.first);
  tell(std::move(tainted));
}

// The result is in doubt from this step on, also in the checkpoints that were complete before this was
// known: a run that goes on from one has other workers, which find nothing.
void Leader::doubt_from(Version first) {
  if (tainted_from_ && *tainted_from_ <= first) return;
  tainted_from_ = first;
  doubt_checkpoints(/*first_heard=*/true);
}

// A leader before this one may have ordered it of a keeper that was gone before it was done.
void Leader::doubt_checkpoints(bool first_heard) {
  if (!tainted_from_) return;
  if (!config_.checkpoint.on()) return;
  bool any = first_heard;  // the first manifest may be on its way
  for (Checkpoint c : group_.checkpoints()) {
    if (c.version <= *tainted_from_ || c.doubted_from <= *tainted_from_) continue;
    c.doubted_from = *tainted_from_;
    propose(Published{std::move(c)});  // in the place of the one that the log has
    any = true;
  }
  if (any) emit(leader_command::Tidy{0, {}, kNoVersion, *tainted_from_});
}

// A revoked worker cannot send a death nor a report, so the leader does not wait for one. Otherwise
// the others would name the worker that stops first because of it.
void Leader::on_event(const leader_event::Revoked& e) {
  if (group_.end() || !group_.plan() || forming_.active() || proposals_.deciding()) return;
  std::vector<Incarnation> who;
  std::string cause;
  for (const Member& m : group_.plan()->members) {
    if (std::find(e.names.begin(), e.names.end(), m.name) == e.names.end()) continue;
    who.push_back(m.who);
    cause += (cause.empty() ? "" : ", ") + m.name;
  }
  if (who.empty()) return;
  review_due_ = true;
  take(forming_.leave_out(who, now_ms_, cause + " revoked", /*at_any_price=*/false));
}

}  // namespace starling::elastic
