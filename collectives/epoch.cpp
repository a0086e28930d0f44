#include "collectives/epoch.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/wire/step_codec.h"

namespace starling::collectives {

Epoch::Epoch(EpochOptions options, const Layout& layout, GatherSource& source, Transport& transport)
    : options_(std::move(options)), layout_(layout), source_(source), transport_(transport) {
  STARLING_CHECK(options_.self < world());
  if (options_.version != kNoVersion || options_.joiner)
    session_.emplace(world(), options_.version, options_.limits);
  if (options_.joiner)
    gather_.emplace(layout_, Holders(options_.plan, &options_.plan->holders),
                    GatherOptions{options_.self, world(), kNoVersion, {}}, source_);
}

// ---- Frames -----------------------------------------------------------------------------------

EpochEvents Epoch::on_frame(Rank from, Frame frame) {
  STARLING_CHECK(from < world() && from != options_.self);
  EpochEvents out;
  if (broken_) return out;
  if (frame.header.kind == FrameKind::kRecord) {
    out.push_back(epoch_event::PeerReady{from});
  } else if (session_) {
    deliver(session_->on_frame(from, std::move(frame)), out);
  } else if (auto kept = wait(held_, {from, std::move(frame)}); !kept) {
    wrong(from, std::move(kept).error(), out);
  }
  return out;
}

EpochEvents Epoch::set_version(Version version) {
  EpochEvents out;
  if (broken_) return out;
  if (session_) {
    deliver(session_->set_version(version), out);
    return out;
  }
  session_.emplace(world(), version, options_.limits);
  for (Arrival& arrival : std::exchange(held_, {})) {
    waiting_bytes_ -= arrival.frame.payload->size();
    if (!broken_) deliver(session_->on_frame(arrival.from, std::move(arrival.frame)), out);
  }
  return out;
}

void Epoch::deliver(Result<std::vector<Arrival>> arrivals, EpochEvents& out) {
  if (!arrivals) return wrong(session_->culprit(), std::move(arrivals).error(), out);
  for (const Arrival& arrival : arrivals.value()) {
    auto taken = deliver_one(arrival, out);
    if (!taken) return wrong(arrival.from, std::move(taken).error(), out);
  }
}

Result<> Epoch::deliver_one(const Arrival& arrival, EpochEvents& out) {
  const Frame& frame = arrival.frame;
  const FrameKind kind = frame.header.kind;
  if (Reduce::takes(kind)) {
    // A peer to which we send no parameters needs nothing of ours to go on to the next step: its
    // contribution may be there while the last step's reduction still is.
    if (!reduce_ || reduce_->version() != frame.header.version) return wait(waiting_, arrival);
    STARLING_TRY(reduce_->on_frame(arrival.from, frame, transport_));
    reduced_if_done(out);
    return ok();
  }
  if (Gather::takes(kind)) return on_gather(arrival, out);
  if (kind == FrameKind::kMove) return on_move(arrival, out);
  if (kind == FrameKind::kLedger) {
    STARLING_TRY(rows, decode_ledger(*frame.payload));
    out.push_back(epoch_event::LedgerArrived{arrival.from, frame.header.version, std::move(rows)});
    return ok();
  }
  if (kind != FrameKind::kVote) return Error(Code::kCorrupt, "a frame of unknown kind");
  STARLING_TRY(vote, decode_vote(*frame.payload));
  if (vote.version != frame.header.version) return Error(Code::kCorrupt, "vote of another step");
  out.push_back(epoch_event::VoteArrived{arrival.from, std::move(vote)});
  return ok();
}

// A joiner's gather has no version until its first frame, which may come after gather().
Result<> Epoch::on_gather(const Arrival& arrival, EpochEvents& out) {
  const bool first = gather_ && gather_->version() == kNoVersion;
  if (!gather_ || (!first && gather_->version() != arrival.frame.header.version))
    return wait(waiting_, arrival);
  STARLING_TRY(gather_->on_frame(arrival.from, arrival.frame));
  if (first) {
    STARLING_TRY(record, decode_record(gather_->record()));
    out.push_back(epoch_event::GatherBegun{gather_->version(), record});
  }
  if (const auto segment = gather_->differs())
    out.push_back(epoch_event::CopyDiffers{arrival.from, *segment});
  gathered_if_done(out);
  return ok();
}

Result<> Epoch::on_move(const Arrival& arrival, EpochEvents& out) {
  const FrameHeader& header = arrival.frame.header;
  const SegmentRange segments{header.first, header.count};
  const auto& moves = plan().moves;
  const bool planned = std::any_of(moves.begin(), moves.end(), [&](const Move& move) {
    return move.source == arrival.from && move.target == self() && move.segments == segments;
  });
  if (!planned) return Error(Code::kCorrupt, "a move that the plan does not have");
  ByteReader in(*arrival.frame.payload);
  STARLING_TRY(record, decode_record(in.get_sized()));
  (void)record;
  out.push_back(epoch_event::MoveArrived{arrival.from, header.version, segments,
                                         arrival.frame.payload, in.get_bytes(in.remaining())});
  return ok();
}

// A peer can be one step ahead at most, so what waits is bounded by what one step brings in.
Result<> Epoch::wait(std::vector<Arrival>& where, Arrival arrival) {
  waiting_bytes_ += arrival.frame.payload->size();
  where.push_back(std::move(arrival));
  if (where.size() <= options_.limits.frames_max && waiting_bytes_ <= options_.limits.bytes_max)
    return ok();
  return Error(Code::kCorrupt, "too many frames wait, " + std::to_string(where.size()) + " of " +
                                   std::to_string(waiting_bytes_) + " bytes");
}

// R1's rule for versions has let these through.
EpochEvents Epoch::release(bool (*wanted)(FrameKind)) {
  EpochEvents out;
  std::vector<Arrival> now, later;
  for (Arrival& arrival : std::exchange(waiting_, {})) {
    const bool goes = wanted(arrival.frame.header.kind);
    if (goes) waiting_bytes_ -= arrival.frame.payload->size();
    (goes ? now : later).push_back(std::move(arrival));
  }
  waiting_ = std::move(later);
  deliver(std::move(now), out);
  return out;
}

void Epoch::wrong(Rank peer, Error error, EpochEvents& out) {
  broken_ = true;
  out.push_back(epoch_event::Wrong{peer, std::move(error)});
}

// ---- Reduce -----------------------------------------------------------------------------------

void Epoch::open_step(Holders holders) {
  holders_ = std::move(holders);
  reduce_.reset();
  reduced_ = false;
}

EpochEvents Epoch::begin_reduce(Version step, const Sums& sums, const CompleteLanes& complete) {
  if (broken_) return {};
  reduce_.emplace(sums, holders_, ReduceOptions{options_.self, world(), step, complete});
  return release([](FrameKind kind) { return Reduce::takes(kind); });
}

EpochEvents Epoch::contribute(std::uint32_t bucket) {
  EpochEvents out;
  if (broken_) return out;
  if (auto sent = reduce_->contribute(bucket, transport_); !sent)
    wrong(options_.self, std::move(sent).error(), out);
  else
    reduced_if_done(out);
  return out;
}

EpochEvents Epoch::end_share(std::span<const SideEntry> side) {
  EpochEvents out;
  if (broken_) return out;
  if (auto sent = reduce_->end_share(side, transport_); !sent)
    wrong(options_.self, std::move(sent).error(), out);
  else
    reduced_if_done(out);
  return out;
}

void Epoch::reduced_if_done(EpochEvents& out) {
  if (reduced_ || !reduce_->done()) return;
  reduced_ = true;
  out.push_back(epoch_event::Reduced{reduce_->version()});
}

// ---- Gather -----------------------------------------------------------------------------------

EpochEvents Epoch::gather(Version version, Holders holders, const StepRecord& record) {
  EpochEvents out;
  if (broken_) return out;
  const bool begun = options_.joiner && !gathering_;
  if (!begun)
    gather_.emplace(layout_, std::move(holders),
                    GatherOptions{options_.self, world(), version, encode_record(record)}, source_);
  gathering_ = true;
  gathered_ = false;
  gather_->start(transport_);
  gathered_if_done(out);
  EpochEvents more = release([](FrameKind kind) { return Gather::takes(kind); });
  std::move(more.begin(), more.end(), std::back_inserter(out));
  return out;
}

void Epoch::gathered_if_done(EpochEvents& out) {
  if (gathered_ || !gather_->done()) return;
  gathered_ = true;
  out.push_back(epoch_event::Gathered{gather_->version()});
}

// ---- Sending ----------------------------------------------------------------------------------

void Epoch::send_all(FrameKind kind, Version version, Bytes payload) {
  FrameHeader header;
  header.kind = kind;
  header.version = version;
  transport_.send_all(others(options_.self, world()), header, Payload(share(std::move(payload))));
}

void Epoch::send_ready() {
  send_all(FrameKind::kRecord, /*version=*/0, {});
}

void Epoch::send_ledger(Version step, const std::vector<LedgerRow>& rows) {
  send_all(FrameKind::kLedger, step, encode_ledger(rows));
}

void Epoch::send_vote(const Vote& vote) {
  send_all(FrameKind::kVote, vote.version, encode_vote(vote));
}

void Epoch::send_move(Rank target, Version version, const StepRecord& record, SegmentRange segments,
                      SharedBytes states) {
  ByteWriter prefix;
  prefix.put_sized(encode_record(record));
  Payload payload(share(std::move(prefix).take()));
  payload.append(std::move(states));
  FrameHeader header;
  header.kind = FrameKind::kMove;
  header.version = version;
  header.first = segments.first;
  header.count = segments.count;
  transport_.send(target, header, payload);
}

}  // namespace starling::collectives
