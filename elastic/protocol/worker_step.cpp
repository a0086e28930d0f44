#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/exact_sum.h"
#include "core/base/exit.h"
#include "core/wire/limits.h"
#include "elastic/protocol/worker.h"

// Runs one step of the loop, from its opening to the vote that passes it: R3 to R7, R14.

namespace starling::elastic {

using namespace worker_event;
using namespace worker_command;

namespace {
constexpr std::uint32_t kAlone = 1;  // the way of a world of one, which needs no transport
}

void Worker::open_step(Version version) {
  EpochRun& run = *run_;
  run.shares = shares_of(version);    // by the votes of the step before
  run.attempt = attempt_of(version);  // likewise
  run.voting = version;
  run.share_ended = false;
  run.norm.reset();
  run.votes.clear();
  run.rows_of.clear();
  work_.open();
  // R14: the target is a holder from here on.
  run.moves_due.clear();
  for (const Move& move : run.plan->moves) {
    if (move.step(run.first) != version || move.target != run.self) continue;
    for (const SegmentId s : move.segments)
      if (!run.moved_in.count(s)) run.moves_due.insert(s);
  }
  emit(SetVersion{run.plan->id, version});
  auto contributors = contributors_of(run.shares, run.world());
  if (config_.bugs.contributors_of_plan)
    for (Rank r = 0; r < run.world(); ++r) contributors[r] = contributors[r] || r != run.self;
  emit(OpenStep{run.plan->id, version, holders_in(run, version), std::move(contributors),
                run.attempt});
}

// R14: sends the label-v state, when all parameters are here, as gathers would wait behind it.
void Worker::send_moves() {
  const EpochRun& run = *run_;
  for (const Move& move : run.plan->moves)
    if (move.step(run.first) == run.voting && move.source == run.self)
      emit(SendMove{run.plan->id, run.voting, move.segments, move.target, record_});
}

void Worker::on_event(const MovedIn& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != run->voting) return;
  for (const SegmentId s : e.segments) {
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
    return move.target == run.self && move.step(run.first) == run.voting &&
           move.segments.contains(s);
  });
}

// All members find the same shares: an epoch's first step has those of its plan, as joiners have
// seen no vote; later ones follow from the votes that passed the step before, which all have (R5).
std::vector<Rank> Worker::shares_of(Version version) const {
  const EpochRun& run = *run_;
  const Plan& plan = *run.plan;
  if (version >= config_.steps) return {};  // perhaps no member computes
  std::vector<Capacity> capacities;
  for (const Member& m : plan.members) capacities.push_back({.computes = computes(m.role)});
  if (version == run.first) {
    const bool switched = plan.kind == PlanKind::kPrepared && !run.joiner();
    const bool told = plan.shares.size() == config_.micro_batches &&
                      !(config_.bugs.shares_not_of_plan && switched);
    return told ? plan.shares : first_shares(capacities, config_.micro_batches);
  }
  for (const auto& [rank, vote] : run.votes)
    if (!config_.bugs.shares_by_some_votes || rank != run.self)
      capacities[rank].micro_batch_ns = vote.micro_batch_ns;
  return next_shares(run.shares, capacities);
}

// R17: all members find the same way, so no step's bytes are sent one way and awaited another. An
// epoch's first step follows no vote that all its members have. A world of one sends no bytes.
std::uint32_t Worker::attempt_of(Version version) const {
  const EpochRun& run = *run_;
  if (run.world() == 1) return kAlone;
  if (version == run.first) return 0;
  std::optional<std::uint32_t> named;
  for (const auto& [rank, vote] : run.votes) {
    if (config_.bugs.r17_some_votes && rank == run.self) continue;
    if (named.value_or(vote.ready_attempt) != vote.ready_attempt) return 0;
    named = vote.ready_attempt;
  }
  return named.value_or(0);
}

