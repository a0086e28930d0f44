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
      frames({.plan = c.plan,
              .self = c.self,
              .joiner = c.joiner,
              .version = c.version,
              .memory = owner.world().settings().transport_ready.high == 0 ? nullptr : this,
              .round_bytes = owner.world().settings().round_bytes},
             owner.world().numbers().layout(), *this, *this) {}

void Link::send(Rank to, FrameHeader header, collectives::Payload payload) {
  process.world().oracle().sends(process, plan->id);
  process.world().bulk().send(process, plan->id, plan->members[to].who.nonce,
                              {plan->id, collectives::make_frame(header, payload)});
}

void Link::publish(Version version, SegmentRange segments) {
  Store& store = process.store();
  for (const SegmentId s : segments)
    store.set_params(s, Numbers::params_of(store.states[s]), version);
}

Bytes Link::params(SegmentRange segments) {
  ByteWriter bytes;
  for (const SegmentId s : segments) {
    bytes.put(process.store().params[s]);
    bytes.put(process.store().params_sums[s]);
  }
  return std::move(bytes).take();
}

std::vector<std::uint64_t> Link::checksums(SegmentRange segments) {
  std::vector<std::uint64_t> sums;
  for (const SegmentId s : segments) sums.push_back(process.store().params_sums[s]);
  return sums;
}

Result<> Link::set_params(Version version, SegmentRange segments, ByteView bytes) {
  ByteReader reader(bytes);
  for (const SegmentId s : segments) {
    const auto p = reader.get<SegmentParams>();
    const auto sum = reader.get<std::uint64_t>();
    if (sum != Numbers::hash_of({&p, 1}) && !process.world().settings().plant_unproven_words)
      return Error(Code::kCorrupt, "parameters that are not as they were published");
    process.store().set_params(s, p, version);
  }
  if (!reader.done()) return Error(Code::kCorrupt, "parameters of the wrong size");
  return ok();
}

Link* WorkerProcess::link(const EpochId& epoch) {
  const auto at = links_.find(epoch);
  return at == links_.end() || at->second.left ? nullptr : &at->second;
}

// ---- Commands ---------------------------------------------------------------------------------

void WorkerProcess::run(const StartReduce& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  store_.clear_totals();
  const Numbers& numbers = world_.numbers();
  l->share = c.micro_batches;
  l->owned = c.owned;
  l->sent.assign(numbers.layout().buckets(), false);
  take(*l, l->frames.begin_reduce(c.version, store_.sums(),
                                  CompleteLanes(numbers.seed(), c.version, numbers.micro_batches(),
                                                numbers.layout().uses_max())));
  contribute(*l);
}

// What of the own sums is final and was not sent.
void WorkerProcess::contribute(Link& l) {
  const Layout& layout = world_.numbers().layout();
  for (std::uint32_t b = 0; b < l.sent.size() && alive_; ++b) {
    const bool early = world_.settings().plant_early_bucket && l.share > 1 &&
                       store_.added_to(layout.bucket(b), l.share - 1);
    if (l.sent[b] || (!early && !store_.added_to(layout.bucket(b), l.share))) continue;
    l.sent[b] = true;
    if (computing_) world_.count("sums sent while computing");
    take(l, l.frames.contribute(b));
  }
}

void WorkerProcess::run(const EndShare& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  contribute(*l);
  if (!alive_) return;
  if (std::find(l->sent.begin(), l->sent.end(), false) != l->sent.end())
    return world_.oracle().refused(*this, "sums that do not have the micro-batches of the share");
  if (world_.settings().plant_rows_first) {
    send_rows(*l, c);
    compare([] {});
    return;
  }
  compare([this, c] {
    Link* now = link(c.epoch);
    if (now && !now->stopping && now->frames.version() == c.version) send_rows(*now, c);
  });
}

// R4: what the share was computed from is what it was, or this life is over.
void WorkerProcess::compare(std::function<void()> then) {
  const auto done = [this, then = std::move(then)] {
    if (store_.params_intact()) return then();
    world_.count("damage found before the rows left");
    kill("its working parameters changed");
  };
  const Micros takes = compare_takes + World::draw(compare_dice_, world_.settings().compare);
  if (takes == 0) return done();
  world_.after(takes, [this, done] { submit(done); });
}

void WorkerProcess::send_rows(Link& l, const EndShare& c) {
  if (!c.rows.empty()) l.frames.send_ledger(c.version, c.rows);
  take(l, l.frames.end_share(store_.side));
  world_.moment(*this, Moment::kReducing, c.version);
}

void WorkerProcess::flip(SegmentId segment) {
  if (!alive_ || store_.params_versions[segment] == kNoVersion) return;
  world_.trace("worker " + to_string(who_),
               "a parameter flips, segment " + std::to_string(segment));
  world_.count("parameter flipped");
  store_.flip(segment);
  flipped_ = true;
}

