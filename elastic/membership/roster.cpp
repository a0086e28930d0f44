#include "elastic/membership/roster.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {

Roster::Roster(const LeaderConfig& config, const Group& group, std::uint64_t now_ms)
    : config_(config), group_(group), began_ms_(now_ms), now_ms_(now_ms) {
  for (const auto& [nonce, worker] : group_.workers())
    if (!worker.planned && !worker.leaving && !worker.dead) waiting_.insert(nonce);
  if (group_.plan()) follow(*group_.plan());
}

void Roster::look(std::uint64_t now_ms) {
  STARLING_CHECK(now_ms >= now_ms_);
  now_ms_ = now_ms;
  tolerance_.reset();
}

Contact& Roster::contact(const Incarnation& who) {
  const auto [it, fresh] = contacts_.try_emplace(who.nonce);
  if (fresh) {
    it->second.silence.hear(now_ms_, config_.elastic.lease_ms);
    it->second.data = data_at_join(who);
  }
  return it->second;
}

Digest Roster::data_at_join(const Incarnation& who) const {
  const auto* worker = group_.find(who);
  return worker ? worker->join.data : Digest{};
}

Digest Roster::data_of(const Incarnation& who) const {
  const Contact* c = find(who);
  return c ? c->data : data_at_join(who);
}

const Contact& Roster::meet(const Incarnation& who) {
  return contact(who);
}

const Contact* Roster::find(const Incarnation& who) const {
  const auto it = contacts_.find(who.nonce);
  return it == contacts_.end() ? nullptr : &it->second;
}

const Contact& Roster::at(const Incarnation& who) const {
  const Contact* c = find(who);
  STARLING_CHECK(c != nullptr);
  return *c;
}

// ---- What was heard ---------------------------------------------------------------------------

void Roster::heard(const Incarnation& who) {
  contact(who).silence.hear(now_ms_, config_.elastic.lease_ms);
}

// The cost is the same for any number of members, as of reached().
bool Roster::entered(const Incarnation& who, const EpochId& epoch) {
  Contact& c = contact(who);
  if (epoch <= c.entered) return false;
  const auto& plan = group_.plan();
  if (plan && c.entered < plan->id && epoch >= plan->id && ranks_.count(who.nonce)) {
    STARLING_CHECK(lacking_ > 0);
    --lacking_;
  }
  c.entered = epoch;
  c.headway.moves(now_ms_);
  return true;
}

bool Roster::reached(const Incarnation& who, Version version) {
  Contact& c = contact(who);
  if (c.version != kNoVersion && version < c.version) return false;  // no life goes back
  if (c.version != version) c.headway.moves(now_ms_);
  c.version = version;
  return group_.plan() && c.entered == group_.plan()->id && ranks_.count(who.nonce) != 0;
}

void Roster::reported(const Incarnation& who, const Report& report) {
  Contact& c = contact(who);
  if (!c.report || c.report->promise <= report.promise) c.report = report;
  c.micro_batch_ns = report.micro_batch_ns;
  entered(who, report.entered);
}

bool Roster::works(const Incarnation& who, const Heartbeat& beat) {
  Contact& c = contact(who);
  c.headway.says({beat.share_left, beat.load_left, beat.orders_left}, beat.progress, now_ms_);
  c.ready_for = beat.ready_for;
  c.missed = beat.missed;
  c.micro_batch_ns = beat.micro_batch_ns;
  if (beat.data != c.data) {
    c.data = beat.data;
    group_data_known_ = false;
  }
  return entered(who, beat.entered);
}

void Roster::finished(const Incarnation& who, const Finished& finished) {
  contact(who).finished = finished;
}

void Roster::noticed(const Incarnation& who, std::uint64_t notice_ms) {
  contact(who).leave_by_ms = now_ms_ + notice_ms;
}

void Roster::died(const Death& death) {
  Contact& c = contact(death.who);
  c.dead = true;
  c.died_at = death.phase;
  c.died_of = death.reason;
  c.died_with = death.exit_code;
}

// ---- What Raft committed ----------------------------------------------------------------------

void Roster::joined(const Incarnation& who) {
  STARLING_CHECK(ranks_.count(who.nonce) == 0);
  waiting_.insert(who.nonce);
  Contact& c = contact(who);
  c.welcomed_ms = now_ms_;
  if (c.data == Digest{}) c.data = data_at_join(who);
  if (group_.restart()) c.first = group_.restart()->version;
  for (const Member* m : running_members()) {
    const Contact* member = group_.restart() ? nullptr : find(m->who);
    if (member && member->version != kNoVersion) c.first = std::max(c.first, member->version);
  }
}

void Roster::restarted(Version version) {
  for (auto& [nonce, c] : contacts_) c.first = std::min(c.first, version);
}