void Worker::compute_step() {
  EpochRun& run = *run_;
  if (at_the_end()) {
    if (parameters_complete_) finish();
    return;
  }
  comparing_ = false;
  rechecks_.open(due_rechecks());
  emit(Compute{version_, work_.deal(run.shares, run.self), scale(), rechecks_.wanted()});
  if (parameters_complete_) send_moves();
  emit(StartReduce{run.plan->id, run.voting, work_.share_size(), what_to_measure(), run.attempt});
  end_share_if_done();
}

// No step follows the job's last version, nor a skipped step that ends the job. All members decide
// so by the record of that step (R5), so none waits for the votes of one that has stopped, whatever
// becomes of the leader.
bool Worker::at_the_end() const {
  const bool stops = config_.stop_on_nonfinite && !config_.bugs.stop_by_leader;
  return version_ >= config_.steps || (stops && record_.skipped);
}

// The first member that computes evaluates; the first of all where none does.
bool Worker::evaluates(const EpochRun& run) const {
  for (Rank r = 0; r < run.world(); ++r)
    if (computes(run.plan->members[r].role)) return r == run.self;
  return run.self == 0;
}

// Ends the step loop at the last version.
void Worker::finish() {
  EpochRun& run = *run_;
  if (run.stage == EpochRun::Stage::kFinished) return;
  run.stage = EpochRun::Stage::kFinished;
  send_moves();
  // One member evaluates the last version, which no step begins with, before it compares the parameters
  // for the digest. Every member would find the same values: if it is lost, the next one begins anew.
  if (config_.evaluates && evaluates(run) && !(evaluated_ && !evaluated_->values.empty())) {
    if (!std::exchange(evaluated_, worker_event::Evaluated{})) emit(Evaluate{version_});
    return;
  }
  emit(ComputeDigest{run.plan->id, version_, owned()});
}

void Worker::on_event(const MicroBatchDone& e) {
  speed_.took(e.took_ns);
  LedgerRow row = e.row;
  row.worker = joining_.self().counter;
  if (e.version != version_ || !work_.add(row)) return;
  if (!run_ || run_->voting != version_) return;
  work_.enter(row);
  if (run_->stage == EpochRun::Stage::kStep) end_share_if_done();
}

// A forced epoch repeats a step that others wait for already: it rechecks nothing.
std::vector<MicroBatch> Worker::due_rechecks() {
  const EpochRun& run = *run_;
  if (run.plan->kind == PlanKind::kForced && run.first == version_) return {};
  if (std::ranges::find(run.shares, run.self) == run.shares.end()) return {};
  return rechecks_of(config_.recheck, version_, run.shares, run.self, computed_++);
}

void Worker::on_event(const Rechecked& e) {
  rechecks_.answered(e.micro_batch, e.version == version_ ? e.contribution : std::nullopt);
  if (run_) vote_if_ready();
}

// Returns false while the vote waits for passes that read the step's parameters, or for the second
// pass and the compare of a difference. Needs the whole ledger. A wrong contribution stays in the
// sum: all members have the same rows, and accepted it.
bool Worker::rechecked() {
  EpochRun& run = *run_;
  if (config_.bugs.recheck_unawaited) return true;
  if (rechecks_.unanswered() > 0 || comparing_) return false;
  const auto rows = work_.rows();
  if (auto again = rechecks_.once_more(rows); !again.empty()) {
    emit(Compute{version_, {}, scale(), std::move(again)});
    return false;
  }
  if (rechecks_.differences(version_, rows).empty()) return true;
  comparing_ = true;
  emit(Compare{run.plan->id, version_});
  return false;
}

void Worker::on_event(const Compared& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != version_ || !comparing_) return;
  comparing_ = false;
  auto found = rechecks_.differences(version_, work_.rows());
  for (Difference& d : found) d.by = joining_.self().counter;
  note_differences(found);
  rechecks_.open({});
  vote_if_ready();
}