void WorkerProcess::run(const Compare& c) {
  compare([this, c] { handle(Compared{c.epoch, c.version}); });
}

void WorkerProcess::run(const SendMove& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  ByteWriter states;
  for (const SegmentId s : c.segments) states.put(store_.states[s]);
  l->frames.send_move(c.target, c.version, c.record, c.segments, share(std::move(states).take()));
  world_.moment(*this, Moment::kMoveSent, c.version);
}

void WorkerProcess::run(const SendVote& c) {
  Link* l = link(c.epoch);
  world_.oracle().votes(*this, c.epoch, c.vote);
  if (l) l->frames.send_vote(c.vote);
  world_.moment(*this, Moment::kVoted, c.vote.version);
}

void WorkerProcess::run(const StartGather& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  world_.oracle().gathers(*this, c.version, c.record, *c.holders);
  if (std::exchange(gathering_, c.version) == c.version && !store_.params_intact(c.version))
    return kill("its working parameters changed");
  take(*l, l->frames.gather(c.version, c.holders, c.record));
  read_parts();
  world_.moment(*this, Moment::kGathering, c.version);
}

// ---- Frames -----------------------------------------------------------------------------------

void WorkerProcess::on_up(const EpochId& epoch) {
  Link* l = link(epoch);
  if (!l || l->stopping || ++l->up < l->world() - 1 || l->connected) return;
  l->connected = true;
  try_transport(*l);
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
  handle(Broken{epoch, peer, fault});
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
  if (!l || l->frames.version() == kNoVersion || frame.frame.header.version != l->frames.version())
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
  take(l, l.frames.on_frame(from, std::move(frame)));
  if (parameters) read_parts();
}

// ---- What came of them ------------------------------------------------------------------------

void WorkerProcess::take(Link& l, collectives::EpochEvents events) {
  for (auto& e : events) {
    if (!alive_) return;
    std::visit([&](auto& one) { take(l, one); }, e);
  }
}

void WorkerProcess::take(Link& l, const collectives::epoch_event::Reduced& e) {
  if (!world_.settings().plant_unweighed && !store_.weighs_right(*l.holders, l.self())) {
    if (!l.frames.on_device())
      return world_.oracle().refused(*this, "a total that is not the sum of its parts");
    world_.count("garbage totals refused");
    return events_.push_back(Broken{l.plan->id, kNoRank});
  }
  store_.accepted_version = e.version;
  for (SegmentId s = 0; s < store_.accepted.size(); ++s) {
    const auto& ranks = (*l.holders)[s];
    store_.accepted[s] = std::find(ranks.begin(), ranks.end(), l.self()) != ranks.end();
  }
  measure(l.plan->id, e.version, l.owned);
}

void WorkerProcess::take(Link& l, collectives::epoch_event::GatherBegun& e) {
  events_.push_back(GatherBegun{l.plan->id, e.version, e.record});
}

void WorkerProcess::take(Link& l, const collectives::epoch_event::Gathered& e) {
  events_.push_back(Gathered{l.plan->id, e.version});
}

// In a world whose memory and arithmetic are right this can only be a fault of the protocol.
void WorkerProcess::take(Link&, const collectives::epoch_event::CopyDiffers& e) {
  world_.oracle().refused(
      *this, "the copy of segment " + std::to_string(e.segment) + " is not as its owner's");
}

void WorkerProcess::take(Link& l, const collectives::epoch_event::MoveArrived& e) {
  ByteReader states(e.states);
  for (const SegmentId s : e.segments) {
    store_.held[s] = true;
    store_.states[s] = states.get<SegmentState>();
  }
  events_.push_back(MovedIn{l.plan->id, e.version, e.segments});
  world_.moment(*this, Moment::kMoveArrived, e.version);
}

void WorkerProcess::take(Link& l, collectives::epoch_event::LedgerArrived& e) {
  events_.push_back(LedgerArrived{l.plan->id, e.from, e.version, std::move(e.rows)});
}

void WorkerProcess::take(Link& l, collectives::epoch_event::VoteArrived& e) {
  events_.push_back(VoteArrived{l.plan->id, e.from, std::move(e.vote)});
}

void WorkerProcess::take(Link& l, const collectives::epoch_event::PeerReady& e) {
  events_.push_back(PeerReady{l.plan->id, e.from});
}

// In a world whose connections corrupt nothing this can only be a fault of the protocol.
void WorkerProcess::take(Link& l, const collectives::epoch_event::Wrong& e) {
  if (e.error.text().find("not as they were published") != std::string::npos &&
      world_.counted("parameter flipped") > 0)
    world_.count("damaged parameters refused");
  else if (e.peer == kNoRank)
    world_.oracle().transport_failed(*this, *l.plan, e.error.text());
  else
    world_.oracle().refused(*this, e.error.text());
  events_.push_back(Broken{l.plan->id, e.peer});
}

}  // namespace starling::sim
