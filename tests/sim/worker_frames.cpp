// The communication thread of a simulated worker: what goes over the connections of its epochs.

#include <algorithm>
#include <utility>

#include "collectives/frame_sender.h"
#include "tests/sim/trace.h"
#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

using namespace elastic::worker_event;
using namespace elastic::worker_command;

Link::Link(WorkerProcess& owner, const Connect& c)
    : process(owner),
      plan(c.plan),
      peer_left(c.plan->members.size()),
      open(
          {.plan = c.plan,
           .self = c.self,
           .joiner = c.joiner,
           .version = c.version,
           .memory = owner.world().settings().transport_ready.high == 0 ? nullptr : &owner.memory(),
           .round_bytes = owner.world().settings().round_bytes},
          owner.world().numbers().layout(), owner.memory(), *this) {}

void Link::send(Rank to, FrameHeader header, collectives::Payload payload) {
  if (!process.alive()) return;
  process.world().oracle().sends(process, plan->id);
  process.world().bulk().send(process, plan->id, plan->members[to].who.nonce,
                              {plan->id, collectives::make_frame(header, payload)});
}

Link* WorkerProcess::link(const EpochId& epoch) {
  const auto at = links_.find(epoch);
  return at == links_.end() || at->second.left ? nullptr : &at->second;
}

// ---- Commands ---------------------------------------------------------------------------------

void WorkerProcess::run(const StartReduce& c) {
  memory_.reduces(links_.at(c.epoch).open);
  executor_.execute(c);
}

void WorkerProcess::run(const EndShare& c) {
  ending_share_ = c.version;
  executor_.execute(c);
}

void WorkerProcess::takes_compare(std::function<void()> then) {
  const auto done = [this, then = std::move(then)] {
    then();
    const auto ended = std::exchange(ending_share_, std::nullopt);
    if (ended && alive_) world_.moment(*this, Moment::kReducing, *ended);
  };
  const Micros takes = compare_takes + World::draw(compare_dice_, world_.settings().compare);
  if (takes == 0) return done();
  world_.after(takes, [this, done] { submit(done); });
}

void WorkerProcess::flip(SegmentId segment) {
  if (!alive_ || store_.params_versions[segment] == kNoVersion) return;
  world_.trace("worker " + to_string(who_),
               "a parameter flips, segment " + std::to_string(segment));
  world_.count("parameter flipped");
  store_.flip(segment);
  flipped_ = true;
}

void WorkerProcess::run(const SendMove& c) {
  executor_.execute(c);
  world_.moment(*this, Moment::kMoveSent, c.version);
}

void WorkerProcess::run(const SendVote& c) {
  world_.oracle().votes(*this, c.epoch, c.vote);
  executor_.execute(c);
  world_.moment(*this, Moment::kVoted, c.vote.version);
}

void WorkerProcess::run(const StartGather& c) {
  world_.oracle().gathers(*this, c.version, c.record, *c.holders);
  executor_.execute(c);
  read_parts();
  world_.moment(*this, Moment::kGathering, c.version);
}

// ---- Frames -----------------------------------------------------------------------------------

void WorkerProcess::on_up(const EpochId& epoch) {
  Link* l = link(epoch);
  if (!l || l->stopping || ++l->up < l->world() - 1 || l->connected) return;
  l->connected = true;
  l->transport->begin();
  handle(Connected{epoch});
}

void WorkerProcess::on_end_of_file(const EpochId& epoch, Nonce peer_nonce) {
  broke(epoch, peer_nonce, LinkFault::kEnded);
}

void WorkerProcess::on_unreached(const EpochId& epoch, Nonce peer_nonce) {
  broke(epoch, peer_nonce, LinkFault::kUnreached);
}

void WorkerProcess::on_silent(const EpochId& epoch, Nonce peer_nonce) {
  broke(epoch, peer_nonce, LinkFault::kSilent);
}

void WorkerProcess::broke(const EpochId& epoch, Nonce peer_nonce, LinkFault fault) {
  Link* l = link(epoch);
  if (!l || l->stopping) return;
  const Rank peer = Oracle::rank_of(*l->plan, peer_nonce);
  if (l->peer_left[peer]) return;  // R1: end of file after LEFT is no break
  executor_.give_up(l->open, peer, "", fault);
}

void WorkerProcess::on_frame(const EpochId& epoch, Nonce from_nonce, const BulkFrame& frame) {
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
  } else {
    arrive(l, from, frame.epoch, frame.frame);
  }
}

// A frame of an epoch that was left or stopped, taken for one of the present epoch: what R1
// forbids.
void WorkerProcess::redirect(const BulkFrame& frame, Nonce from_nonce) {
  if (!machine_.run()) return;
  Link* l = link(machine_.run()->plan->id);
  if (!l || l->open.frames.version() == kNoVersion ||
      frame.frame.header.version != l->open.frames.version())
    return;
  const Rank from = Oracle::rank_of(*l->plan, from_nonce);
  if (from == kNoRank) return;
  world_.count("frame of another epoch accepted");
  arrive(*l, from, frame.epoch, frame.frame);
}

void WorkerProcess::arrive(Link& l, Rank from, const EpochId& sent_in, Frame frame) {
  if (frame.header.kind != FrameKind::kReady) world_.oracle().takes(*this, sent_in, l.plan->id);
  if (world_.oracle().plant_lost_contribution(frame))  // arrives, and adds nothing
    frame = collectives::make_frame(frame.header,
                                    collectives::Payload(share(Bytes(frame.payload->size(), 0))));
  const bool parameters = frame.header.kind == FrameKind::kGather;
  if (frame.header.kind != FrameKind::kTransport)
    executor_.on_frame(l.open, from, std::move(frame));
  else if (auto heard = l.transport->on_word(from, *frame.payload); !heard)
    executor_.give_up(l.open, from, heard.error().text());
  if (parameters) read_parts();
}

}  // namespace starling::sim