// Each member reports a difference that it has found or got with a vote, to this leader and to each
// later one: no loss of the finder hides it.
void Worker::note_differences(const std::vector<Difference>& found) {
  bool any = false;
  for (const Difference& d : found) {
    if (std::ranges::find(differences_, d) != differences_.end()) continue;
    differences_.push_back(d);
    any = true;
  }
  if (!any) return;
  if (differences_.size() > limits::kDifferences)
    differences_.erase(differences_.begin(),
                       differences_.end() - std::ptrdiff_t{limits::kDifferences});
  send(heartbeat());
}

void Worker::end_share_if_done() {
  EpochRun& run = *run_;
  if (run.share_ended || !parameters_complete_ || run.voting != version_) return;
  if (!work_.share_done()) return;
  run.share_ended = true;
  emit(EndShare{run.plan->id, run.voting, work_.share_rows()});
  if (config_.bugs.r4_vote_without_totals) on_event(Reduced{run.plan->id, run.voting});
}

void Worker::on_event(const Reduced& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != run->voting || run->norm) return;
  run->norm = e.norm;
  run->digest_part = e.digest_part;
  if (!pending_) return vote_if_ready();
  // A member that voted for this step in an earlier epoch casts the vote that begins this one.
  Vote vote{run->voting};
  vote.partial_norm = *run->norm;
  vote.digest_part = run->digest_part;
  cast(std::move(vote));
}

// All owned segments are at label `voting` until its vote has passed (R6), so the parts of all owners
// are the digest of that version.
Measure Worker::what_to_measure() const {
  const Version version = run_->voting;
  return {owned(),
          config_.elastic.digest_every != 0 && version % config_.elastic.digest_every == 0};
}

void Worker::on_event(const LedgerArrived& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != run->voting) return;
  if (!work_.arrived(e.rows)) return stop({run->plan->members[e.from].who});
  run->rows_of.insert(e.from);
  vote_if_ready();
}

// The ranks whose rows or votes are missing, when nothing is left to be done here. A connection
// keeps the order of its frames: with a rank's rows everything has come that it sent before them.
std::vector<Rank> Worker::missed() const {
  std::vector<Rank> ranks;
  if (!run_ || run_->plan->id != entered_ || run_->voting != version_) return ranks;
  const bool voted = run_->stage == EpochRun::Stage::kVoted;
  if (!voted && (run_->stage != EpochRun::Stage::kStep || !run_->share_ended)) return ranks;
  for (Rank r = 0; r < run_->world() && ranks.size() < limits::kMissed; ++r) {
    const bool here = voted ? run_->votes.count(r) != 0 : run_->rows_of.count(r) != 0;
    if (r != run_->self && !here) ranks.push_back(r);
  }
  return ranks;
}

// R4: votes for the step when all that the vote needs is here.
void Worker::vote_if_ready() {
  EpochRun& run = *run_;
  if (run.stage != EpochRun::Stage::kStep || run.voting != version_ || pending_) return;
  if (!run.norm || !work_.complete()) return;
  if (!run.moves_due.empty() && !config_.bugs.r14_vote_without_move) return;
  if (!rechecked()) return;
  Vote vote{run.voting};
  vote.partial_norm = *run.norm;
  vote.digest_part = run.digest_part;
  vote.micro_batch_ns = speed_.for_vote(work_.has_share(), now_ms_);
  vote.ready_for = may_have_begun_ = ready_for();
  pending_ = true;
  if (config_.bugs.r6_apply_at_vote) {
    run.votes[run.self] = vote;
    emit(Apply{make_record(), peak_rate(run.voting)});
  }
  if (config_.bugs.r7_clear_at_vote) {
    emit(ClearAccumulators{});
    work_.clear_done();
  }
  cast(std::move(vote));
}

