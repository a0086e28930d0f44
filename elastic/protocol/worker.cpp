#include "elastic/protocol/worker.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/exit.h"
#include "core/wire/limits.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {

using namespace worker_event;
using namespace worker_command;

namespace {
constexpr std::uint64_t kNoticeMsMax = 7 * 24 * 3600 * 1000ull;
constexpr std::size_t kUnsaidMax = 16;       // hints before the welcome; more say nothing new
constexpr std::uint64_t kSilentRetries = 4;  // so many without a word: no coordinator listened
}  // namespace

Worker::Worker(WorkerConfig config)
    : config_(std::move(config)),
      work_(config_.micro_batches, config_.evaluation_width),
      speed_(config_.probe_after),
      checkpoint_(config_.checkpoint.every, config_.steps) {
  STARLING_CHECK(config_.probe_after > 0);
  STARLING_CHECK(config_.micro_batches > 0);
  STARLING_CHECK(config_.segments > 0);
  copies_.resize(config_.segments);
}

WorkerCommands Worker::on(const WorkerEvent& event) {
  commands_.clear();
  if (last_)
    say_last_words(event);
  else if (!gone_)
    std::visit([this](const auto& e) { on_event(e); }, event);
  check_invariants();
  return std::exchange(commands_, {});
}

void Worker::on_event(const Start& e) {
  data_ = e.join.data;
  joining_.ask(e.join);
  send(e.join);
}

void Worker::on_event(const worker_event::Tick& e) {
  // A worker that was frozen reads the messages that wait for it before it concludes that it heard
  // none: one may say that it was left out.
  if (now_ms_ != 0) unheard_ms_ += std::min(e.now_ms - now_ms_, kLookMs);
  now_ms_ = e.now_ms;
  if (unheard_ms_ > config_.elastic.coordinator_timeout_ms)
    return exit(3, "no coordinator answered for " +
                       std::to_string(config_.elastic.coordinator_timeout_ms) +
                       " ms; check that one is running and reachable");
  if (leave_until_ms_ && now_ms_ >= *leave_until_ms_)
    return exit(kExitTerminated,
                "the notice ended before the others could go on without this worker");
  if (now_ms_ - sent_ms_ >= config_.retry_ms) {
    sent_ms_ = now_ms_;
    if (const Join* question = joining_.question()) send(*question);
    if (leave_until_ms_) send(starling::Leave{*leave_until_ms_ - now_ms_});
    send_unacknowledged();
    if (finished_) say_finished();
    report_if_stopped();
  }
  if (joining_.welcomed() && now_ms_ - heartbeat_ms_ >= config_.heartbeat_ms) {
    say_notices();
    heartbeat_ms_ = now_ms_;
    send(heartbeat());
  }
}

Heartbeat Worker::heartbeat() const {
  Heartbeat beat{entered_, version_, ready_for(), speed_.micro_batch_ns()};
  beat.share_left = share_left();
  beat.load_left = joining_.load_left();
  beat.orders_left = working_.orders_left;
  beat.progress = working_.progress;
  beat.data = data_;
  const bool waits = beat.share_left == 0 && beat.load_left == 0 && beat.orders_left == 0;
  if (waits) beat.missed = missed();
  beat.differences = differences_;
  if (run_ && run_->plan->id == entered_) {
    beat.on_device = run_->on_device;
    beat.transport_why = run_->transport_why;
  }
  return beat;
}

// Micro-batches that this worker alone can finish, and has all it needs for: others wait for them.
std::uint32_t Worker::share_left() const {
  if (!run_ || run_->stage != EpochRun::Stage::kStep || run_->voting != version_) return 0;
  if (run_->share_ended) return rechecks_.unanswered();
  if (!parameters_complete_) return 0;
  return work_.left();
}

void Worker::on_event(const Received& e) {
  if (unheard_ms_ >= kSilentRetries * config_.retry_ms) unacknowledged_.restart_retries();
  unheard_ms_ = 0;
  std::visit([this](const auto& m) { on_message(m); }, e.body);
}