void Roster::leaves(const Incarnation& who) {
  waiting_.erase(who.nonce);
  contact(who).leaving_ms = now_ms_;
}

void Roster::lost(const Incarnation& who) {
  waiting_.erase(who.nonce);
}

// Caches what every message needs to know about the last plan.
void Roster::follow(const Plan& plan) {
  ranks_.clear();
  ranks_before_.clear();
  for (Rank r = 0; r < plan.members.size(); ++r) {
    ranks_[plan.members[r].who.nonce] = r;
    waiting_.erase(plan.members[r].who.nonce);
  }
  if (plan.kind == PlanKind::kPrepared && group_.predecessor())
    for (Rank r = 0; r < group_.predecessor()->members.size(); ++r)
      ranks_before_[group_.predecessor()->members[r].who.nonce] = r;
  // Contacts of lives that are over are dropped: the log alone tells them so.
  std::erase_if(contacts_, [&](const auto& c) {
    return !ranks_.count(c.first) && !ranks_before_.count(c.first) && !waiting_.count(c.first);
  });
  lacking_ = 0;
  for (const auto& [nonce, rank] : ranks_) {
    const auto it = contacts_.find(nonce);
    if (it == contacts_.end() || it->second.entered < plan.id) ++lacking_;
  }
  group_data_known_ = false;
  check_members(plan);
}

// ---- What was said to it ----------------------------------------------------------------------

bool Roster::plan_is_due(const Incarnation& who, const EpochId& plan) {
  Contact& c = contact(who);
  if (c.entered >= plan || c.ready_for == plan) return false;
  if (c.plan_sent != plan) {
    c.plan_wait_ms = config_.retry_ms;
  } else {
    const bool heard = now_ms_ - c.silence.open_ms(now_ms_, /*began_ms=*/0) > c.plan_sent_ms;
    if (!heard || now_ms_ - c.plan_sent_ms < c.plan_wait_ms) return false;
    c.plan_wait_ms =
        std::min(2 * c.plan_wait_ms, std::max(config_.retry_ms, config_.elastic.lease_ms));
  }
  c.plan_sent = plan;
  c.plan_sent_ms = now_ms_;
  return true;
}

bool Roster::warning_is_due(const Incarnation& who, std::uint64_t since_ms) {
  return contact(who).headway.warn(since_ms);
}

bool Roster::other_data_is_due(const Incarnation& who) {
  return !std::exchange(contact(who).other_data_told, true);
}

// ---- Lives ------------------------------------------------------------------------------------

Member Roster::member_of(const Incarnation& who) const {
  Member member;
  member.who = who;
  if (const auto* worker = group_.find(who)) {
    member.who = worker->join.who;
    member.name = worker->join.name;
    member.host = worker->join.host;
    member.port = worker->join.port;
    member.failure_domain = worker->join.failure_domain;
    member.draining = worker->leaving;
    member.role = worker->join.role;
  }
  return member;
}

bool Roster::certainly_dead(const Incarnation& who) const {
  const auto* worker = group_.find(who);
  const Contact* c = find(who);
  return (worker && worker->dead) || (c && c->dead);
}

bool Roster::silent(const Incarnation& who) {
  const Contact* c = find(who);
  const std::uint64_t open = (c ? c->silence : Silence{}).open_ms(now_ms_, began_ms_);
  return open > config_.elastic.lease_ms && open > tolerance();
}

std::uint64_t Roster::tolerance() {
  if (tolerance_) return *tolerance_;
  std::vector<std::uint64_t> longest;
  for (const Incarnation& who : candidates()) {
    if (certainly_dead(who)) continue;
    const Contact* c = find(who);
    longest.push_back(
        (c ? c->silence : Silence{}).longest_ms(now_ms_, began_ms_, config_.elastic.lease_ms));
  }
  tolerance_ = tolerance_ms(std::move(longest), config_.elastic.lease_ms);
  return *tolerance_;
}

// ---- Epochs -----------------------------------------------------------------------------------

std::vector<const Plan*> Roster::running_plans() const {
  if (!group_.plan()) return {};
  if (group_.restart()) return {};  // a restart is committed only after it was fenced
  std::vector<const Plan*> plans{&*group_.plan()};
  if (group_.plan()->kind == PlanKind::kPrepared && group_.predecessor() && !all_entered())
    plans.push_back(&*group_.predecessor());
  return plans;
}

const Member* Roster::told_to_go() const {
  for (const Plan* plan : running_plans())
    for (const Member& member : plan->members)
      if (const Contact* c = find(member.who); c && c->told_to_go) return &member;
  return nullptr;
}