void Worker::cast(Vote vote) {
  EpochRun& run = *run_;
  run.stage = EpochRun::Stage::kVoted;
  vote.writing = checkpoint_.writing();
  vote.wants_checkpoint = checkpoint_.wanted();
  vote.ready_attempt = run.ready_attempt;
  std::ranges::copy_if(differences_, std::back_inserter(vote.differences),
                       [&](const Difference& d) {
                         return d.version == vote.version && d.by == joining_.self().counter;
                       });
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
  note_differences(e.vote.differences);
  pass_if_complete();
}

// R5: passes the vote when the votes of all members are here.
void Worker::pass_if_complete() {
  EpochRun& run = *run_;
  if (run.stage != EpochRun::Stage::kVoted) return;
  const std::size_t lacking = run.world() - run.votes.size();
  if (lacking > (config_.bugs.r5_pass_without_all && run.world() > 1 ? 1u : 0u)) return;
  const StepRecord* known = nullptr;
  for (const auto& [rank, vote] : run.votes) {
    if (vote.record.version != run.voting) continue;
    if (known && !(*known == vote.record))
      return exit(kExitInternal, "two members know different records");
    known = &vote.record;
  }
  if (version_ == run.voting) return pass(known ? *known : make_record());
  // A member that passed this step before this epoch, or a joiner, has nothing to apply.
  run.stage = EpochRun::Stage::kStep;
  open_step(run.plan->base);
  gather_and_compute();
}

StepRecord Worker::make_record() const {
  StepRecord record = work_.record(run_->voting);
  ExactSum square;
  for (const auto& [rank, vote] : run_->votes) {
    if (auto part = ExactSum::from_words(vote.partial_norm)) square.add(part.value());
    record.digest = record.digest + vote.digest_part;
  }
  record.norm = std::sqrt(square.value());
  record.scale = scale();
  return record;
}

// The scale of the step after record_: the same at every member, which all have that record.
LossScale Worker::scale() const {
  return next_scale(config_.loss_scale, record_.scale, record_.skipped);
}

// Commits the step: version v+1. R6, R7.
void Worker::pass(const StepRecord& record) {
  EpochRun& run = *run_;
  const EpochId z = next_ ? next_->plan->id : EpochId{};
  bool all_ready = bool(z);
  CheckpointTurn::Votes checkpoint;
  for (const auto& [rank, vote] : run.votes) {
    all_ready = all_ready && vote.ready_for == z;
    checkpoint.anybody_writes = checkpoint.anybody_writes || vote.writing;
    checkpoint.anybody_wants = checkpoint.anybody_wants || vote.wants_checkpoint;
  }
  if (config_.bugs.r15_switch_early && ready_for() == z && z) all_ready = true;

  // Passes of the next step begin as soon as what they read is published, which Apply does.
  emit(ClearAccumulators{});
  if (!config_.bugs.r6_apply_at_vote) emit(Apply{record, peak_rate(record.version)});
  work_.clear();
  STARLING_CHECK(rechecks_.unanswered() == 0 || config_.bugs.recheck_unawaited);
  rechecks_.open({});
  version_ = run.voting + 1;
  pending_ = false;
  parameters_complete_ = false;
  learn(record, /*with_ledger=*/true);
  if (all_ready) {
    if (!switch_epochs()) return;  // left out
  } else {
    may_have_begun_ = {};
  }
  checkpoint_.heard(checkpoint);
  if (!at_the_end() && checkpoint_.due(version_, checkpoint)) write_checkpoint(checkpoint);
  run_->stage = EpochRun::Stage::kStep;
  open_step(version_);
  gather_and_compute();
}

void Worker::write_checkpoint(const CheckpointTurn::Votes& votes) {
  if (checkpoint_.writing())
    send(ShardWritten{version_, record_, {}, CheckpointTurn::kStillWriting});
  if (checkpoint_.begin(version_, votes))
    emit(WriteCheckpoint{run_->plan->id, version_, record_, owned()});
}