void Worker::on_event(const NoticeGiven& e) {
  const Notice& notice = e.notice;
  if (notice.leave && joining_.outside()) return leave_before_joining();
  if (unsaid_.size() < kUnsaidMax) unsaid_.push_back(notice);
  if (joining_.welcomed()) say_notices();
  if (!notice.leave) return;
  const std::uint64_t until = now_ms_ + std::min(notice.notice_ms, kNoticeMsMax);
  leave_until_ms_ = std::min(leave_until_ms_.value_or(until), until);
  send(starling::Leave{*leave_until_ms_ - now_ms_});
}

// A plan may include this worker already. Without a Death the others would wait a lease for it.
void Worker::leave_before_joining() {
  const std::string why = "left before it had joined";
  send(Death{joining_.self(), WorkPhase::kNone, why});
  exit(kExitDone, why);
}

void Worker::say_notices() {
  for (Notice& notice : std::exchange(unsaid_, {})) send(std::move(notice));
}

// ---- What coordinators say --------------------------------------------------------------------

void Worker::on_message(const Welcome& m) {
  if (m.who == joining_.self()) joining_.welcome(m.who);
}

void Worker::on_message(const Refused& m) {
  exit(kExitBadInput, m.reason);
}

void Worker::on_message(const Freeze& m) {
  if (m.asked <= entered_) return;
  stopping_.asked(m.asked);
  if (config_.bugs.r9_keep_sending && run_) {
    stopping_.report();  // for the report; the epoch goes on
    report_if_stopped();
    stopping_.joins();
    return;
  }
  if (run_ || next_) return stop({});
  stopping_.report();
  report_if_stopped();
}

void Worker::on_message(const Committed& m) {
  const Plan& plan = m.plan;
  if (plan.holders.size() != config_.segments)
    return exit(5, "a plan has " + std::to_string(plan.holders.size()) + " segments, the job " +
                       std::to_string(config_.segments));
  stopping_.seen(plan.id);
  const Rank self = rank_in(plan, joining_.self()).value_or(kNoRank);
  if (self != kNoRank) joining_.welcome(plan.members[self].who);
  const bool known = plan.id <= entered_ || (run_ && run_->plan->id >= plan.id) ||
                     (next_ && next_->plan->id >= plan.id);
  if (known) return;
  if (plan.kind == PlanKind::kPrepared) {
    // R9: a stopped worker enters only forced plans. A joiner without state has nothing to stop.
    const bool member_of_predecessor =
        run_ && !stopping_.stopped() && run_->plan->id == plan.predecessor;
    const bool joins = joining_.outside() && self != kNoRank && plan.members[self].joiner &&
                       !stopping_.closing() && stopping_.may_enter(plan.id);
    if (member_of_predecessor || joins) prepare(std::make_shared<const Plan>(plan), self);
    return;
  }
  if (self == kNoRank || run_ || stopping_.closing()) return;
  if (!stopping_.may_enter(plan.id) && !config_.bugs.r9_enter_below_promise) return;  // R9
  enter(std::make_shared<const Plan>(plan), self);
}

void Worker::on_message(const CheckpointAsked& m) {
  checkpoint_.ask(m.above, now_ms_);
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
  if (joins) {
    joining_.join();
    stopping_.joins();
    drop_early_copies();
  }
  (joins ? run_ : next_) = std::move(run);
}

void Worker::enter(std::shared_ptr<const Plan> plan, Rank self) {
  stopping_.enters();
  may_have_begun_ = {};
  next_.reset();
  const Plan& p = *plan;
  if (!take_over(p, self)) return;
  EpochRun run;
  run.plan = std::move(plan);
  run.self = self;
  run.first = p.base;
  run.voting = p.begin == BeginAt::kVote ? p.base - 1 : p.base;
  const bool fresh = p.kind == PlanKind::kFresh;
  const bool joiner = !joining_.over() && !fresh;
  if (joiner) joining_.join();
  if (!joiner) entered_ = p.id;
  run_ = std::move(run);
  emit(Connect{run_->plan, self, run_->voting, joiner});
  if (fresh && !joining_.over()) {
    std::vector<bool> held = held_by(p, self);
    const auto segments = std::count(held.begin(), held.end(), true);
    joining_.initialise(p.base != 0 ? static_cast<std::uint32_t>(segments) : 0);
    emit(Initialise{p.id, p.base, std::move(held)});
  }
  if (p.begin != BeginAt::kVote) open_step(p.base);
}

