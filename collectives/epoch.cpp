#include "collectives/epoch.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/wire/step_codec.h"

namespace starling::collectives {

Epoch::Epoch(EpochOptions options, const Layout& layout, GatherSource& source, FrameSender& sender)
    : options_(std::move(options)), layout_(layout), source_(source), sender_(sender) {
  STARLING_CHECK(options_.self < world());
  if (options_.version != kNoVersion || options_.joiner)
    session_.emplace(world(), options_.version, options_.limits);
  if (!options_.joiner) return;
  gather_.emplace(layout_, Holders(options_.plan, &options_.plan->holders),
                  GatherOptions{options_.self, world(), kNoVersion, {}}, source_);
  gathering_ = Gathering::kJoiner;
}

// ---- Frames -----------------------------------------------------------------------------------

EpochEvents Epoch::on_frame(Rank from, Frame frame) {
  STARLING_CHECK(from < world() && from != options_.self);
  EpochEvents out;
  if (broken_) return out;
  if (frame.header.kind == FrameKind::kReady) {
    out.push_back(epoch_event::PeerReady{plan().id, from});
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
    if (broken_) return;
    auto taken = deliver_one(arrival, out);
    if (!taken) return wrong(arrival.from, std::move(taken).error(), out);
  }
}

Result<> Epoch::deliver_one(const Arrival& arrival, EpochEvents& out) {
  const Frame& frame = arrival.frame;
  const FrameKind kind = frame.header.kind;
  if (Reduce::takes(kind)) {
    // A peer to which we send no parameters can go on to the next step without us: its contribution
    // may arrive while the last step's reduction is still here.
    if (!reduce_ || reduce_->version() != frame.header.version) return wait(waiting_, arrival);
    STARLING_TRY(reduce_->on_frame(arrival.from, frame, sender_));
    begin_rounds();
    go(out);
    return ok();
  }
  if (Gather::takes(kind)) return on_gather(arrival, out);
  if (kind == FrameKind::kMove) return on_move(arrival, out);
  if (kind == FrameKind::kLedger) {
    STARLING_TRY(rows, decode_ledger(*frame.payload));
    out.push_back(
        epoch_event::LedgerArrived{plan().id, arrival.from, frame.header.version, std::move(rows)});
    return ok();
  }
  if (kind != FrameKind::kVote) return Error(Code::kCorrupt, "a frame of unknown kind");
  STARLING_TRY(vote, decode_vote(*frame.payload));
  if (vote.version != frame.header.version) return Error(Code::kCorrupt, "vote of another step");
  out.push_back(epoch_event::VoteArrived{plan().id, arrival.from, std::move(vote)});
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
    out.push_back(epoch_event::GatherBegun{plan().id, gather_->version(), record});
  }
  if (const auto segment = gather_->differs())
    out.push_back(epoch_event::CopyDiffers{arrival.from, *segment});
  go(out);
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
  // The gather has brought the record of the step before; a frame without a readable one is malformed.
  if (auto record = decode_record(in.get_sized()); !record) return std::move(record).error();
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

// The version rule (R1) has already let the waiting frames through.
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
  STARLING_CHECK(!broken_);
  broken_ = true;
  rounds_.clear();
  out.push_back(epoch_event::Wrong{peer, std::move(error)});
}

// ---- Reduce -----------------------------------------------------------------------------------

void Epoch::open_step(Holders holders, std::vector<bool> contributors, std::uint32_t attempt) {
  STARLING_CHECK(attempt == 0 || options_.memory != nullptr || world() == 1);
  if (!broken_) STARLING_CHECK(reducing_ == Reducing::kNone || reducing_ == Reducing::kDone);
  holders_ = std::move(holders);
  contributors_ = std::move(contributors);
  rounds_.clear();
  reduce_.reset();
  device_reduce_.reset();
  reducing_ = Reducing::kNone;
  attempt_ = attempt;
}

EpochEvents Epoch::begin_reduce(Version step, const Sums& sums, const CompleteLanes& complete) {
  if (broken_) return {};
  STARLING_CHECK(reducing_ == Reducing::kNone);
  reducing_ = Reducing::kFrames;
  reduce_.emplace(
      sums, holders_,
      ReduceOptions{options_.self, world(), step, contributors_, complete, on_device()});
  if (on_device())
    device_reduce_.emplace(layout_, holders_, contributors_, options_.self, *options_.memory,
                           options_.round_bytes);
  return release([](FrameKind kind) { return Reduce::takes(kind); });
}

EpochEvents Epoch::contribute(std::uint32_t bucket) {
  EpochEvents out;
  if (broken_) return out;
  if (auto sent = reduce_->contribute(bucket, sender_); !sent)
    wrong(options_.self, std::move(sent).error(), out);
  else
    reduced_if_done(out);
  return out;
}