void Worker::on_event(const CheckpointWritten& e) {
  checkpoint_.end(now_ms_);
  send(e.shard);
}

void Worker::learn(const StepRecord& record, bool with_ledger) {
  record_ = record;
  if (config_.bugs.scale_of_start && !with_ledger) record_.scale = {};
  Progress progress = progress_of(run_->plan->id, record);
  if (with_ledger) progress.ledger = work_.rows();
  progress.on_device = with_ledger && run_->attempt != 0 && run_->world() > 1;
  unacknowledged_.add(progress, now_ms_);
  send(std::move(progress));
}

void Worker::on_event(const StepTimed& e) {
  unacknowledged_.timed(e.version, e.step_ms, e.pause);
}

void Worker::send_unacknowledged(std::size_t at_once) {
  for (UnacknowledgedSteps::Due& due : unacknowledged_.due(now_ms_, config_.retry_ms, at_once))
    emit(ToCoordinators{std::move(due.progress), due.turn});
}

// The step is open. A pass begins at once, and waits for each part of the parameters until it is
// there. A joiner that does not know its version yet begins when the first frame tells it.
void Worker::gather_and_compute() {
  const Version version = run_->voting;
  emit(StartGather{run_->plan->id, version, record_, copies_at(*run_, version), run_->attempt});
  if (version_ == version) compute_step();
}

void Worker::on_event(const GatherBegun& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || !joining_.joiner()) return;
  const Plan& plan = *run->plan;
  if (plan.kind != PlanKind::kPrepared && e.version != plan.base) return;
  version_ = e.version;
  joining_.finish();
  entered_ = plan.id;
  parameters_complete_ = false;
  if (e.record.version + 1 == e.version) learn(e.record, /*with_ledger=*/false);
  if (plan.kind == PlanKind::kPrepared) {
    run->first = e.version;
    run->stage = EpochRun::Stage::kStep;
    open_step(e.version);
    gather_and_compute();
  } else if (run->stage == EpochRun::Stage::kStep && run->voting == version_) {
    compute_step();  // its gather was started without a version
  }
}

void Worker::on_event(const Gathered& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || e.version != version_ || run->voting != version_ || parameters_complete_) return;
  parameters_complete_ = true;
  if (at_the_end()) return finish();
  send_moves();
  end_share_if_done();
}

void Worker::on_event(const DigestReady& e) {
  EpochRun* run = run_of(e.epoch);
  if (!run || run->stage != EpochRun::Stage::kFinished || finished_) return;
  finished_ = e;
  finished_ms_ = now_ms_;
  say_finished();
}

void Worker::on_event(const worker_event::Evaluated& e) {
  if (e.version != version_ || !evaluated_) return;
  evaluated_ = e;
  if (run_ && run_->stage == EpochRun::Stage::kFinished && evaluates(*run_))
    emit(ComputeDigest{run_->plan->id, version_, owned()});
}

void Worker::on_event(const DataHashed& e) {
  const bool in_question = data_ != Digest{} && e.data == Digest{};
  data_ = e.data;
  // This worker may end because of its data: the leader hears first that they are not known any more.
  if (in_question && joining_.welcomed()) send(heartbeat());
  if (finished_) say_finished();
}

// Says Finished, the last message, after all steps are noted. The last step's record goes with it:
// a leader that came after that step needs the loss for the job's end.
void Worker::say_finished() {
  if (!unacknowledged_.empty()) return;
  // The leader says which data were not compared when the job ends.
  if (data_ == Digest{} && now_ms_ - finished_ms_ < config_.data_wait_ms) return;
  if (record_.version != kNoVersion) send(progress_of(finished_->epoch, record_));
  send(heartbeat());  // the leader knows that the data were read, before it ends the job
  send(Finished{finished_->epoch, finished_->version, finished_->part, finished_->parameters_part,
                evaluated_ ? evaluated_->values : std::vector<double>{}});
}

}  // namespace starling::elastic
