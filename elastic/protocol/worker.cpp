#include "elastic/protocol/worker.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/exact_sum.h"
#include "core/base/hash.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {

using namespace worker_event;
using namespace worker_command;

Worker::Worker(WorkerConfig config) : config_(config) {
  STARLING_CHECK(config_.micro_batches > 0);
  STARLING_CHECK(config_.segments > 0);
  copies_.resize(config_.segments);
  ledger_.resize(config_.micro_batches);
}

WorkerCommands Worker::on(const WorkerEvent& event) {
  commands_.clear();
  if (!gone_) std::visit([this](const auto& e) { on_event(e); }, event);
  return std::exchange(commands_, {});
}

void Worker::on_event(const Start& e) {
  join_ = e.join;
  self_ = e.join.who;
  send(*join_);
}

void Worker::on_event(const Tick& e) {
  if (now_ms_ == 0) heard_ms_ = e.now_ms;
  now_ms_ = e.now_ms;
  if (now_ms_ - heard_ms_ > config_.coordinator_timeout_ms)
    return exit(3, "no coordinator answered for " + std::to_string(config_.coordinator_timeout_ms) +
                       " ms; check that one is running and reachable");
  if (leave_until_ms_ && now_ms_ >= *leave_until_ms_)
    return exit(143, "the notice ended before the state was handed over");
  if (now_ms_ - sent_ms_ >= config_.retry_ms) {
    sent_ms_ = now_ms_;
    if (!welcomed_ && join_) send(*join_);
    if (leave_until_ms_) send(starling::Leave{*leave_until_ms_ - now_ms_});
    if (finished_) say_finished();
    report_if_stopped();
  }
  if (welcomed_ && now_ms_ - heartbeat_ms_ >= config_.heartbeat_ms) {
    heartbeat_ms_ = now_ms_;
    send(Heartbeat{entered_, version_, ready_for()});
  }
}

void Worker::on_event(const Received& e) {
  heard_ms_ = now_ms_;
  std::visit([this](const auto& m) { on_message(m); }, e.body);
}

void Worker::on_event(const NoticeGiven& e) {
  if (!run_ && version_ == kNoVersion) return exit(0, "left before it had joined");
  leave_until_ms_ = now_ms_ + e.notice_ms;
  send(starling::Leave{*leave_until_ms_ - now_ms_});
}

// ---- What coordinators say --------------------------------------------------------------------

void Worker::on_message(const Welcome& m) {
  if (!(m.who == self_)) return;
  welcomed_ = true;
  self_ = m.who;
}

void Worker::on_message(const Refused& m) {
  exit(2, m.reason);
}

void Worker::on_message(const Freeze& m) {
  if (m.asked <= entered_) return;
  asked_ = std::max(asked_, m.asked);
  if (config_.bugs.r9_keep_sending && run_) {
    stopped_ = reporting_ = true;  // for the report; the epoch goes on
    report_if_stopped();
    stopped_ = false;
    return;
  }
  if (run_ || next_) return stop({});
  stopped_ = reporting_ = true;
  report_if_stopped();
}

void Worker::on_message(const Committed& m) {
  const Plan& plan = m.plan;
  highest_plan_ = std::max(highest_plan_, plan.id);
  const Rank self = rank_in(plan, self_);
  if (self != kNoRank) {
    // The welcome may have been lost; a committed plan with us in it says as much.
    welcomed_ = true;
    self_ = plan.members[self].who;
  }
  const bool known = plan.id <= entered_ || (run_ && run_->plan->id >= plan.id) ||
                     (next_ && next_->plan->id >= plan.id);
  if (known) return;
  if (plan.kind == PlanKind::kPrepared) {
    // R9: who has stopped enters only forced plans. A joiner without state has nothing to stop.
    const bool member_of_predecessor = run_ && !stopped_ && run_->plan->id == plan.predecessor;
    const bool joins = !run_ && version_ == kNoVersion && self != kNoRank &&
                       plan.members[self].joiner && stopping_.empty() &&
                       plan.id >= promised_;
    if (member_of_predecessor || joins) prepare(std::make_shared<const Plan>(plan), self);
    return;
  }
  if (self == kNoRank || run_ || !stopping_.empty()) return;
  if (plan.id < promised_ && !config_.bugs.r9_enter_below_promise) return;  // R9
  enter(std::make_shared<const Plan>(plan), self);
}

