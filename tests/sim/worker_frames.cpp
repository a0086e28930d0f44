// The communication thread of a simulated worker: what goes over the connections of its epochs.

#include <algorithm>
#include <utility>

#include "collectives/transport.h"
#include "core/wire/step_codec.h"
#include "tests/sim/trace.h"
#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

using namespace elastic::worker_event;
using namespace elastic::worker_command;

struct WorkerProcess::Sender : collectives::Transport {
  Sender(WorkerProcess& process, const Link& link) : process_(process), link_(link) {}
  Rank self() const override { return link_.self; }
  Rank world() const override { return link_.world(); }
  void send(Rank to, FrameHeader header, collectives::Payload payload) override {
    process_.world_.oracle().sends(process_, link_.plan->id);
    process_.world_.bulk().send(process_, link_.plan->id, link_.plan->members[to].who.nonce,
                                {link_.plan->id, collectives::make_frame(header, payload)});
  }

 private:
  WorkerProcess& process_;
  const Link& link_;
};

Link* WorkerProcess::link(const EpochId& epoch) {
  const auto at = links_.find(epoch);
  return at == links_.end() || at->second.left ? nullptr : &at->second;
}

void WorkerProcess::send_one(const Link& link, Rank to, const FrameHeader& header,
                             const Bytes& payload) {
  Sender(*this, link).send(to, header, collectives::Payload(share(Bytes(payload))));
}

void WorkerProcess::send_all(const Link& link, FrameKind kind, Version version,
                             const Bytes& payload) {
  FrameHeader header;
  header.kind = kind;
  header.version = version;
  for (Rank r = 0; r < link.world(); ++r)
    if (r != link.self) send_one(link, r, header, payload);
}

// ---- Commands ---------------------------------------------------------------------------------

void WorkerProcess::run(const StartReduce& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  store_.clear_totals();
  l->reduce = std::make_unique<collectives::Reduce>(
      store_.sums(), l->reduce_holders,
      collectives::ReduceOptions{
          l->self, l->world(), c.version,
          complete_lanes(world_.numbers().seed(), c.version, world_.numbers().micro_batches())});
  l->reduce_version = c.version;
  Sender sender(*this, *l);
  check_collective(*l, l->reduce->start(sender), l->self);
  after_collective(*l);
  release_waiting(*l, [](FrameKind kind) { return collectives::Reduce::takes(kind); });
  world_.moment(*this, Moment::kReducing, c.version);
}

void WorkerProcess::run(const SendMove& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  FrameHeader header;
  header.kind = FrameKind::kMove;
  header.version = c.version;
  header.first = c.segments.first;
  header.count = c.segments.count;
  ByteWriter states;
  for (SegmentId s = c.segments.first; s < c.segments.first + c.segments.count; ++s)
    states.put(store_.states[s]);
  send_one(*l, c.target, header, std::move(states).take());
  world_.moment(*this, Moment::kMoveSent, c.version);
}

void WorkerProcess::run(const SendLedger& c) {
  Link* l = link(c.epoch);
  if (l) send_all(*l, FrameKind::kLedger, c.version, encode_ledger(c.rows));
}

void WorkerProcess::run(const SendVote& c) {
  Link* l = link(c.epoch);
  world_.oracle().votes(*this, c.epoch, c.vote);
  if (l) send_all(*l, FrameKind::kVote, c.vote.version, encode_vote(c.vote));
  world_.moment(*this, Moment::kVoted, c.vote.version);
}

void WorkerProcess::run(const StartGather& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  world_.oracle().gathers(*this, c.version, c.record, *c.holders);
  l->keep = c.keep;
  l->gathered = false;
  l->gather_version = c.version;
  if (!(l->joiner && l->gather && !l->gather_started))
    l->gather = std::make_unique<collectives::Gather>(
        world_.numbers().layout(), c.holders,
        collectives::GatherOptions{l->self, l->world(), c.version, encode_record(c.record)}, *this);
  l->gather_started = true;
  Sender sender(*this, *l);
  feeding_ = l;
  l->gather->start(sender);
  feeding_ = nullptr;
  after_collective(*l);
  release_waiting(*l, [](FrameKind kind) { return collectives::Gather::takes(kind); });
  world_.moment(*this, Moment::kGathering, c.version);
}