EpochEvents Epoch::end_share(std::span<const SideEntry> side) {
  EpochEvents out;
  if (broken_) return out;
  if (auto sent = reduce_->end_share(side, sender_); !sent) {
    wrong(options_.self, std::move(sent).error(), out);
    return out;
  }
  begin_rounds();
  go(out);
  return out;
}

// Waits for the shares of all ranks: a round has a deadline, and a rank may compute for longer.
void Epoch::begin_rounds() {
  if (!device_reduce_ || reducing_ != Reducing::kFrames || !reduce_->shares_ended()) return;
  reducing_ = Reducing::kRounds;
  rounds_.add(*device_reduce_, attempt_);
}

void Epoch::reduced_if_done(EpochEvents& out) {
  if (reducing_ != (device_reduce_ ? Reducing::kRounds : Reducing::kFrames)) return;
  if (!reduce_->done() || (device_reduce_ && !device_reduce_->over())) return;
  reducing_ = Reducing::kDone;
  out.push_back(epoch_event::Reduced{reduce_->version()});
}

// ---- Gather -----------------------------------------------------------------------------------

EpochEvents Epoch::gather(Version version, Holders holders, const StepRecord& record) {
  EpochEvents out;
  if (broken_) return out;
  STARLING_CHECK(gathering_ != Gathering::kGoing);
  const bool begun = gathering_ == Gathering::kJoiner;
  STARLING_CHECK(!begun || !on_device() || world() == 1);  // R17: a joiner's first step
  if (!begun) begin_gather(version, std::move(holders), record);
  gathering_ = Gathering::kGoing;
  gather_->start(sender_);
  if (device_gather_) rounds_.add(*device_gather_, attempt_);
  go(out);
  EpochEvents more = release([](FrameKind kind) { return Gather::takes(kind); });
  std::move(more.begin(), more.end(), std::back_inserter(out));
  return out;
}

void Epoch::begin_gather(Version version, Holders holders, const StepRecord& record) {
  gather_.reset();
  device_gather_.reset();
  GatherOptions options{options_.self, world(), version, encode_record(record)};
  if (on_device()) {
    options.on_device = true;
    options.frame_bytes = range_bytes(options_.round_bytes, world());
    device_gather_.emplace(layout_, holders, world(), options_.self, version, source_,
                           *options_.memory, options_.round_bytes);
  }
  GatherSource& source = device_gather_ ? *device_gather_ : source_;
  gather_.emplace(layout_, std::move(holders), std::move(options), source);
}

void Epoch::gathered_if_done(EpochEvents& out) {
  if (gathering_ != Gathering::kGoing || !gather_->done()) return;
  if (device_gather_ && !device_gather_->over()) return;
  gathering_ = Gathering::kDone;
  out.push_back(epoch_event::Gathered{plan().id, gather_->version()});
}

// ---- Rounds -----------------------------------------------------------------------------------

void Epoch::go(EpochEvents& out) {
  if (!broken_) after_rounds(rounds_.go(), out);
}

// An error of a transport names no rank: as a rule all members of the transport see it at once.
void Epoch::after_rounds(Result<> went, EpochEvents& out) {
  if (!went) return wrong(kNoRank, std::move(went).error(), out);
  gathered_if_done(out);
  reduced_if_done(out);
}

EpochEvents Epoch::on_round(std::uint32_t attempt, Result<> ended) {
  EpochEvents out;
  if (broken_ || !rounds_.waiting_for(attempt)) return out;
  if (ended) ended = rounds_.ended();
  after_rounds(std::move(ended), out);
  return out;
}

EpochEvents Epoch::lose_transport(std::uint32_t attempt, Error why) {
  EpochEvents out;
  if (attempt != rounds_.attempt()) return out;
  rounds_.lose();
  if (broken_ || attempt_ != attempt || world() == 1) return out;
  const bool gathering = device_gather_ && !device_gather_->over();
  const bool reducing = device_reduce_ && !device_reduce_->over();
  if (gathering || reducing) wrong(kNoRank, std::move(why), out);
  return out;
}

// ---- Sending ----------------------------------------------------------------------------------

void Epoch::send_all(FrameKind kind, Version version, Bytes payload) {
  FrameHeader header;
  header.kind = kind;
  header.version = version;
  sender_.send_all(others(options_.self, world()), header, Payload(share(std::move(payload))));
}

void Epoch::send_ready() {
  send_all(FrameKind::kReady, /*version=*/0, {});
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
  sender_.send(target, header, payload);
}

}  // namespace starling::collectives
