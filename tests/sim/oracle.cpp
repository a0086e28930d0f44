#include "tests/sim/oracle.h"

#include <algorithm>

#include "tests/sim/world.h"

namespace starling::sim {

using elastic::worker_command::Exit;
using elastic::worker_command::OpenStep;

Oracle::Oracle(World& world, const Numbers& numbers)
    : world_(world), numbers_(numbers), reference_(numbers) {
  const Settings& s = world.settings();
  if (s.checkpoint.every == 0) return;
  for (Version v(s.checkpoint.every); v <= s.resume_at; v += s.checkpoint.every)
    checkpoints_[reached_ = v] = reference_.digest(v);
}

void Oracle::violated(const std::string& what) {
  world_.trace("oracle", "VIOLATED: " + what);
  if (violation_.empty()) violation_ = what;
}

std::string Oracle::name(const WorkerProcess& p) const {
  return "worker " + to_string(p.who());
}

Rank Oracle::rank_of(const Plan& plan, Nonce nonce) {
  for (Rank r = 0; r < plan.members.size(); ++r)
    if (plan.members[r].who.nonce == nonce) return r;
  return kNoRank;
}

// The oracle's own reading of R14: a move's target is a holder from its step on.
bool Oracle::held_in(const Plan& plan, Rank rank, SegmentId segment, Version version) const {
  const auto& ranks = plan.holders[segment];
  if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return true;
  const auto first = first_.find(plan.id);
  for (const Move& move : plan.moves)
    if (move.target == rank && move.segments.contains(segment) && first != first_.end() &&
        move.step(first->second) <= version)
      return true;
  return false;
}

// ---- Passing and entering ---------------------------------------------------------------------

void Oracle::after_worker(const WorkerProcess& p) {
  Life& life = lives_[p.nonce()];
  const Version now = p.machine().version();
  if (now != life.version) check_pass(p, life);
  if (p.machine().entered() != life.entered) check_entry(p, life);
}

void Oracle::check_pass(const WorkerProcess& p, Life& life) {
  const Version before = std::exchange(life.version, p.machine().version());
  const Version now = life.version;
  const bool counts = !given_up(life.entered) && !given_up(p.machine().entered());
  if (before == kNoVersion) {
    if (counts) reached_ = std::max(reached_, now);
    return;
  }
  if (now != before + 1)
    return violated("P3: " + name(p) + " goes from version " + std::to_string(before) + " to " +
                    std::to_string(now));
  life.passed = before;
  if (counts) reached_ = std::max(reached_, now);
  const EpochId epoch = life.entered;
  const auto plan = valid_.find(epoch);
  if (plan == valid_.end())
    return violated("R16: " + name(p) + " passed a vote in an epoch that is not committed");
  const Ballot& ballot = ballots_[{epoch, before}];
  for (const Member& member : plan->second.members)
    if (member.who.nonce != p.nonce() && !ballot.votes.count(member.who.nonce))
      violated("R5: " + name(p) + " passed step " + std::to_string(before) + " of epoch " +
               to_string(epoch) + " without the vote of " + to_string(member.who));
  if (!counts) return;  // with the bits of all others, but to no end
  passed_[epoch] = std::max(passed_[epoch], now);
  check_committed(now, epoch);
}

// T4, T1: whoever reached a version in an epoch, the next forced plan's base contains it.
void Oracle::check_committed(Version reached, const EpochId& epoch) {
  for (const EpochId& id : chain_) {
    const Plan& later = valid_.at(id);
    if (id <= epoch || later.kind == PlanKind::kPrepared) continue;
    if (later.base < reached)
      violated("T4: version " + std::to_string(reached) + " was reached in epoch " +
               to_string(epoch) + ", but epoch " + to_string(id) + " has base " +
               std::to_string(later.base));
    return;
  }
}

void Oracle::check_entry(const WorkerProcess& p, Life& life) {
  const EpochId before = std::exchange(life.entered, p.machine().entered());
  const EpochId now = life.entered;
  if (now < before) violated("T10: " + name(p) + " goes back to epoch " + to_string(now));
  const auto at = valid_.find(now);
  if (at == valid_.end())
    return violated("R16, R10: " + name(p) + " entered epoch " + to_string(now) +
                    ", which is not committed, or void");
  const Plan& plan = at->second;
  if (now < life.promised)
    violated("R9: " + name(p) + " entered epoch " + to_string(now) + " below its promise " +
             to_string(life.promised));
  if (rank_of(plan, p.nonce()) == kNoRank)
    return violated(name(p) + " entered an epoch of which it is no member");
  if (plan.kind != PlanKind::kPrepared) {
    first_[now] = plan.base;
    return;
  }
  first_.emplace(now, life.version);
  if (plan.members[rank_of(plan, p.nonce())].joiner) return world_.count("joiner entered");
  world_.count("prepared switch");
  const Ballot& ballot = ballots_[{before, life.version - 1}];
  for (const Member& member : valid_.at(before).members) {
    if (member.who.nonce == p.nonce()) continue;  // its own vote is among the commands to come
    const auto vote = ballot.votes.find(member.who.nonce);
    if (vote == ballot.votes.end() || vote->second.ready_for != now)
      violated("R15: " + name(p) + " switched to epoch " + to_string(now) + " before " +
               to_string(member.who) + " was ready");
  }
}

void Oracle::after_commands(const WorkerProcess& p) {
  const Version version = p.machine().version();
  if (version == kNoVersion) return;
  for (SegmentId s = 0; s < numbers_.layout().segments(); ++s)
    if (p.machine().copies()[s] && (!p.store().held[s] || p.store().states[s].label != version))
      return violated("R13: " + name(p) + " counts a copy of segment " + std::to_string(s) +
                      " that is not at version " + std::to_string(version));
}

// ---- What a worker says -----------------------------------------------------------------------

void Oracle::says(const WorkerProcess& p, const Message& body) {
  if (const auto* report = std::get_if<Report>(&body)) check_report(p, *report);
  if (const auto* progress = std::get_if<Progress>(&body)) check_progress(p, *progress);
  if (const auto* beat = std::get_if<Heartbeat>(&body); beat && !beat->differences.empty())
    violated(name(p) + " computes another contribution than others do");
  if (const auto* finished = std::get_if<Finished>(&body))
    if (!last(finished->version))
      violated(name(p) + " finished at version " + std::to_string(finished->version));
}

void Oracle::check_report(const WorkerProcess& p, const Report& report) {
  Life& life = lives_[p.nonce()];
  life.promised = std::max(life.promised, report.promise);
  life.promises.insert(report.promise);
  life.silent = p.machine().entered();
  if (report.version == kNoVersion) return;
  const Store& store = p.store();
  for (SegmentId s = 0; s < report.copies.size(); ++s)
    if (report.copies[s] &&
        (store.states[s].label != report.version ||
         (report.pending && (store.accepted_version != report.version || !store.accepted[s]))))
      violated("R13: " + name(p) + " reports a copy of segment " + std::to_string(s) +
               " that it does not have");
  if (report.parameters_complete && !p.flipped() &&
      Numbers::hash_of(store.params) != reference_.params_hash(report.version))
    violated("T9: " + name(p) + " reports complete parameters, but they are not those of version " +
             std::to_string(report.version));
  // A micro-batch in progress is in the share and is finished later (R8).
  if (!report.done.empty() &&
      (store.adding != report.version ||
       store.lanes[0].micro_batches != report.done.size() * numbers_.layout().uses(0)))
    violated("R8: " + name(p) + " reports work that is not in its accumulators");
}

void Oracle::check_record(const StepRecord& record, const char* where) {
  if (record.version >= numbers_.steps()) return violated("a record of a step that does not exist");
  const StepRecord& expected = reference_.record(record.version);
  const bool same = same_bits(record.loss, expected.loss) &&
                    same_bits(record.norm, expected.norm) && record.tokens == expected.tokens &&
                    record.skipped == expected.skipped && record.metrics == expected.metrics &&
                    record.scale == expected.scale && record.evaluation == expected.evaluation &&
                    record.digest == digest_due(record.version);
  const auto [hash, first] = ledger_hashes_.emplace(record.version, record.ledger_hash);
  if (!same || hash->second != record.ledger_hash)
    violated("P1: the record of step " + std::to_string(record.version) + " in " + where +
             " differs from the undisturbed run's");
}

bool Oracle::last(Version version) const {
  if (version >= numbers_.steps()) return true;
  return world_.settings().stop_on_nonfinite && version > 0 &&
         reference_.record(version - 1).skipped;
}

// Every second version, or as the settings say: the same in every history.
Digest Oracle::digest_due(Version v) const {
  const std::uint64_t every = world_.settings().elastic.digest_every;
  return every != 0 && v % every == 0 ? reference_.digest(v) : Digest{};
}

void Oracle::check_progress(const WorkerProcess& p, const Progress& progress) {
  check_record(progress.record, "a progress message");
  const Version v = progress.record.version;
  if (progress.ledger.empty() || v >= numbers_.steps()) return;
  said_[v].push_back(&p);
  std::set<MicroBatch> seen;
  for (const LedgerRow& row : progress.ledger) {
    if (row.micro_batch >= numbers_.micro_batches() || !seen.insert(row.micro_batch).second)
      return violated("P2: the ledger of step " + std::to_string(v) + " has micro-batch " +
                      std::to_string(row.micro_batch) + " twice, or it does not exist");
    const LedgerRow& expected = reference_.row(v, row.micro_batch);
    if (!same_bits(row.loss, expected.loss) || row.tokens != expected.tokens ||
        row.finite != expected.finite || row.metrics != expected.metrics ||
        row.contribution != expected.contribution)
      violated("P1: the ledger of step " + std::to_string(v) + " differs");
    bool by_it = false;
    for (const Nonce nonce : computers_[{v, row.micro_batch}])
      by_it = by_it || find(nonce)->who().counter == row.worker;
    if (!by_it) violated("P2: a ledger row names a worker that did not compute it");
  }
  if (seen.size() != numbers_.micro_batches())
    violated("P2: the ledger of step " + std::to_string(v) + " is not complete");
}

void Oracle::sends(const WorkerProcess& p, const EpochId& epoch) {
  const Life& life = lives_[p.nonce()];
  if (life.silent && epoch <= life.silent)
    violated("R9: " + name(p) + " sends in epoch " + to_string(epoch) + " after its report");
}

void Oracle::takes(const WorkerProcess& p, const EpochId& sent_in, const EpochId& taken_in) {
  if (sent_in != taken_in)
    violated("R1: " + name(p) + " takes a frame of epoch " + to_string(sent_in) + " in epoch " +
             to_string(taken_in));
}

void Oracle::connects(const WorkerProcess&, const Plan& plan) {
  if (plan.kind == PlanKind::kPrepared) world_.count("connecting beside a running epoch");
}

// ---- The step ---------------------------------------------------------------------------------

void Oracle::computes(const WorkerProcess& p, Version version, MicroBatch, std::uint64_t params) {
  if (params != reference_.params_hash(version) && !p.flipped())
    violated("T9: " + name(p) + " computes step " + std::to_string(version) +
             " with other parameters");
}

void Oracle::begins(const WorkerProcess& p, Version version, MicroBatch m) {
  if (last(version)) return violated("a step beyond the last is computed");
  if (lives_[p.nonce()].left_out) return;  // it does not know yet; nobody will ask for its work
  auto& begun = begun_[{version, m}];
  const auto lost = std::count_if(begun.begin(), begun.end(), [this](Nonce nonce) {
    return !find(nonce)->alive() || lives_[nonce].left_out;
  });
  if (static_cast<std::size_t>(lost) < begun.size())
    violated("R8: micro-batch " + std::to_string(m) + " of step " + std::to_string(version) +
             " is computed again by " + name(p) + ": of " + std::to_string(begun.size()) +
             " that had begun it, " + std::to_string(lost) + " died or were left out");
  if (!begun.empty()) {
    ++begun_again_;
    world_.count("micro-batch of a lost worker computed again");
  }
  begun.push_back(p.nonce());
}

std::uint64_t Oracle::begun_by(const WorkerProcess& p, Version version) const {
  std::uint64_t count = 0;
  for (const auto& [of, nonces] : begun_)
    if (of.first == version) count += std::count(nonces.begin(), nonces.end(), p.nonce());
  return count;
}

void Oracle::computed(const WorkerProcess& p, Version version, MicroBatch m, std::uint64_t params) {
  if (Numbers::hash_of(p.store().params) != params && !p.flipped())
    violated("T9: the parameters of " + name(p) + " changed under a micro-batch");
  if (p.store().adding != kNoVersion && p.store().adding != version)
    violated("P2: " + name(p) + " adds work of two steps");
  computers_[{version, m}].insert(p.nonce());
}

void Oracle::computed_again(const WorkerProcess& p, std::uint64_t params) {
  if (Numbers::hash_of(p.store().params) != params && !p.flipped())
    violated("T9: the parameters of " + name(p) + " changed under a second contribution");
}

// Who computes what is decided by each member for itself.
void Oracle::opens(const WorkerProcess& p, const OpenStep& step) {
  const EpochId& epoch = step.epoch;
  const Version version = step.version;
  const auto& run = p.machine().run();
  if (!run || !(run->plan->id == epoch) || run->voting != version) return;
  check_way(p, step);
  const auto [at, first] = shares_.emplace(std::pair{epoch, version}, run->shares);
  if (!first && at->second != run->shares)
    return violated("shares: " + name(p) + " shares step " + std::to_string(version) +
                    " of epoch " + to_string(epoch) + " otherwise than another member");
  if (!first || version >= numbers_.steps()) return;
  const auto& members = run->plan->members;
  for (const Rank r : run->shares)
    if (!starling::computes(members[r].role))
      return violated("R18: a worker that holds alone has a share");
  if (std::ranges::count(members, WorkerRole::kHold, &Member::role) > 0)
    world_.count("holds alone");
  if (std::ranges::count(members, WorkerRole::kCompute, &Member::role) > 0)
    world_.count("computes alone");
  std::vector<std::uint32_t> counts(members.size());
  for (const Rank r : run->shares) ++counts[r];
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  if (run->shares.size() != numbers_.micro_batches())
    violated("shares: a step does not have M micro-batches");
  const bool first_step = first_.count(epoch) && first_.at(epoch) == version;
  if (*most <= *least + 1) return;
  if (first_step && run->plan->kind == PlanKind::kPrepared)
    world_.count("switch to unequal shares");
  if (!first_step) world_.count("unequal shares by votes");
  if (*least == 0 && counts.size() <= run->shares.size())
    world_.count("member left without a share");
}

// The way of a step, from what its members' votes for the step before have said.
void Oracle::check_way(const WorkerProcess& p, const OpenStep& step) {
  const Plan& plan = *p.machine().run()->plan;
  const std::string what =
      name(p) + ", step " + std::to_string(step.version) + " of epoch " + to_string(plan.id);
  if (plan.members.size() == 1) {
    if (step.attempt == 0) violated("R17: alone, and not over the device transport: " + what);
    return;
  }
  const bool prepared = plan.kind == PlanKind::kPrepared;
  std::set<std::uint32_t> named;
  if (step.version == (prepared ? first_.at(plan.id) : plan.base)) {
    named.insert(0);
  } else {
    const auto& votes = ballots_[{plan.id, step.version - 1}].votes;
    for (const Member& member : plan.members) {
      const auto vote = votes.find(member.who.nonce);
      named.insert(vote == votes.end() ? 0 : vote->second.ready_attempt);
    }
  }
  const std::uint32_t way = named.size() == 1 ? *named.begin() : 0;
  if (named.size() > 1) world_.count("transport ready at some members");
  if (way != 0) world_.count("device step");
  if (step.attempt != way)
    violated("R17: " + what + " goes by transport " + std::to_string(step.attempt) +
             ", by the votes it is " + std::to_string(way));
}

void Oracle::votes(const WorkerProcess& p, const EpochId& epoch, const Vote& vote) {
  ballots_[{epoch, vote.version}].votes.emplace(p.nonce(), vote);
  const auto link = p.links().find(epoch);
  if (vote.ready_attempt != 0 &&
      (link == p.links().end() || link->second.ready_attempt != vote.ready_attempt))
    violated("R17: " + name(p) + " names a transport that it does not have");
  if (const auto before = ballots_.find({epoch, vote.version - 1}); before != ballots_.end()) {
    const auto said = before->second.votes.find(p.nonce());
    if (said != before->second.votes.end() && said->second.micro_batch_ns && !vote.micro_batch_ns)
      world_.count("idle worker measured again");
  }
  const auto plan = valid_.find(epoch);
  if (plan == valid_.end()) return;  // seen when it enters
  const bool without_state = p.machine().version() == kNoVersion;
  const bool knows = vote.record.version == vote.version;
  if (knows) check_record(vote.record, "a vote");
  if (without_state || knows) return;
  const Rank self = rank_of(plan->second, p.nonce());
  const Store& store = p.store();
  for (SegmentId s = 0; s < numbers_.layout().segments(); ++s) {
    if (!held_in(plan->second, self, s, vote.version)) continue;
    if (store.accepted_version != vote.version || !store.accepted[s])
      violated("R4: " + name(p) + " votes for step " + std::to_string(vote.version) +
               " without the total of segment " + std::to_string(s));
    if (!store.held[s] || store.states[s].label != vote.version)
      violated("R4, R14: " + name(p) + " votes for step " + std::to_string(vote.version) +
               " without the state of segment " + std::to_string(s));
  }
}

void Oracle::applies(const WorkerProcess& p, const StepRecord& record) {
  if (lives_[p.nonce()].passed != record.version)
    violated("R6: " + name(p) + " applies step " + std::to_string(record.version) +
             " before it passed the vote");
  check_record(record, "an apply");
  if (record.skipped) world_.count("skipped step");
  const Store& store = p.store();
  for (SegmentId s = 0; s < store.held.size(); ++s)
    if (p.machine().copies()[s] && (store.states[s].label != record.version ||
                                    store.accepted_version != record.version || !store.accepted[s]))
      violated("R4, R6: " + name(p) + " applies segment " + std::to_string(s) +
               " without its total or state");
}

void Oracle::applied(const WorkerProcess& p, Version version) {
  if (version > numbers_.steps()) return;
  for (SegmentId s = 0; s < p.store().held.size(); ++s)
    if (p.store().held[s] && p.store().states[s].label == version &&
        !(p.store().states[s] == reference_.state(version, s)))
      violated("P1: segment " + std::to_string(s) + " at " + name(p) + " differs at version " +
               std::to_string(version));
}

void Oracle::clears(const WorkerProcess& p) {
  if (p.store().adding == kNoVersion) return;
  const auto& passed = lives_[p.nonce()].passed;
  if (!passed || *passed < p.store().adding)
    violated("R7: " + name(p) + " clears the accumulators of a step that has not passed");
}

void Oracle::gathers(const WorkerProcess& p, Version version, const StepRecord& record,
                     const std::vector<std::vector<Rank>>& holders) {
  if (record.version != kNoVersion) check_record(record, "a gather");
  const Plan& plan = *p.machine().run()->plan;
  const Rank self = rank_of(plan, p.nonce());
  for (SegmentId s = 0; s < holders.size(); ++s)
    if (std::ranges::find(holders[s], self) != holders[s].end() &&
        p.store().states[s].label != version)
      violated("R13: " + name(p) + " publishes segment " + std::to_string(s) +
               ", whose state is not at version " + std::to_string(version));
}

void Oracle::refused(const WorkerProcess& p, const std::string& text) {
  violated("R3: " + name(p) + " refuses what arrived: " + text);
}

// Only where the world has made it fail, or a member has ended its part of the epoch.
void Oracle::transport_failed(const WorkerProcess& p, const Plan& plan, const std::string& text) {
  world_.count("device step broken");
  if (text.find("as large as") != std::string::npos)
    return violated("R17: two members disagree on a round: " + text);
  for (const char* fault :
       {"round failed", "round of garbage", "round that never ends",
        "round without a member who is gone", "transport lost", "worker paused", "partition",
        "pair of workers cut", "connection stalled", "connection broken"})
    if (world_.counted(fault) > 0) return;
  for (const Member& member : plan.members) {
    const WorkerProcess* other = find(member.who.nonce);
    if (!other || !other->alive()) return;
    const auto link = other->links().find(plan.id);
    if (link == other->links().end() || link->second.stopping) return;
  }
  violated("R17: the device transport of " + name(p) + " fails for no reason: " + text);
}

bool Oracle::plant_lost_contribution(const Frame& frame) {
  if (!world_.settings().plant_lost_contribution || planted_) return false;
  if (frame.header.kind != FrameKind::kContribution || frame.header.version < 1) return false;
  const bool empty = std::all_of(frame.payload->begin(), frame.payload->end(),
                                 [](std::uint8_t byte) { return byte == 0; });
  if (empty) return false;  // of a worker without a share: nothing to lose
  planted_ = true;
  return true;
}

// ---- The end of a life ------------------------------------------------------------------------

void Oracle::killed(const WorkerProcess& p) {
  ++kills_;
  const Life& life = lives_[p.nonce()];
  if (life.version == kNoVersion) return;
  bool alone = life.version == reached_;
  for (const auto& other : world_.workers())
    if (other.get() != &p && other->alive() && other->machine().version() != kNoVersion)
      alone = alone && other->machine().version() < reached_;
  if (alone) world_.count("the only one that had passed was killed");
}

void Oracle::exited(const WorkerProcess& p, const Exit& exit) {
  if (exit.fenced) return world_.count("fenced worker starts a new life");
  const bool notice_over = p.notice_end && world_.now() >= *p.notice_end;
  if ((exit.end || exit.code == 0) && !notice_over) check_last_words(p);
  if (exit.end) {
    if (!end_) return violated(name(p) + " was told of an end that is not committed");
    if (exit.end->exit_code != end_->exit_code || exit.end->digest != end_->digest)
      violated(name(p) + " was told of another end");
    if (exit.trained && end_->exit_code != 0)
      violated("P5: " + name(p) + " saves a model of a job that has failed");
    if (exit.trained && !p.flipped() &&
        Numbers::hash_of(p.store().params) != reference_.params_hash(Version(numbers_.steps())))
      violated("P5: what " + name(p) + " saves is not the trained model");
    if (end_->exit_code == 0)
      world_.count(exit.trained ? "model saved" : "told of the end without the model");
    return;
  }
  if (exit.code == 0) {
    if (lives_[p.nonce()].version == kNoVersion) killed(p);  // may be in a plan it has not seen
    return world_.count("leaver released");
  }
  if (exit.code == 143) {
    killed(p);
    return world_.count("notice ended");
  }
  // After three lives in a row to which others could not connect.
  if (exit.code == 2 && exit.reason.find("cannot connect to") != std::string::npos &&
      std::count_if(world_.workers().begin(), world_.workers().end(), [&](const auto& life) {
        return life->slot() == p.slot() && world_.bulk().unreached(life->nonce());
      }) >= 3)
    return world_.count("refused, as nobody could connect to it");
  violated(name(p) + " exits with code " + std::to_string(exit.code) + ": " + exit.reason);
}

}  // namespace starling::sim
