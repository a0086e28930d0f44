// The oracle's model of the group: the committed log, the chain of plans, the end.

#include <algorithm>
#include <sstream>

#include "core/observe/event_line.h"
#include "core/wire/codec.h"
#include "tests/sim/oracle.h"
#include "tests/sim/world.h"

namespace starling::sim {

const WorkerProcess* Oracle::find(Nonce nonce) const {
  for (const auto& p : world_.workers())
    if (p->nonce() == nonce) return p.get();
  return nullptr;
}

void Oracle::after_coordinator(const CoordinatorProcess& c) {
  const elastic::Raft& raft = c.machine().raft();
  if (raft.role() == elastic::RaftRole::kLeader) {
    const auto [at, first] = leaders_.emplace(raft.term(), c.index());
    if (at->second != c.index()) violated("two leaders in term " + std::to_string(raft.term()));
    if (first && leaders_.size() > 1) world_.count("new leader");
  }
  // What has gone into a snapshot in this very event is on the disk.
  const std::uint64_t base = raft.snapshot().index;
  const auto entry = [&](std::uint64_t index) -> const RaftEntry& {
    return index > base ? raft.log()[index - base - 1] : c.disk_log[index - 1];
  };
  while (committed_.size() < raft.commit_index()) {
    committed_.push_back(entry(committed_.size() + 1));
    take_entry(committed_.back());
  }
  const std::uint64_t last = raft.commit_index();
  if (last > base && !(entry(last) == committed_[last - 1]))
    violated("two coordinators have committed different entries at index " + std::to_string(last));
}

void Oracle::take_entry(const RaftEntry& raft_entry) {
  if (raft_entry.data.empty()) return;
  const auto entry = decode_entry(raft_entry.data);
  if (!entry) return violated("a committed entry cannot be decoded: " + entry.error().text());
  if (const auto* plan = std::get_if<Plan>(&entry.value())) take_plan(*plan);
  if (const auto* end = std::get_if<JobEnded>(&entry.value())) take_end(*end);
  if (const auto* published = std::get_if<Published>(&entry.value())) take_checkpoint(*published);
  if (const auto* damaged = std::get_if<Damaged>(&entry.value()))
    checkpoints_.erase(damaged->version);
  if (const auto* restarted = std::get_if<Restarted>(&entry.value())) take_restart(*restarted);
  if (const auto* lost = std::get_if<Lost>(&entry.value()); lost && lost->certain) {
    const WorkerProcess* p = find(lost->who.nonce);
    if (!p || p->alive()) violated("T2: a living worker was declared certainly dead");
  }
}

// ---- Checkpoints ------------------------------------------------------------------------------

void Oracle::take_checkpoint(const Published& published) {
  if (end_) return;
  const Version version = published.checkpoint.version;
  world_.count("checkpoint");
  if (version == 0 || last(version) || published.checkpoint.digest != reference_.digest(version))
    violated("P1: the checkpoint of step " + std::to_string(version) + " has another digest");
  checkpoints_[version] = published.checkpoint.digest;
  std::erase_if(checkpoints_, [&](const auto& c) { return c.first < published.oldest; });
}

bool Oracle::given_up(const EpochId& epoch) const {
  return !restarts_.empty() && bool(epoch) && epoch <= restarts_.back();
}

// P3, P5: only when some state is gone, and from the newest that can be read; R11: when no epoch
// that may still run is left without a member that has stopped.
void Oracle::take_restart(const Restarted& restarted) {
  if (end_ || restart_ || chain_.empty() || restarted.lost != chain_.back() ||
      checkpoints_.empty() || checkpoints_.rbegin()->first != restarted.version)
    return world_.count("void restart");
  world_.trace("oracle",
               "restart from step " + std::to_string(restarted.version) + ": " + restarted.cause);
  world_.count("restart from a checkpoint");
  if (!state_lost()) violated("P3: a restart, but every segment has a current copy");
  const auto stopped = [&](const Plan& epoch) {
    bool all_dead = true;
    for (const Member& member : epoch.members) {
      const auto life = lives_.find(member.who.nonce);
      if (life != lives_.end() && life->second.promised > restarted.lost) return true;
      const WorkerProcess* p = find(member.who.nonce);
      all_dead = all_dead && p && !p->alive();
    }
    return all_dead;
  };
  const Plan& last = valid_.at(chain_.back());
  const bool before_may_run =
      last.kind == PlanKind::kPrepared && !entered_by_all(last) &&
      std::none_of(last.members.begin(), last.members.end(), [&](auto& m) {
        return lives_[m.who.nonce].entered >= last.id && lives_[m.who.nonce].promised > last.id;
      });
  if (!stopped(last) || (before_may_run && !stopped(valid_.at(last.predecessor))))
    violated("R11: a restart though epoch " + to_string(last.id) + " may still run");
  for (auto& [nonce, life] : lives_) life.left_out = life.left_out || life.member;
  for (const EpochId& id : chain_)
    for (const Member& member : valid_.at(id).members) lives_[member.who.nonce].left_out = true;
  passed_.clear();
  restarts_.push_back(restarted.lost);
  restart_ = reached_ = restarted.version;
}

// ---- Plans ------------------------------------------------------------------------------------

void Oracle::take_plan(const Plan& plan) {
  const EpochId last = chain_.empty() ? EpochId{} : chain_.back();
  // R10; a plan that is void has no effect, so nothing about it is wrong.
  if (plan.predecessor != last || end_) return world_.count("void plan");
  if (restart_ && (plan.kind != PlanKind::kFresh || plan.base != *restart_))
    violated("P5: epoch " + to_string(plan.id) + " follows a restart and is not fresh");
  restart_.reset();
  if (plan.kind == PlanKind::kFresh && plan.base > 0) world_.count("fresh plan from a checkpoint");
  if (plan.id <= last) violated("T10: epoch ids do not rise: " + to_string(plan.id));
  world_.trace("oracle", "plan " + to_string(plan.id) + " committed, base " +
                             std::to_string(plan.base) + ", " + plan.cause);
  if (plan.kind == PlanKind::kForced) {
    check_reports(plan);
    check_fence(plan);
  }
  for (const auto& [epoch, reached] : passed_)
    if (plan.kind != PlanKind::kPrepared && plan.base < reached)
      violated("T4: version " + std::to_string(reached) + " was reached in epoch " +
               to_string(epoch) + ", but epoch " + to_string(plan.id) + " has base " +
               std::to_string(plan.base));
  take_rates(plan);
  count_plan(plan);
  follow_members(plan);
  valid_[plan.id] = plan;
  chain_.push_back(plan.id);
  for (const auto& ranks : plan.holders)
    for (const Rank r : ranks)
      if (!holds(plan.members[r].role))
        violated("R18: epoch " + to_string(plan.id) +
                 " gives state to a worker that computes alone");
  if (plan.kind != PlanKind::kFresh) check_holders(plan);
}

// R19. What follows has to be what an undisturbed run does that changes its rate at the same steps.
void Oracle::take_rates(const Plan& plan) {
  const std::vector<RateChange> before =
      chain_.empty() ? std::vector<RateChange>{} : valid_.at(chain_.back()).rates;
  const bool kept = plan.rates.size() >= before.size() &&
                    std::equal(before.begin(), before.end(), plan.rates.begin());
  if (!kept) violated("R19: epoch " + to_string(plan.id) + " forgets a change of the rate");
  if (plan.rates.size() == before.size()) return;
  if (plan.kind == PlanKind::kPrepared || plan.rates.back().from < plan.base)
    violated("R19: epoch " + to_string(plan.id) + " changes the rate of steps before it");
  if (const auto told = told_.lower_bound(plan.rates.back().from); told != told_.end())
    violated("R19: epoch " + to_string(plan.id) + " changes the rate of step " +
             std::to_string(*told) + ", which people were told of");
  world_.count(restarts_.empty() ? "another rate" : "another rate after a restart");
  reference_ = Reference(numbers_, plan.rates);
}

bool Oracle::entered_by_all(const Plan& plan) const {
  return std::all_of(plan.members.begin(), plan.members.end(), [&](const Member& m) {
    const auto life = lives_.find(m.who.nonce);
    return life != lives_.end() && life->second.entered >= plan.id;
  });
}

// P4: who is left out does not come back with its old state. Whom a prepared plan leaves out is so
// for good only when a later plan leaves it out too: before, the leader may not know that all
// entered it.
void Oracle::follow_members(const Plan& plan) {
  for (const Member& member : plan.members) lives_[member.who.nonce].member = true;
  for (auto& [nonce, life] : lives_) {
    if (rank_of(plan, nonce) == kNoRank) {
      if (!life.member) continue;
      if (plan.kind == PlanKind::kPrepared && !life.without)
        life.without = plan.id;
      else
        life.left_out = true;
    } else if (life.left_out) {
      violated("P4: a worker that was left out is back with its old state in epoch " +
               to_string(plan.id));
    } else {
      life.without = {};
    }
  }
}

void Oracle::count_plan(const Plan& plan) {
  if (plan.kind == PlanKind::kFresh) world_.count("fresh plan");
  if (plan.kind == PlanKind::kPrepared) world_.count("prepared plan");
  if (!plan.moves.empty()) world_.count("plan with moves");
  if (plan.kind != PlanKind::kForced) return;
  static const char* const begins[] = {"", "begin at vote", "begin at gather", "begin at compute"};
  world_.count(begins[static_cast<int>(plan.begin)]);
  if (plan.base == numbers_.steps()) world_.count("epoch at the last version");
  for (const Member& member : plan.members)
    if (member.joiner) world_.count("joiner in a forced plan");
  if (!chain_.empty() && valid_.at(chain_.back()).kind == PlanKind::kPrepared)
    world_.count("forced plan after a prepared one");
}

// T2: whoever goes on has promised exactly this plan.
void Oracle::check_reports(const Plan& plan) {
  for (const Member& member : plan.members)
    if (!member.joiner && !lives_[member.who.nonce].promises.count(plan.id))
      violated("R11: epoch " + to_string(plan.id) + " counts on " + to_string(member.who) +
               ", whose report does not promise it");
}

// R11: each epoch that may still run has a member that promised, or is certainly dead; or it never begins.
void Oracle::check_fence(const Plan& plan) {
  if (chain_.empty()) return;
  const Plan& last = valid_.at(chain_.back());
  if (!fenced(last, plan) && !never_begins(last, plan))
    violated("R11: epoch " + to_string(plan.id) + " is formed though no member of " +
             to_string(last.id) + " promised it");
  if (last.kind != PlanKind::kPrepared) return;
  if (entered_by_all(last)) return;
  // Who has entered the last one shows that all of the one before had voted to go there (R15).
  for (const Member& member : last.members)
    if (lives_[member.who.nonce].entered >= last.id &&
        lives_[member.who.nonce].promises.count(plan.id))
      return;
  world_.count("two epochs to be fenced");
  if (chain_.size() >= 2 && !fenced(valid_.at(chain_[chain_.size() - 2]), plan))
    violated("R11: epoch " + to_string(plan.id) + " is formed though no member of " +
             to_string(last.predecessor) + ", which may still run, promised it");
}

bool Oracle::fenced(const Plan& epoch, const Plan& by) const {
  bool all_dead = true;
  for (const Member& member : epoch.members) {
    const auto life = lives_.find(member.who.nonce);
    if (life != lives_.end() && life->second.promises.count(by.id)) return true;
    const WorkerProcess* p = find(member.who.nonce);
    all_dead = all_dead && p && !p->alive();
  }
  return all_dead;
}

// Whether a member of the epoch before has promised to vote there no more, and has sent no vote for the change to this
// one (R15) but where another's vote for the same step was not for it. check_entry() sees that nobody enters it
// nevertheless.
bool Oracle::never_begins(const Plan& epoch, const Plan& by) const {
  const auto before = valid_.find(epoch.predecessor);
  if (epoch.kind != PlanKind::kPrepared || before == valid_.end()) return false;
  const auto& members = before->second.members;
  return std::any_of(members.begin(), members.end(), [&](const Member& m) {
    const auto life = lives_.find(m.who.nonce);
    if (life == lives_.end() || !life->second.promises.count(by.id)) return false;
    return std::none_of(ballots_.begin(), ballots_.end(), [&](const auto& entry) {
      const auto& votes = entry.second.votes;
      return entry.first.first == epoch.predecessor && votes.count(m.who.nonce) != 0 &&
             std::all_of(votes.begin(), votes.end(),
                         [&](const auto& vote) { return vote.second.ready_for == epoch.id; });
    });
  });
}

bool Oracle::current_copy(const WorkerProcess& p, SegmentId s, Version version) const {
  const Store& store = p.store();
  // What the machine does not know of, it cannot report.
  if (p.machine().version() == kNoVersion || !p.machine().copies()[s] || !store.held[s])
    return false;
  if (store.states[s].label == version) return true;
  return version > 0 && store.states[s].label == version - 1 && p.machine().pending() &&
         store.accepted_version == version - 1 && store.accepted[s];
}

// R13. Memory is looked at as it is, that of the dead as it was when they died.
void Oracle::check_holders(const Plan& plan) {
  for (SegmentId s = 0; s < plan.holders.size(); ++s)
    for (const Rank r : plan.holders[s]) {
      const WorkerProcess* p = find(plan.members[r].who.nonce);
      const bool prepared = plan.kind == PlanKind::kPrepared;
      const Version version = prepared && p ? p->machine().version() : plan.base;
      const bool building = p && p->machine().run() &&
                            p->machine().run()->stage == elastic::EpochRun::Stage::kConnecting;
      // It stopped while it was building; it enters no prepared plan, and reports that it has none.
      const auto before = valid_.find(plan.predecessor);
      const bool never_built = prepared && p && !p->machine().run() && before != valid_.end() &&
                               before->second.kind == PlanKind::kFresh &&
                               p->machine().entered() == plan.predecessor;
      if (version == kNoVersion || building || never_built)
        continue;  // a fresh state, not there yet
      if (p && p->alive() && !current_copy(*p, s, version))
        violated("R13: epoch " + to_string(plan.id) + " makes " + to_string(p->who()) +
                 " a holder of segment " + std::to_string(s) + ", of which it has no current copy");
    }
}

// ---- The end ----------------------------------------------------------------------------------

// The start version can be built again if a living member of the last fresh plan can tell that step
// 0 was not committed: it has no state, or has not voted. One that was left out is not asked, and
// one that hangs does not answer.
bool Oracle::start_is_lost() const {
  auto fresh = chain_.rbegin();
  while (fresh != chain_.rend() && valid_.at(*fresh).kind != PlanKind::kFresh) ++fresh;
  if (fresh == chain_.rend()) return false;
  const auto& members = valid_.at(*fresh).members;
  return std::none_of(members.begin(), members.end(), [&](const Member& m) {
    const WorkerProcess* p = find(m.who.nonce);
    const auto life = lives_.find(m.who.nonce);
    const bool left_out = life != lives_.end() && life->second.left_out;
    return p && p->alive() && !silent(*p) && !left_out && !p->machine().pending();
  });
}

bool Oracle::silent(const WorkerProcess& p) const {
  const Micros time = world_.settings().elastic.state_timeout_ms * kMs;
  const Micros on_its_way =
      world_.settings().elastic.lease_ms * kMs;  // the leader's word, when it ends
  return world_.unheard_for(p.place(), time) || p.hung_for(on_its_way) >= time || apart(p);
}

// Whether another member of the last plan has been cut off from it for as long as leaders wait.
bool Oracle::apart(const WorkerProcess& p) const {
  if (chain_.empty()) return false;
  const Micros time = world_.settings().elastic.state_timeout_ms * kMs;
  const auto& members = valid_.at(chain_.back()).members;
  return std::any_of(members.begin(), members.end(), [&](const Member& m) {
    const WorkerProcess* other = find(m.who.nonce);
    return other && other->alive() && world_.cut_off_for(p.place(), other->place(), time);
  });
}

// P3: it may end only when some segment has no current copy at a living member of the last plan. A
// leaver's copy helps while the leader does not know that everybody went on without it; one that
// nobody could hear, or another member could not, or that hung, for as long as leaders wait for
// state does not.
bool Oracle::state_lost() const {
  if (reached_ == 0 && !chain_.empty() && !start_is_lost()) return false;
  if (!chain_.empty()) {
    const auto& members = valid_.at(chain_.back()).members;
    const bool alive = std::any_of(members.begin(), members.end(), [&](const Member& m) {
      const WorkerProcess* p = find(m.who.nonce);
      return p && p->alive() && !silent(*p);
    });
    if (!alive) return true;
  }
  for (SegmentId s = 0; s < numbers_.layout().segments(); ++s) {
    bool copy = false;
    for (const auto& p : world_.workers()) {
      const auto life = lives_.find(p->nonce());
      const bool out =
          life != lives_.end() &&
          (life->second.left_out || (life->second.without && valid_.count(life->second.without) &&
                                     entered_by_all(valid_.at(life->second.without))));
      copy = copy || (p->alive() && !silent(*p) && !out && current_copy(*p, s, reached_));
    }
    if (!copy) return true;
  }
  return false;
}

void Oracle::take_end(const JobEnded& end) {
  if (end_) return;
  end_ = end;
  world_.trace("oracle", "end committed: " + std::to_string(end.exit_code) + " " + end.reason);
  if (end.exit_code == 4) {
    world_.count("state lost");
    if (!state_lost())
      violated("P3, P5: state lost? Every segment has a current copy; " + end.reason);
    const bool cut_off = std::any_of(world_.workers().begin(), world_.workers().end(),
                                     [&](const auto& p) { return p->alive() && silent(*p); });
    if (kills_ == 0 && !cut_off && world_.settings().damage == 0)
      violated("P5: state lost though nobody was killed");
    if (!checkpoints_.empty()) world_.count("state lost, and a checkpoint stays");
    return;
  }
  if (end.exit_code == 3 && chain_.empty() && world_.alive_workers() < world_.settings().workers)
    return world_.count("too few workers at the start");
  if (end.exit_code == 128 + kEndSignal) return check_ended(end);
  const bool stops = world_.settings().stop_on_nonfinite && reached_ > 0 &&
                     reference_.record(reached_ - 1).skipped;
  if (stops && end.exit_code == 1) return world_.count("stopped by a skipped step");
  if (stops || end.exit_code != 0)
    return violated("the job ends with code " + std::to_string(end.exit_code) + ": " + end.reason);
  const Version steps(numbers_.steps());
  if (end.version != steps) violated("P3: the job ends at version " + std::to_string(end.version));
  if (end.digest != reference_.digest(steps)) violated("P1: the final digest differs");
  if (end.parameters != reference_.parameters(steps))
    violated("P1: the final parameters' digest differs");
  if (steps > 0 && !same_bits(end.loss, reference_.record(steps - 1).loss))
    violated("P1: the final loss differs");
  if (world_.settings().evaluates && !last_evaluated_)
    violated("the job ends, and no observer was told of the last version's evaluation");
  check_told();
}

// In order: as it was told to, or since nobody is left who could go on, all had notice of it or were told by an admin, and
// a checkpoint is there.
void Oracle::check_ended(const JobEnded& end) {
  if (end.reason == "told to end" && world_.counted("told to end") > 0)
    return world_.count("run ended in order");
  world_.count("every worker has left");
  if (checkpoints_.empty()) violated("P5: every worker has left, and there is no checkpoint");
  if (!state_lost()) violated("P3: an end, but every segment has a current copy; " + end.reason);
  for (const Member& m : valid_.at(chain_.back()).members) {
    const WorkerProcess* p = find(m.who.nonce);
    if (p && p->alive() && !p->notice_end && !p->admin_asked && !m.joiner && holds(m.role))
      violated("P3: an end as all have left, but " + name(*p) + " lives and has no notice");
  }
}

// At the good end whoever takes part in it has told all that it knows; who has left may do so later.
// A step that only dead workers knew may have died with them; the same of a worker that was left
// out, lives on, and was never heard again.
void Oracle::check_told() {
  for (const auto& [v, lives] : said_) {
    if (told_.count(v)) continue;
    bool died = true;
    for (const WorkerProcess* p : lives) {
      if (!p->alive()) continue;
      died = false;
      const auto life = lives_.find(p->nonce());
      const bool cut_off = life != lives_.end() && life->second.left_out;
      if (p->machine().run() && !cut_off)
        return violated("P2: " + name(*p) + " passed step " + std::to_string(v) +
                        ", and no observer was told of it");
    }
    world_.count(died ? "a step that died with its members" : "the end before a step was told");
  }
}

// It goes because it was told to, and has the time to tell.
void Oracle::check_last_words(const WorkerProcess& p) {
  for (const auto& [v, lives] : said_)
    if (!told_.count(v) && std::ranges::find(lives, &p) != lives.end())
      violated("P2: " + name(p) + " goes, and no observer was told of step " + std::to_string(v));
}

// Of the parameters that a step begins with, or of those of the end.
void Oracle::check_evaluation(const event::Evaluated& e) {
  std::vector<double> values{e.loss};
  values.insert(values.end(), e.metrics.begin(), e.metrics.end());
  const bool of_step =
      e.version < numbers_.steps() && values == reference_.record(e.version).evaluation;
  const bool of_end =
      last(e.version) && values == Numbers::evaluation(reference_.params_hash(e.version));
  if (!of_step && !of_end)
    violated("P1: the evaluation of version " + std::to_string(e.version) +
             " differs from the undisturbed run's");
  last_evaluated_ = last_evaluated_ || of_end;
}

void Oracle::told(const Event& event) {
  if (const auto* e = std::get_if<event::StepPassed>(&event)) check_record(e->record, "an event");
  if (const auto* e = std::get_if<event::LedgerPassed>(&event)) told_.insert(e->version);
  if (const auto* e = std::get_if<event::Evaluated>(&event)) check_evaluation(*e);
  if (std::holds_alternative<event::Warning>(event)) world_.count("warning");
  if (const auto* e = std::get_if<event::Exposed>(&event); e && e->segments > 0)
    world_.count("exposure");
  if (world_.tracing()) world_.trace("event", event_text(event));
}

std::string Oracle::status() const {
  std::ostringstream out;
  out << "last plan " << (chain_.empty() ? "none" : to_string(chain_.back())) << ", version "
      << reached_ << (state_lost() ? ", state lost" : "");
  for (const auto& p : world_.workers()) {
    if (!p->alive()) continue;
    const elastic::Worker& m = p->machine();
    out << "; " << to_string(p->who()) << " in " << to_string(m.entered()) << " at ";
    if (m.version() == kNoVersion)
      out << "no version";
    else
      out << m.version();
    out << (m.pending() ? " pending" : "") << (m.run() ? " running" : " stopped");
    if (m.run())
      out << " " << to_string(m.run()->plan->id) << " stage " << static_cast<int>(m.run()->stage);
  }
  for (const auto& c : world_.coordinators())
    out << "; coordinator " << c->index() << (c->leads() ? " leads" : "");
  return out.str();
}

}  // namespace starling::sim