void Worker::on_message(const Fenced&) {
  exit(0, "left out of the group: starting a new life", /*fenced=*/true);
}

void Worker::on_message(const Released&) {
  exit(0, "left as announced");
}

void Worker::on_message(const Ended& m) {
  exit(m.exit_code, m.reason);
  std::get<Exit>(commands_.back()).end = m;
}

// ---- Epochs -----------------------------------------------------------------------------------

void Worker::prepare(std::shared_ptr<const Plan> plan, Rank self) {
  EpochRun run;
  run.plan = std::move(plan);
  run.self = self;
  const bool joins = !run_;
  if (self == kNoRank) {
    run.connected = true;  // it leaves: nothing to connect
  } else {
    emit(Connect{run.plan, self, kNoVersion, joins});
  }
  if (joins) stopped_ = reporting_ = false;
  (joins ? run_ : next_) = std::move(run);
}

void Worker::enter(std::shared_ptr<const Plan> plan, Rank self) {
  stopped_ = reporting_ = false;
  broken_.clear();
  next_.reset();
  const Plan& p = *plan;
  if (!take_over(p, self)) return;
  EpochRun run;
  run.plan = std::move(plan);
  run.self = self;
  run.first = p.base;
  run.voting = p.begin == BeginAt::kVote ? p.base - 1 : p.base;
  const bool joiner = version_ == kNoVersion && p.kind != PlanKind::kFresh;
  if (!joiner) entered_ = p.id;
  run_ = std::move(run);
  emit(Connect{run_->plan, self, run_->voting, joiner});
  if (p.kind == PlanKind::kFresh && version_ == kNoVersion) {
    run_->initialised = false;
    emit(Initialise{p.id, p.base});
  }
  if (p.begin != BeginAt::kVote) open_step(p.base);
}

// R12: what was pending stays pending exactly if the plan says that its step was committed.
bool Worker::take_over(const Plan& plan, Rank self) {
  if (version_ == kNoVersion) return true;
  if (plan.base == version_ + 1 && pending_) {
    // Finished by the vote that begins the epoch.
  } else if (plan.base == version_) {
    if (pending_) emit(DropTotals{});
    pending_ = false;
    for (MicroBatch m : done_)
      if (plan.shares.size() != config_.micro_batches || plan.shares[m] != self) {
        exit(5, "a plan deals a micro-batch to others that is done here");
        return false;
      }
  } else {
    exit(5, "a plan has base " + std::to_string(plan.base) + ", this worker is at version " +
                std::to_string(version_));
    return false;
  }
  return plan.kind == PlanKind::kFresh || keep_held(plan, self);
}

// Copies are dropped only here, at the start of an epoch (R14).
bool Worker::keep_held(const Plan& plan, Rank self) {
  const bool fresh = plan.kind == PlanKind::kFresh;
  std::vector<bool> held(config_.segments);
  for (SegmentId s = 0; s < config_.segments; ++s) {
    const auto& ranks = plan.holders[s];
    held[s] = std::find(ranks.begin(), ranks.end(), self) != ranks.end();
    if (held[s] && !copies_[s] && !fresh) {
      exit(5, "a plan says that segment " + std::to_string(s) + " is held here; there is no copy");
      return false;
    }
  }
  copies_ = std::move(held);
  emit(Hold{copies_, fresh});
  return true;
}

void Worker::on_event(const Initialised& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || run->initialised) return;
  run->initialised = true;
  begin_if_ready();
}

void Worker::on_event(const Connected& e) {
  if (next_ && next_->plan->id == e.epoch) {
    next_->connected = true;
    return;
  }
  EpochRun* run = run_of(e.epoch);
  if (!run || run->connected) return;
  run->connected = true;
  begin_if_ready();
}

void Worker::on_event(const PeerReady& e) {
  if (next_ && next_->plan->id == e.epoch) next_->ready_joiners.insert(e.from);
}

