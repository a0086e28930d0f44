// The communication thread of a simulated worker: what goes over the connections of its epochs.

#include <algorithm>
#include <utility>

#include "collectives/transport.h"
#include "tests/sim/trace.h"
#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

using namespace elastic::worker_event;
using namespace elastic::worker_command;

namespace {

Bytes bytes_of(const StepRecord& r) {
  ByteWriter writer;
  writer.put(r.version);
  writer.put(r.loss);
  writer.put(r.norm);
  writer.put(r.tokens);
  writer.put(static_cast<std::uint8_t>(r.skipped));
  writer.put(r.ledger_hash);
  writer.put(r.digest);
  return std::move(writer).take();
}

StepRecord record_of(ByteView bytes) {
  ByteReader reader(bytes);
  StepRecord r;
  r.version = reader.get<Version>();
  r.loss = reader.get<double>();
  r.norm = reader.get<double>();
  r.tokens = reader.get<std::uint64_t>();
  r.skipped = reader.get<std::uint8_t>() != 0;
  r.ledger_hash = reader.get<std::uint64_t>();
  r.digest = reader.get<Digest>();
  return r;
}

}  // namespace

struct WorkerProcess::Sender : collectives::Transport {
  Sender(WorkerProcess& process, const Link& link) : process_(process), link_(link) {}
  Rank self() const override { return link_.self; }
  Rank world() const override { return link_.world(); }
  void send(Rank to, FrameHeader header, collectives::Payload payload) override {
    process_.world_.oracle().sends(process_, link_.plan->id);
    process_.world_.bulk().send(
        process_, link_.plan->id, link_.plan->members[to].who.nonce,
        {link_.plan->id, collectives::make_frame(header, payload), nullptr});
  }

 private:
  WorkerProcess& process_;
  const Link& link_;
};

Link* WorkerProcess::link(const EpochId& epoch) {
  const auto at = links_.find(epoch);
  return at == links_.end() || at->second.left ? nullptr : &at->second;
}

void WorkerProcess::send_one(const Link& link, Rank to, FrameHeader header, BulkExtra extra) {
  world_.oracle().sends(*this, link.plan->id);
  world_.bulk().send(*this, link.plan->id, link.plan->members[to].who.nonce,
                     {link.plan->id, collectives::make_frame(header, {}),
                      std::make_shared<const BulkExtra>(std::move(extra))});
}

void WorkerProcess::send_all(const Link& link, FrameKind kind, Version version, BulkExtra extra) {
  FrameHeader header;
  header.kind = kind;
  header.version = version;
  for (Rank r = 0; r < link.world(); ++r)
    if (r != link.self) send_one(link, r, header, extra);
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
  replay_waiting(*l);
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
  BulkExtra extra;
  for (SegmentId s = c.segments.first; s < c.segments.first + c.segments.count; ++s)
    extra.states.push_back(store_.states[s]);
  send_one(*l, c.target, header, std::move(extra));
  world_.moment(*this, Moment::kMoveSent, c.version);
}

void WorkerProcess::run(const SendLedger& c) {
  Link* l = link(c.epoch);
  if (l) send_all(*l, FrameKind::kLedger, c.version, {{}, c.rows, {}});
}

void WorkerProcess::run(const SendVote& c) {
  Link* l = link(c.epoch);
  world_.oracle().votes(*this, c.epoch, c.vote);
  if (l) send_all(*l, FrameKind::kVote, c.vote.version, {c.vote, {}, {}});
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
        collectives::GatherOptions{l->self, l->world(), c.version, bytes_of(c.record)}, *this);
  l->gather_started = true;
  Sender sender(*this, *l);
  feeding_ = l;
  l->gather->start(sender);
  feeding_ = nullptr;
  after_collective(*l);
  replay_waiting(*l);
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
  events_.push_back(GatherBegun{feeding_->plan->id, version, record_of(record)});
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
  } else if (!offer(l, from, frame)) {
    l.waiting.emplace_back(from, frame);
  }
}

// A frame of an epoch that was left or stopped, taken for one of the present epoch: what R1
// forbids.
void WorkerProcess::redirect(const BulkFrame& frame, std::uint64_t from_nonce) {
  if (!machine_.run()) return;
  Link* l = link(machine_.run()->plan->id);
  if (!l || frame.frame.header.version != l->current) return;
  const Rank from = Oracle::rank_of(*l->plan, from_nonce);
  if (from == kNoRank) return;
  world_.count("frame of another epoch accepted");
  if (!offer(*l, from, frame)) l->waiting.emplace_back(from, frame);
}

void WorkerProcess::replay_waiting(Link& l) {
  for (std::size_t i = 0; i < l.waiting.size();) {
    const auto [from, frame] = l.waiting[i];
    if (!offer(l, from, frame)) {
      ++i;
      continue;
    }
    l.waiting.erase(l.waiting.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// True if the frame was taken now.
bool WorkerProcess::offer(Link& l, Rank from, const BulkFrame& frame) {
  const Version version = frame.frame.header.version;
  const bool first_gather = l.joiner && l.current == kNoVersion;
  if (first_gather && frame.frame.header.kind == FrameKind::kGather) return take(l, from, frame);
  if (l.current == kNoVersion) return false;
  if (version == l.current) return take(l, from, frame);
  if (version == l.current + 1) return false;  // R1: one step early waits
  world_.oracle().violated("a frame of version " + std::to_string(version) + " at version " +
                           std::to_string(l.current));
  return true;
}

bool WorkerProcess::take(Link& l, Rank from, const BulkFrame& frame) {
  const FrameHeader& header = frame.frame.header;
  const EpochId epoch = l.plan->id;
  world_.oracle().takes(*this, frame.epoch, epoch);
  if (collectives::Reduce::takes(header.kind)) {
    if (!l.reduce || l.reduce_version != header.version) return false;
    Frame arrived = frame.frame;
    if (world_.oracle().plant_lost_contribution(frame.frame))  // arrives, and adds nothing
      arrived = collectives::make_frame(
          header, collectives::Payload(share(Bytes(arrived.payload->size(), 0))));
    Sender sender(*this, l);
    check_collective(l, l.reduce->on_frame(from, arrived, sender), from);
    after_collective(l);
    return true;
  }
  if (collectives::Gather::takes(header.kind)) {
    const bool waits =
        !l.gather || (l.gather->version() != kNoVersion && l.gather->version() != header.version);
    if (waits) return false;
    feeding_ = &l;
    const auto result = l.gather->on_frame(from, frame.frame);
    feeding_ = nullptr;
    check_collective(l, result, from);
    after_collective(l);
    return true;
  }
  if (header.kind == FrameKind::kLedger)
    events_.push_back(LedgerArrived{epoch, from, header.version, frame.extra->rows});
  if (header.kind == FrameKind::kVote)
    events_.push_back(VoteArrived{epoch, from, frame.extra->vote});
  if (header.kind == FrameKind::kMove) take_move(l, frame);
  return true;
}

void WorkerProcess::take_move(Link& l, const BulkFrame& frame) {
  const FrameHeader& header = frame.frame.header;
  for (std::uint32_t i = 0; i < header.count; ++i) {
    store_.held[header.first + i] = true;
    store_.states[header.first + i] = frame.extra->states[i];
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
