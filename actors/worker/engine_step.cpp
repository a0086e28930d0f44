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
  EpochIo& io = *epochs_.at(c.epoch);
  io.holders = c.holders;
  io.reduce.reset();
  io.reduced = false;
}

void Engine::execute(const StartReduce& c) {
  EpochIo& io = *epochs_.at(c.epoch);
  at(WorkPhase::kReduce);
  pause_.mark(PauseClock::kComputed);
  clock_.mark(StepMark::kComputed);
  // Nothing is computed any more, and nothing of this step leaves before it is known to be of these
  // parameters.
  sabotage::flip_parameters(state_, c.version, name());
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    if (!state_.parameters_intact(s)) return end_damaged("the working parameters", s);
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
  collectives::ReduceOptions options;
  options.self = io.self;
  options.world = static_cast<Rank>(io.plan->members.size());
  options.version = c.version;
  options.complete = complete_lanes(job.seed, c.version, job.micro_batches);
  io.reduce.emplace(sums, io.holders, options);
  io.mesh->hold();
  for (std::uint32_t b = 0; b < layout_.buckets(); ++b) {
    if (auto sent = io.reduce->contribute(b, *io.mesh); !sent)
      return give_up(io, io.self, sent.error().text());
    breathe();
  }
  io.mesh->flush();
  reduced_if_done(io);
  release_waiting(io, [](FrameKind kind) { return collectives::Reduce::takes(kind); });
}

void Engine::reduced_if_done(EpochIo& io) {
  if (io.reduced || !io.reduce->done()) return;
  io.reduced = true;
  for (const SideEntry& entry : io.side_received)
    if (auto added = totals_.add_side(entry); !added)
      return give_up(io, io.self, added.error().text());
  clock_.mark(StepMark::kReduced);
  sabotage::double_totals(totals_, io.session->version(), name());
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    if (state_.holds(s)) totals_.seal(s);
    breathe();
  }
  clock_.mark(StepMark::kSealed);
  pause_.mark(PauseClock::kReduced);
  handle(event::Reduced{io.plan->id, io.session->version()});
}

// ---- Gather and moves -------------------------------------------------------------------------

void Engine::execute(const StartGather& c) {
  EpochIo& io = *epochs_.at(c.epoch);
  at(WorkPhase::kGather);
  clock_.mark(StepMark::kTold);
  keep_parameters_ = c.keep;
  for (SegmentId s = 0; s < layout_.segments() && !c.keep; ++s) {
    if ((*c.holders)[s].front() != io.self) continue;
    state_.publish(std::span(&s, 1));
    breathe();
  }
  const bool has_begun = io.joiner && io.gather;  // a joiner's first frame was there before this
  if (!has_begun) {
    io.gathered = false;
    const auto world = static_cast<Rank>(io.plan->members.size());
    io.gather.emplace(
        layout_, c.holders,
        collectives::GatherOptions{io.self, world, c.version, encode_record(c.record)},
        static_cast<collectives::GatherSource&>(*this));
  }
  io.joiner = false;
  io.gather->start(*io.mesh);
  gathered_if_done(io);
  release_waiting(io, [](FrameKind kind) { return collectives::Gather::takes(kind); });
}

void Engine::gathered_if_done(EpochIo& io) {
  if (io.gathered || !io.gather->done()) return;
  io.gathered = true;
  clock_.end(io.mesh->sent_bytes());
  handle(event::Gathered{io.plan->id, io.gather->version()});
}

Bytes Engine::params(SegmentRange segments) {
  breathe();
  return state_.params_bytes(std::span<const SegmentRange>(&segments, 1));
}

Result<> Engine::set_params(SegmentRange, ByteView bytes) {
  if (keep_parameters_) return ok();
  if (sabotage::keeps_stale_parameters(gathering_->gather->version(), name())) return ok();
  STARLING_TRY(ranges, state_.set_params(bytes));
  (void)ranges;
  return ok();
}

Result<> Engine::on_first(Version version, ByteView record) {
  STARLING_TRY(decoded, decode_record(record));
  handle(event::GatherBegun{gathering_->plan->id, version, decoded});
  return ok();
}

void Engine::execute(const SendMove& c) {
  EpochIo& io = *epochs_.at(c.epoch);
  ByteWriter prefix;
  prefix.put_sized(encode_record(c.record));
  collectives::Payload payload(share(std::move(prefix).take()));
  payload.append(share(state_.state_bytes(c.segments)));
  FrameHeader header;
  header.kind = FrameKind::kMove;
  header.version = c.version;
  header.first = c.segments.first;
  header.count = c.segments.count;
  io.mesh->send(c.target, header, payload);
}

Result<> Engine::on_move(EpochIo& io, Rank from, const Frame& frame) {
  const SegmentRange segments{frame.header.first, frame.header.count};
  const bool planned =
      std::any_of(io.plan->moves.begin(), io.plan->moves.end(), [&](const Move& move) {
        return move.source == from && move.target == io.self && move.segments == segments;
      });
  if (!planned) return Error(Code::kCorrupt, "a move that the plan does not have");
  ByteReader in(*frame.payload);
  STARLING_TRY(record, decode_record(in.get_sized()));
  (void)record;
  for (SegmentId s = segments.first; s < segments.first + segments.count; ++s) state_.hold(s);
  STARLING_TRY(taken, state_.set_state(in.get_bytes(in.remaining()), frame.header.version));
  if (!(taken == segments)) return Error(Code::kCorrupt, "a move of other segments");
  handle(event::MovedIn{io.plan->id, frame.header.version, segments});
  return ok();
}

}  // namespace starling::actors