EpochId Worker::ready_for() const {
  if (!next_ || !next_->connected) return {};
  if (config_.bugs.r15_switch_early) return next_->plan->id;
  if (next_->self != kNoRank)
    for (Rank r = 0; r < next_->world(); ++r)
      if (next_->plan->members[r].joiner && !next_->ready_joiners.count(r)) return {};
  return next_->plan->id;
}

void Worker::begin_if_ready() {
  if (!run_->connected || !run_->initialised || run_->stage != EpochRun::Stage::kConnecting) return;
  const Plan& plan = *run_->plan;
  if (plan.kind == PlanKind::kPrepared) {
    emit(SayReady{plan.id});  // a joiner; the first gather frame goes on from here
    return;
  }
  run_->stage = EpochRun::Stage::kStep;
  if (plan.kind == PlanKind::kFresh) {
    version_ = plan.base;
    parameters_complete_ = true;
    keep_held(plan, run_->self);
  }
  switch (plan.begin) {
    case BeginAt::kCompute:
      move_out_and_in();
      compute_step();
      break;
    case BeginAt::kGather:
      move_out_and_in();
      start_gather();
      if (parameters_complete_) compute_step();
      break;
    case BeginAt::kVote:
      if (version_ == kNoVersion) {
        cast(Vote{run_->voting});
      } else if (version_ == plan.base) {
        Vote vote{run_->voting};
        vote.record = record_;
        cast(std::move(vote));
      } else {
        emit(ComputeNorm{plan.id, run_->voting, owned()});
      }
      break;
  }
}

// R15: everybody in e said that it is ready for z, so everybody that passes this vote goes to z.
bool Worker::switch_epochs() {
  emit(worker_command::Leave{run_->plan->id});
  if (next_->self == kNoRank) {
    // Keeps its copies and answers a Freeze until it is released.
    run_.reset();
    next_.reset();
    stopped_ = true;
    return false;
  }
  run_ = std::exchange(next_, std::nullopt);
  entered_ = run_->plan->id;
  run_->first = version_;
  run_->stage = EpochRun::Stage::kStep;
  return keep_held(*run_->plan, run_->self);
}

// ---- A step -----------------------------------------------------------------------------------

void Worker::open_step(Version version) {
  EpochRun& run = *run_;
  run.voting = version;
  run.reduce_started = run.reduced = false;
  run.norm.reset();
  run.votes.clear();
  ledger_.assign(config_.micro_batches, std::nullopt);
  for (const auto& [m, row] : own_rows_) ledger_[m] = row;
  emit(SetVersion{run.plan->id, version});
  emit(OpenStep{run.plan->id, version, holders_in(run, version)});
}

// R14: the source sends the label-v state at the step's start; the target is a holder from here on.
void Worker::move_out_and_in() {
  EpochRun& run = *run_;
  run.moves_due.clear();
  for (const Move& move : run.plan->moves) {
    if (run.first + move.step_offset != run.voting) continue;
    const SegmentRange s = move.segments;
    if (move.source == run.self) emit(SendMove{run.plan->id, run.voting, s, move.target, record_});
    if (move.target == run.self)
      for (SegmentId i = s.first; i < s.first + s.count; ++i)
        if (!run.moved_in.count(i)) run.moves_due.insert(i);
  }
}

void Worker::on_event(const MovedIn& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != run->voting) return;
  for (SegmentId s = e.segments.first; s < e.segments.first + e.segments.count; ++s) {
    if (!moves_to(*run, s)) continue;
    // A source whose connections all stand may send before ours do.
    run->moves_due.erase(s);
    run->moved_in.insert(s);
    copies_[s] = true;
  }
  vote_if_ready();
}

// Whether the plan moves this segment here in the step in flight.
bool Worker::moves_to(const EpochRun& run, SegmentId s) const {
  return std::any_of(run.plan->moves.begin(), run.plan->moves.end(), [&](const Move& move) {
    return move.target == run.self && run.first + move.step_offset == run.voting &&
           s >= move.segments.first && s - move.segments.first < move.segments.count;
  });
}

