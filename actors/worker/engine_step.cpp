// The engine's part of one step: reduce, gather and moves.

#include <algorithm>
#include <utility>

#include "actors/sabotage.h"
#include "actors/worker/engine.h"
#include "core/base/check.h"
#include "core/wire/step_codec.h"

namespace starling::actors {

using namespace elastic::worker_command;
namespace event = elastic::worker_event;

// ---- Reduce -----------------------------------------------------------------------------------

void Engine::execute(const OpenStep& c) {
  epochs_.at(c.epoch)->frames->open_step(c.holders);
}

void Engine::execute(const StartReduce& c) {
  EpochIo& io = *epochs_.at(c.epoch);
  at(WorkPhase::kReduce);
  pause_.mark(PauseClock::kComputed);
  clock_.mark(StepMark::kComputed);
  // Nothing is computed any more, and nothing of this step leaves before it is known to be of these
  // parameters.
  sabotage::flip_parameters(state_, c.version, name());
  sabotage::flip_sums(accumulators_, c.version, name());
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    if (!state_.parameters_intact(s)) return end_damaged("the working parameters", s);
    if (!accumulators_.intact(s)) return end_damaged("the sums", s);
    breathe();
  }
  clock_.mark(StepMark::kChecked);
  totals_.clear();
  io.side_received.clear();
  collectives::Sums sums;
  sums.layout = &layout_;
  sums.accumulators = accumulators_.sums();
  sums.accumulator_lanes = accumulators_.lanes();
  sums.side_entries = accumulators_.side();
  sums.totals = totals_.sums();
  sums.total_lanes = totals_.lanes();
  sums.received = &io.side_received;
  const Job& job = options_.setup->job;
  io.mesh->hold();
  take(io, io.frames->begin_reduce(c.version, sums,
                                   complete_lanes(job.seed, c.version, job.micro_batches)));
  for (std::uint32_t b = 0; b < layout_.buckets() && !io.closed; ++b) {
    take(io, io.frames->contribute(b));
    breathe();
  }
  if (!io.closed) io.mesh->flush();
}

void Engine::take(EpochIo& io, const collectives::epoch_event::Reduced& e) {
  for (const SideEntry& entry : io.side_received)
    if (auto added = totals_.add_side(entry); !added)
      return give_up(io, io.frames->self(), added.error().text());
  clock_.mark(StepMark::kReduced);
  sabotage::double_totals(totals_, e.version, name());
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    // Not a life's end: what was added up is whole at its makers (R2), and is added up anew.
    if (totals_.has(s) && !totals_.intact(s))
      return give_up(io, (*io.frames->holders())[s].front(),
                     "the total of segment " + std::to_string(s) + " is not the sum of its parts");
    breathe();
  }
  clock_.mark(StepMark::kSealed);
  pause_.mark(PauseClock::kReduced);
  handle(event::Reduced{io.frames->plan().id, e.version});
}

// ---- Gather and moves -------------------------------------------------------------------------

void Engine::execute(const StartGather& c) {
  EpochIo& io = *epochs_.at(c.epoch);
  at(WorkPhase::kGather);
  clock_.mark(StepMark::kTold);
  keep_parameters_ = c.keep;
  for (SegmentId s = 0; s < layout_.segments() && !c.keep; ++s) {
    if ((*c.holders)[s].front() != io.frames->self()) continue;
    state_.publish(std::span(&s, 1));
    breathe();
  }
  take(io, io.frames->gather(c.version, c.holders, c.record));
}

void Engine::take(EpochIo& io, const collectives::epoch_event::Gathered& e) {
  clock_.end(io.mesh->sent_bytes());
  handle(event::Gathered{io.frames->plan().id, e.version});
}

Bytes Engine::params(SegmentRange segments) {
  breathe();
  return state_.params_bytes(std::span<const SegmentRange>(&segments, 1));
}

Result<> Engine::set_params(Version version, SegmentRange, ByteView bytes) {
  if (keep_parameters_) return ok();
  if (sabotage::keeps_stale_parameters(version, name())) return ok();
  STARLING_TRY(ranges, state_.set_params(bytes));
  (void)ranges;
  return ok();
}

void Engine::execute(const SendMove& c) {
  epochs_.at(c.epoch)->frames->send_move(c.target, c.version, c.record, c.segments,
                                         share(state_.state_bytes(c.segments)));
}

void Engine::take(EpochIo& io, const collectives::epoch_event::MoveArrived& e) {
  for (SegmentId s = e.segments.first; s < e.segments.first + e.segments.count; ++s) state_.hold(s);
  const auto taken = state_.set_state(e.states, e.version);
  if (!taken) return give_up(io, e.from, taken.error().text());
  if (!(taken.value() == e.segments)) return give_up(io, e.from, "a move of other segments");
  handle(event::MovedIn{io.frames->plan().id, e.version, e.segments});
}

}  // namespace starling::actors