const Member* Roster::dead_member() const {
  for (const Plan* plan : running_plans())
    for (const Member& member : plan->members)
      if (certainly_dead(member.who)) return &member;
  return nullptr;
}

std::vector<const Member*> Roster::running_members() const {
  std::vector<const Member*> members;
  for (const Plan* plan : running_plans())
    for (const Member& m : plan->members)
      if (plan == &*group_.plan() || !ranks_.count(m.who.nonce)) members.push_back(&m);
  return members;
}

bool Roster::member_now(const Incarnation& who) const {
  if (!group_.plan() || group_.restart()) return false;
  return ranks_.count(who.nonce) != 0 || (!all_entered() && ranks_before_.count(who.nonce) != 0);
}

std::vector<Incarnation> Roster::waiting_joiners() const {
  std::vector<Incarnation> joiners;
  const Join* group = waiting_.empty() ? nullptr : standard();
  for (const Nonce nonce : waiting_) {
    const auto* worker = group_.find({0, nonce});
    if (!worker || worker->leaving || certainly_dead(worker->join.who)) continue;
    if (group && group->fingerprint != worker->join.fingerprint) continue;
    joiners.push_back(worker->join.who);
  }
  std::sort(joiners.begin(), joiners.end(),
            [](const auto& a, const auto& b) { return a.counter < b.counter; });
  return joiners;
}

std::vector<Incarnation> Roster::candidates() const {
  std::vector<Incarnation> all;
  for (const Member* m : running_members()) all.push_back(m->who);
  for (const Incarnation& who : waiting_joiners()) all.push_back(who);
  return all;
}

// ---- What they have in common -----------------------------------------------------------------

const Join* Roster::standard() const {
  if (group_.plan()) {
    for (const Member& m : group_.plan()->members)
      if (const auto* worker = group_.find(m.who)) return &worker->join;
    return nullptr;
  }
  std::map<Digest, std::pair<std::size_t, const Join*>> parts;
  for (const Nonce nonce : waiting_) {
    const auto* worker = group_.find({0, nonce});
    const auto it = contacts_.find(nonce);
    if (!worker || it == contacts_.end() || certainly_dead(worker->join.who)) continue;
    if (it->second.silence.open_ms(now_ms_, began_ms_) > config_.elastic.lease_ms) continue;
    auto& [count, first] = parts[worker->join.fingerprint];
    ++count;
    if (!first || worker->join.who.counter < first->who.counter) first = &worker->join;
  }
  const std::pair<std::size_t, const Join*>* most = nullptr;
  for (const auto& [fingerprint, part] : parts)
    if (!most || part.first > most->first ||
        (part.first == most->first && part.second->who.counter < most->second->who.counter))
      most = &part;
  return most ? most->second : nullptr;
}

// The count runs when a worker's data become known, not with every heartbeat.
const std::optional<Digest>& Roster::data_of_group() {
  if (!std::exchange(group_data_known_, true)) group_data_ = count_data();
  return group_data_;
}

std::optional<Digest> Roster::count_data() const {
  if (!group_.plan()) return std::nullopt;
  const auto& members = group_.plan()->members;
  std::vector<std::pair<Digest, std::size_t>> counts;  // by rank
  std::size_t known_ones = 0;
  for (const Member& m : members) {
    const Digest data = data_of(m.who);
    if (data == Digest{}) continue;
    ++known_ones;
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& count) { return count.first == data; });
    if (known == counts.end())
      counts.emplace_back(data, 1);
    else
      ++known->second;
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end()) return std::nullopt;
  const bool decided = known_ones == members.size() || 2 * most->second > members.size();
  return decided ? std::optional<Digest>(most->first) : std::nullopt;
}

// ---- Invariants -------------------------------------------------------------------------------

// These checks cost the same for any number of workers; each plan calls check_members().
void Roster::check_invariants() const {
  STARLING_CHECK(now_ms_ >= began_ms_);
  STARLING_CHECK(lacking_ <= ranks_.size());
  if (!group_.plan()) STARLING_CHECK(ranks_.empty());
  if (group_.plan()) STARLING_CHECK(ranks_.size() == group_.plan()->members.size());
  if (!ranks_before_.empty()) STARLING_CHECK(group_.plan()->kind == PlanKind::kPrepared);
}

void Roster::check_members(const Plan& plan) const {
  std::size_t lacking = 0;
  for (const Member& m : plan.members) {
    STARLING_CHECK(ranks_.count(m.who.nonce) == 1);
    STARLING_CHECK(waiting_.count(m.who.nonce) == 0);
    const Contact* c = find(m.who);
    if (!c || c->entered < plan.id) ++lacking;
  }
  STARLING_CHECK(lacking == lacking_);
}

}  // namespace starling::elastic