std::set<MicroBatch> Worker::share_in(const EpochRun& run, Version version) const {
  const Plan& plan = *run.plan;
  const bool dealt = plan.kind != PlanKind::kPrepared && version == plan.base;
  const auto shares = dealt ? plan.shares : equal_shares(plan.members, config_.micro_batches);
  std::set<MicroBatch> mine;
  for (MicroBatch m = 0; m < shares.size(); ++m)
    if (shares[m] == run.self) mine.insert(m);
  return mine;
}

void Worker::compute_step() {
  EpochRun& run = *run_;
  STARLING_CHECK(parameters_complete_);
  if (version_ >= config_.steps) {
    if (run.stage == EpochRun::Stage::kFinished) return;
    run.stage = EpochRun::Stage::kFinished;
    emit(ComputeDigest{run.plan->id, version_, owned()});
    return;
  }
  share_ = share_in(run, version_);
  std::vector<MicroBatch> todo;
  for (MicroBatch m : share_)
    if (!done_.count(m)) todo.push_back(m);
  emit(Compute{version_, std::move(todo)});
  share_done_if_so();
}

void Worker::on_event(const MicroBatchDone& e) {
  const MicroBatch m = e.row.micro_batch;
  if (e.version != version_ || !share_.count(m)) return;
  done_.insert(m);
  LedgerRow row = e.row;
  row.worker = self_.counter;
  own_rows_[m] = row;
  if (!run_ || run_->voting != version_) return;
  ledger_[m] = row;
  if (run_->stage == EpochRun::Stage::kStep) share_done_if_so();
}

void Worker::share_done_if_so() {
  EpochRun& run = *run_;
  if (run.reduce_started || !parameters_complete_ || run.voting != version_) return;
  if (!std::includes(done_.begin(), done_.end(), share_.begin(), share_.end())) return;
  run.reduce_started = true;
  std::vector<LedgerRow> rows;
  for (MicroBatch m : share_) rows.push_back(own_rows_.at(m));
  if (!rows.empty()) emit(SendLedger{run.plan->id, run.voting, std::move(rows)});
  emit(StartReduce{run.plan->id, run.voting});
  if (config_.bugs.r4_vote_without_totals) on_event(Reduced{run.plan->id, run.voting});
}

void Worker::on_event(const Reduced& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != run->voting || run->reduced) return;
  run->reduced = true;
  emit(ComputeNorm{e.epoch, e.version, owned()});
}

void Worker::on_event(const NormReady& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != run->voting || run->norm) return;
  run->norm = e.words;
  if (!pending_) return vote_if_ready();
  // The vote that begins this epoch, at a member that had voted for this step before.
  Vote vote{run->voting};
  vote.partial_norm = *run->norm;
  cast(std::move(vote));
}

void Worker::on_event(const LedgerArrived& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != run->voting) return;
  for (const LedgerRow& row : e.rows) {
    if (row.micro_batch >= ledger_.size() || ledger_[row.micro_batch])
      return stop({run->plan->members[e.from].who});  // a row twice, or one that does not exist
    ledger_[row.micro_batch] = row;
  }
  vote_if_ready();
}

bool Worker::ledger_complete() const {
  return std::all_of(ledger_.begin(), ledger_.end(),
                     [](const auto& row) { return row.has_value(); });
}

// R4
void Worker::vote_if_ready() {
  EpochRun& run = *run_;
  if (run.stage != EpochRun::Stage::kStep || run.voting != version_ || pending_) return;
  if (!run.reduced || !run.norm || !ledger_complete()) return;
  if (!run.moves_due.empty() && !config_.bugs.r14_vote_without_move) return;
  Vote vote{run.voting};
  vote.partial_norm = *run.norm;
  vote.ready_for = ready_for();
  pending_ = true;
  if (config_.bugs.r6_apply_at_vote) {
    run.votes[run.self] = vote;
    emit(Apply{make_record()});
  }
  if (config_.bugs.r7_clear_at_vote) {
    emit(ClearAccumulators{});
    done_.clear();
    own_rows_.clear();
  }
  cast(std::move(vote));
}