// ---- Gather's other side ----------------------------------------------------------------------

Bytes WorkerProcess::params(SegmentRange segments) {
  Bytes bytes;
  for (SegmentId s = segments.first; s < segments.first + segments.count; ++s) {
    const SegmentParams p = Numbers::params_of(store_.states[s]);
    if (!feeding_->keep) store_.params[s] = p;
    const ByteView view = as_bytes(std::span<const SegmentParams>(&p, 1));
    bytes.insert(bytes.end(), view.begin(), view.end());
  }
  return bytes;
}

Result<> WorkerProcess::set_params(SegmentRange segments, ByteView bytes) {
  ByteReader reader(bytes);
  for (SegmentId s = segments.first; s < segments.first + segments.count; ++s) {
    const auto p = reader.get<SegmentParams>();
    if (!feeding_->keep) store_.params[s] = p;
  }
  if (!reader.done()) return Error(Code::kCorrupt, "parameters of the wrong size");
  return ok();
}

Result<> WorkerProcess::on_first(Version version, ByteView record) {
  if (!feeding_->joiner || machine_.version() != kNoVersion) return ok();
  feeding_->gather_version = version;
  STARLING_TRY(decoded, decode_record(record));
  events_.push_back(GatherBegun{feeding_->plan->id, version, decoded});
  return ok();
}

// ---- Frames -----------------------------------------------------------------------------------

void WorkerProcess::on_up(const EpochId& epoch) {
  Link* l = link(epoch);
  if (!l || l->stopping || ++l->up < l->world() - 1 || l->connected) return;
  l->connected = true;
  handle(Connected{epoch});
}

void WorkerProcess::on_end_of_file(const EpochId& epoch, std::uint64_t peer_nonce) {
  Link* l = link(epoch);
  if (!l || l->stopping) return;
  const Rank peer = Oracle::rank_of(*l->plan, peer_nonce);
  if (l->peer_left[peer]) return;  // R1: end of file after LEFT is no break
  handle(Broken{epoch, peer});
}

void WorkerProcess::on_frame(const EpochId& epoch, std::uint64_t from_nonce,
                             const BulkFrame& frame) {
  const auto at = links_.find(epoch);
  if (at == links_.end() || at->second.left) {
    if (at != links_.end() && frame.frame.header.kind == FrameKind::kLeft)
      world_.bulk().close_one(*this, epoch, from_nonce);
    else if (world_.settings().bugs.r1_accept_other_epochs)
      redirect(frame, from_nonce);
    return;
  }
  Link& l = at->second;
  const Rank from = Oracle::rank_of(*l.plan, from_nonce);
  if (frame.frame.header.kind == FrameKind::kLeft) {
    l.peer_left[from] = true;
  } else if (frame.frame.header.kind == FrameKind::kRecord) {
    handle(PeerReady{epoch, from});
  } else {
    arrive(l, from, frame.epoch, frame.frame);
  }
}

// A frame of an epoch that was left or stopped, taken for one of the present epoch: what R1
// forbids.
void WorkerProcess::redirect(const BulkFrame& frame, std::uint64_t from_nonce) {
  if (!machine_.run()) return;
  Link* l = link(machine_.run()->plan->id);
  if (!l || !l->session || frame.frame.header.version != l->session->version()) return;
  const Rank from = Oracle::rank_of(*l->plan, from_nonce);
  if (from == kNoRank) return;
  world_.count("frame of another epoch accepted");
  arrive(*l, from, frame.epoch, frame.frame);
}

void WorkerProcess::arrive(Link& l, Rank from, const EpochId& sent_in, const Frame& frame) {
  world_.oracle().takes(*this, sent_in, l.plan->id);
  if (!l.session)
    l.held.push_back({from, frame});
  else
    deliver(l, l.session->on_frame(from, frame));
}