// Copies that were moved to a joiner that never entered that epoch have no version: drop them.
void Worker::drop_early_copies() {
  copies_.assign(config_.segments, false);
  emit(Hold{copies_});
}

// R12: a pending step stays pending exactly if the plan says that it was committed.
bool Worker::take_over(const Plan& plan, Rank self) {
  if (!joining_.over()) {
    drop_early_copies();
    return true;
  }
  if (plan.base == version_ + 1 && pending_) {
    // Finished by the vote that begins the epoch.
  } else if (plan.base == version_) {
    if (pending_) emit(DropTotals{});
    pending_ = false;
    if (!work_.dealt_to(plan.shares, self)) {
      exit(kExitInternal, "a plan deals a micro-batch to others that is done here");
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
  std::vector<bool> held = held_by(plan, self);
  for (SegmentId s = 0; s < config_.segments; ++s) {
    if (held[s] && !copies_[s] && !fresh) {
      exit(kExitInternal,
           "a plan says that segment " + std::to_string(s) + " is held here; there is no copy");
      return false;
    }
  }
  copies_ = std::move(held);
  emit(Hold{copies_, fresh && plan.base == 0});
  return true;
}

void Worker::on_event(const Initialised& e) {
  if (!run_of(e.epoch) || !joining_.initialising()) return;
  joining_.initialised();
  record_ = e.record;
  begin_if_ready();
}

void Worker::on_event(const Loading& e) {
  if (run_of(e.epoch)) joining_.loading(e.segments_left);
}

void Worker::on_event(const NotInitialised& e) {
  const EpochRun* run = run_of(e.epoch);
  if (!run || !joining_.initialising()) return;
  if (e.here) return exit(kExitBadInput, e.reason);
  send(Unloadable{run->plan->base, e.reason});
  stop({});
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

void Worker::on_event(const TransportReady& e) {
  STARLING_CHECK(e.attempt > 0);
  // Another process counts the attempts, so do not trust the number.
  EpochRun* run = going(e.epoch);
  if (run && e.attempt <= limits::kAttempts) run->ready_attempt = e.attempt;
}

void Worker::on_event(const TransportLost& e) {
  EpochRun* run = going(e.epoch);
  if (run && run->ready_attempt == e.attempt) run->ready_attempt = 0;
}

void Worker::on_event(const TransportChosen& e) {
  EpochRun* run = going(e.epoch);
  if (!run) return;
  run->on_device = e.on_device;
  run->transport_why = e.why;
  // Send it at once: the run may be over before the next heartbeat is due.
  if (run_of(e.epoch) && joining_.welcomed()) send(heartbeat());
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
  if (!run_->connected || joining_.initialising()) return;
  if (run_->stage != EpochRun::Stage::kConnecting) return;
  const Plan& plan = *run_->plan;
  if (plan.kind == PlanKind::kPrepared) {
    emit(SayReady{plan.id});  // a joiner; the first gather frame goes on from here
    return;
  }
  run_->stage = EpochRun::Stage::kStep;
  if (plan.kind == PlanKind::kFresh) {
    version_ = plan.base;
    joining_.finish();
    // From the seed each member has all parameters; from a checkpoint those of its own segments.
    parameters_complete_ = plan.begin == BeginAt::kCompute;
    keep_held(plan, run_->self);
  }
  switch (plan.begin) {
    case BeginAt::kCompute:
      compute_step();
      break;
    case BeginAt::kGather:
      gather_and_compute();
      break;
    case BeginAt::kVote:
      if (!joining_.over()) {
        cast(Vote{run_->voting});
      } else if (version_ == plan.base) {
        Vote vote{run_->voting};
        vote.record = record_;
        cast(std::move(vote));
      } else {
        emit(ComputeNorm{plan.id, run_->voting, what_to_measure()});
      }
      break;
  }
}

// R15: all members of e said that they are ready for z, so all that pass this vote go to z.
bool Worker::switch_epochs() {
  emit(worker_command::Leave{run_->plan->id});
  if (next_->self == kNoRank) {
    // A worker that leaves keeps its copies and answers a Freeze until it is released.
    run_.reset();
    next_.reset();
    stopping_.leaves();
    return false;
  }
  run_ = std::exchange(next_, std::nullopt);
  entered_ = run_->plan->id;
  may_have_begun_ = {};
  run_->first = version_;
  run_->stage = EpochRun::Stage::kStep;
  return keep_held(*run_->plan, run_->self);
}

// ---- Stopping ---------------------------------------------------------------------------------

void Worker::on_event(const worker_event::Broken& e) {
  const EpochRun* run = going(e.epoch);
  if (!run) return stopping_.broke(e.epoch, e.peer, e.fault);
  if (e.peer == kNoRank) return stop({});
  if (e.peer >= run->world()) return;
  stop({run->plan->members[e.peer].who}, e.fault);
}

void Worker::stop(std::vector<Incarnation> broken, LinkFault fault) {
  for (auto* run : {&run_, &next_}) {
    if (!*run || (*run)->self == kNoRank) continue;
    emit(Stop{(*run)->plan->id});
    stopping_.close((*run)->plan);
  }
  run_.reset();
  next_.reset();
  finished_.reset();
  joining_.stop();
  stopping_.stop(std::move(broken), fault);
  if (config_.bugs.r8_forget_work && !pending_) {
    work_.clear();
    emit(Compute{version_, {}});  // the caller aborts what is in progress and forgets the sums
  }
  report_if_stopped();
}

void Worker::on_event(const Stopped& e) {
  stopping_.closed(e.epoch);
  report_if_stopped();
}

// R9: the report is a promise, made when nothing of the epoch can be sent or received any more.
void Worker::report_if_stopped() {
  const auto promise = stopping_.promise();
  if (!promise) return;
  Report report;
  report.promise = *promise;
  report.entered = entered_;
  report.version = version_;
  report.pending = pending_;
  report.parameters_complete = parameters_complete_;
  report.share = work_.share();
  report.done = work_.done();
  report.copies = copies_;
  report.broken = stopping_.broken();
  report.fault = stopping_.fault();
  report.micro_batch_ns = speed_.micro_batch_ns();
  report.may_have_begun = may_have_begun_;
  send(std::move(report));
}

// ---- Who holds what ---------------------------------------------------------------------------

Holders Worker::holders_in(const EpochRun& run, Version version) const {
  return holders_with(run, [&](const Move& m) { return m.step(run.first) <= version; });
}

Holders Worker::copies_at(const EpochRun& run, Version version) const {
  return holders_with(run, [&](const Move& m) { return m.step(run.first) < version; });
}

Holders Worker::holders_with(const EpochRun& run,
                             const std::function<bool(const Move&)>& moved) const {
  // The plan owns its table; a copy is made only while moves add to it.
  if (run.plan->moves.empty() || run.first == kNoVersion)
    return Holders(run.plan, &run.plan->holders);
  auto holders = std::make_shared<std::vector<std::vector<Rank>>>(run.plan->holders);
  for (const Move& move : run.plan->moves) {
    if (!moved(move)) continue;
    for (const SegmentId s : move.segments) (*holders)[s].push_back(move.target);
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

EpochRun* Worker::going(const EpochId& epoch) {
  if (next_ && next_->plan->id == epoch) return &*next_;
  return run_of(epoch);
}

}  // namespace starling::elastic