void Worker::cast(Vote vote) {
  EpochRun& run = *run_;
  run.stage = EpochRun::Stage::kVoted;
  emit(SendVote{run.plan->id, vote});
  run.votes[run.self] = std::move(vote);
  pass_if_complete();
}

void Worker::on_event(const VoteArrived& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run) return;
  // `from` is the connection's rank. Any other step's vote, or a second one, breaks R1.
  if (e.vote.version != run->voting || run->votes.count(e.from))
    return stop({run->plan->members[e.from].who});
  run->votes[e.from] = e.vote;
  pass_if_complete();
}

// R5
void Worker::pass_if_complete() {
  EpochRun& run = *run_;
  if (run.stage != EpochRun::Stage::kVoted) return;
  const std::size_t lacking = run.world() - run.votes.size();
  if (lacking > (config_.bugs.r5_pass_without_all && run.world() > 1 ? 1u : 0u)) return;
  const StepRecord* known = nullptr;
  for (const auto& [rank, vote] : run.votes) {
    if (vote.record.version != run.voting) continue;
    if (known && !(*known == vote.record)) return exit(5, "two members know different records");
    known = &vote.record;
  }
  if (version_ == run.voting) return pass(known ? *known : make_record());
  // Passed here before this epoch, or a joiner: nothing to apply.
  run.stage = EpochRun::Stage::kStep;
  open_step(run.plan->base);
  move_out_and_in();
  start_gather();
  if (parameters_complete_) compute_step();
}

StepRecord Worker::make_record() const {
  StepRecord record;
  record.version = run_->voting;
  ExactSum loss, square;
  ByteWriter rows;
  for (const auto& row : ledger_) {
    if (!row) continue;
    if (row->finite && std::isfinite(row->loss))
      loss.add(row->loss);
    else
      record.skipped = true;
    record.tokens += row->tokens;
    rows.put(row->micro_batch);
    rows.put(row->loss);
    rows.put(row->tokens);
    rows.put(static_cast<std::uint8_t>(row->finite));
  }
  const Bytes bytes = std::move(rows).take();
  record.ledger_hash = hash64(bytes);
  record.loss = loss.value() / config_.micro_batches;
  for (const auto& [rank, vote] : run_->votes)
    if (auto part = ExactSum::from_words(vote.partial_norm)) square.add(part.value());
  record.norm = std::sqrt(square.value());
  return record;
}

// The commit: version v+1. R6, R7.
void Worker::pass(const StepRecord& record) {
  EpochRun& run = *run_;
  const EpochId z = next_ ? next_->plan->id : EpochId{};
  bool all_ready = bool(z);
  for (const auto& [rank, vote] : run.votes) all_ready = all_ready && vote.ready_for == z;
  if (config_.bugs.r15_switch_early && ready_for() == z && z) all_ready = true;

  if (!config_.bugs.r6_apply_at_vote) emit(Apply{record});
  emit(ClearAccumulators{});
  done_.clear();
  share_.clear();
  own_rows_.clear();
  version_ = run.voting + 1;
  pending_ = false;
  parameters_complete_ = false;
  learn(record, /*with_ledger=*/true);
  if (all_ready) {
    if (!switch_epochs()) return;  // left out
  }
  run_->stage = EpochRun::Stage::kStep;
  open_step(version_);
  move_out_and_in();
  start_gather();
}

void Worker::learn(const StepRecord& record, bool with_ledger) {
  record_ = record;
  Progress progress{run_->plan->id, record, run_->world(), {}, 0};
  if (with_ledger)
    for (const auto& row : ledger_)
      if (row) progress.ledger.push_back(*row);
  send(std::move(progress));
}

void Worker::start_gather() {
  const Version version = run_->voting;
  emit(StartGather{run_->plan->id, version, record_, holders_in(*run_, version),
                   parameters_complete_});
}