// R1's rule for versions (collectives/tcp/session.h) has let these through, in this order.
void WorkerProcess::deliver(Link& l, Result<std::vector<collectives::Arrival>> arrivals) {
  // In a world whose connections corrupt nothing this can only be a fault of the protocol.
  if (!arrivals) return world_.oracle().violated("R1: " + arrivals.error().text());
  for (const auto& arrival : arrivals.value())
    if (alive_) deliver_one(l, arrival);
}

void WorkerProcess::deliver_one(Link& l, const collectives::Arrival& arrival) {
  const auto& [from, frame] = arrival;
  const FrameHeader& header = frame.header;
  const EpochId epoch = l.plan->id;
  if (collectives::Reduce::takes(header.kind)) {
    if (!l.reduce || l.reduce_version != header.version) return l.waiting.push_back(arrival);
    Frame arrived = frame;
    if (world_.oracle().plant_lost_contribution(frame))  // arrives, and adds nothing
      arrived = collectives::make_frame(
          header, collectives::Payload(share(Bytes(frame.payload->size(), 0))));
    Sender sender(*this, l);
    check_collective(l, l.reduce->on_frame(from, arrived, sender), from);
    after_collective(l);
  } else if (collectives::Gather::takes(header.kind)) {
    const bool waits =
        !l.gather || (l.gather->version() != kNoVersion && l.gather->version() != header.version);
    if (waits) return l.waiting.push_back(arrival);
    feeding_ = &l;
    const auto result = l.gather->on_frame(from, frame);
    feeding_ = nullptr;
    check_collective(l, result, from);
    after_collective(l);
  } else if (header.kind == FrameKind::kLedger) {
    auto rows = decode_ledger(*frame.payload);
    if (!rows) return world_.oracle().violated("a ledger does not survive its codec");
    events_.push_back(LedgerArrived{epoch, from, header.version, std::move(rows).value()});
  } else if (header.kind == FrameKind::kVote) {
    auto vote = decode_vote(*frame.payload);
    if (!vote) return world_.oracle().violated("a vote does not survive its codec");
    events_.push_back(VoteArrived{epoch, from, std::move(vote).value()});
  } else if (header.kind == FrameKind::kMove) {
    take_move(l, frame);
  }
}

void WorkerProcess::release_waiting(Link& l, bool (*wanted)(FrameKind)) {
  std::vector<collectives::Arrival> now, later;
  for (auto& arrival : std::exchange(l.waiting, {}))
    (wanted(arrival.frame.header.kind) ? now : later).push_back(std::move(arrival));
  l.waiting = std::move(later);
  deliver(l, std::move(now));
}

void WorkerProcess::take_move(Link& l, const Frame& frame) {
  const FrameHeader& header = frame.header;
  ByteReader states(*frame.payload);
  for (std::uint32_t i = 0; i < header.count; ++i) {
    store_.held[header.first + i] = true;
    store_.states[header.first + i] = states.get<SegmentState>();
  }
  events_.push_back(MovedIn{l.plan->id, header.version, {header.first, header.count}});
  world_.moment(*this, Moment::kMoveArrived, header.version);
}

void WorkerProcess::check_collective(Link& l, const Result<>& result, Rank from) {
  if (result) return;
  // In a world whose connections corrupt nothing this can only be a fault of the protocol.
  world_.oracle().refused(*this, result.error().text());
  events_.push_back(Broken{l.plan->id, from});
}

void WorkerProcess::after_collective(Link& l) {
  if (l.reduce && !l.reduced && l.reduce->done()) {
    l.reduced = true;
    store_.accepted_version = l.reduce_version;
    for (SegmentId s = 0; s < store_.accepted.size(); ++s) {
      const auto& ranks = (*l.reduce_holders)[s];
      store_.accepted[s] = std::find(ranks.begin(), ranks.end(), l.self) != ranks.end();
    }
    events_.push_back(Reduced{l.plan->id, l.reduce_version});
  }
  if (l.gather && l.gather_started && !l.gathered && l.gather->done()) {
    l.gathered = true;
    events_.push_back(Gathered{l.plan->id, l.gather_version});
  }
}

}  // namespace starling::sim