void Worker::on_event(const GatherBegun& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || version_ != kNoVersion) return;
  const Plan& plan = *run->plan;
  if (plan.kind != PlanKind::kPrepared && e.version != plan.base) return;
  version_ = e.version;
  entered_ = plan.id;
  parameters_complete_ = false;
  if (e.record.version + 1 == e.version) learn(e.record, /*with_ledger=*/false);
  if (plan.kind != PlanKind::kPrepared) return;
  run->first = e.version;
  run->stage = EpochRun::Stage::kStep;
  open_step(e.version);
  move_out_and_in();
  start_gather();
}

void Worker::on_event(const Gathered& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != version_ || run->voting != version_ || parameters_complete_) return;
  parameters_complete_ = true;
  compute_step();
}

void Worker::on_event(const DigestReady& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || run->stage != EpochRun::Stage::kFinished || finished_) return;
  finished_ = e;
  say_finished();
}

// With the last step's record: a leader that came after it needs the loss for the job's end.
void Worker::say_finished() {
  if (record_.version != kNoVersion)
    send(Progress{finished_->epoch, record_, run_->world(), {}, 0});
  send(Finished{finished_->epoch, finished_->version, finished_->part});
}

// ---- Stopping ---------------------------------------------------------------------------------

void Worker::on_event(const Broken& e) {
  const EpochRun* run = run_of(e.epoch);
  if (!run && next_ && next_->plan->id == e.epoch) run = &*next_;
  if (!run || e.peer >= run->world()) return;
  stop({run->plan->members[e.peer].who});
}

void Worker::stop(std::vector<Incarnation> broken) {
  for (auto* run : {&run_, &next_}) {
    if (!*run || (*run)->self == kNoRank) continue;
    emit(Stop{(*run)->plan->id});
    stopping_.insert((*run)->plan->id);
  }
  run_.reset();
  next_.reset();
  finished_.reset();
  stopped_ = reporting_ = true;
  broken_ = std::move(broken);
  if (config_.bugs.r8_forget_work && !pending_) {
    done_.clear();
    share_.clear();
    own_rows_.clear();
    emit(Compute{version_, {}});
    emit(ClearAccumulators{});
  }
  report_if_stopped();
}

void Worker::on_event(const Stopped& e) {
  stopping_.erase(e.epoch);
  report_if_stopped();
}

// R9: a promise, made after nothing of the epoch can be sent or received any more.
void Worker::report_if_stopped() {
  if (!stopped_ || !reporting_ || !stopping_.empty()) return;
  promised_ = std::max(promised_, asked_ > highest_plan_ ? asked_ : highest_plan_.next());
  Report report;
  report.promise = promised_;
  report.entered = entered_;
  report.version = version_;
  report.pending = pending_;
  report.parameters_complete = parameters_complete_;
  report.share.assign(share_.begin(), share_.end());
  report.done.assign(done_.begin(), done_.end());
  report.copies = copies_;
  report.broken = broken_;
  send(std::move(report));
}

void Worker::exit(int code, const std::string& reason, bool fenced) {
  gone_ = true;
  for (auto* run : {&run_, &next_})
    if (*run && (*run)->self != kNoRank) emit(Stop{(*run)->plan->id});
  emit(Exit{code, fenced, reason, std::nullopt});
}

// ---- Who holds what ---------------------------------------------------------------------------

Holders Worker::holders_in(const EpochRun& run, Version version) const {
  // The plan owns its table; a copy is made only while moves add to it.
  if (run.plan->moves.empty() || run.first == kNoVersion)
    return Holders(run.plan, &run.plan->holders);
  auto holders = std::make_shared<std::vector<std::vector<Rank>>>(run.plan->holders);
  for (const Move& move : run.plan->moves) {
    if (run.first + move.step_offset > version) continue;
    for (SegmentId s = move.segments.first; s < move.segments.first + move.segments.count; ++s)
      (*holders)[s].push_back(move.target);
  }
  return holders;
}

std::vector<SegmentId> Worker::owned() const {
  std::vector<SegmentId> segments;
  for (SegmentId s = 0; s < config_.segments; ++s)
    if (run_->plan->holders[s].front() == run_->self) segments.push_back(s);
  return segments;
}

EpochRun* Worker::run_of(const EpochId& epoch) {
  return run_ && run_->plan->id == epoch ? &*run_ : nullptr;
}

}  // namespace starling::elastic
