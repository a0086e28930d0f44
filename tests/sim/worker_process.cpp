#include "tests/sim/worker_process.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tests/sim/trace.h"
#include "tests/sim/world.h"

namespace starling::sim {

using namespace elastic::worker_event;
using namespace elastic::worker_command;

namespace {
elastic::WorkerConfig config_of(const Settings& s) {
  elastic::WorkerConfig config;
  config.elastic = s.elastic;
  config.checkpoint = s.checkpoint;
  config.micro_batches = s.micro_batches;
  config.steps = s.steps;
  config.segments = s.segments;
  config.heartbeat_ms = s.elastic.lease_ms / 10;
  config.retry_ms = 40;
  config.last_words_ms = 10'000;  // longer than the weather lasts
  config.probe_after = s.probe_after;
  config.loss_scale = s.loss_scale;
  config.evaluates = s.evaluates;
  config.evaluation_width = kEvaluationWidth;
  config.stop_on_nonfinite = s.stop_on_nonfinite;
  config.recheck = {s.elastic.recheck, s.recheck_first, s.seed};
  config.bugs = s.bugs;
  return config;
}
}  // namespace

WorkerProcess::WorkerProcess(World& world, std::uint32_t slot, Nonce nonce)
    : world_(world),
      slot_(slot),
      role_(world.role_of(slot)),
      who_{0, nonce},
      random_(world.settings().seed, mix64(1000 + slot, nonce)),
      compare_dice_(world.settings().seed, mix64(2000 + slot, nonce)),
      machine_(config_of(world.settings())),
      store_(world.numbers()),
      memory_(*this),
      executor_(world.numbers().layout(), memory_, *this, slot_name(slot)) {
  if (world.settings().transport_ready.high == 0) {
    transport_support_.why = "there is none in this world";
  } else {
    // Borrowed: the world has them longer.
    transport_support_.library = {std::shared_ptr<void>(), &world.transports()};
  }
}

WorkerProcess::~WorkerProcess() = default;

std::uint32_t WorkerProcess::place() const {
  return world_.place_of_worker(slot_);
}

void WorkerProcess::start() {
  tick();
  Join join;
  join.fingerprint = kFingerprint;
  join.data = kFingerprint;
  join.who = who_;
  join.name = slot_name(slot_);
  join.host = join.name;
  join.port = 7000;
  join.job_hash = world_.settings().seed;
  join.role = role_;
  submit([this, join] {
    handle(Start{join});
    handle(DataHashed{{1, 1}});
  });
}

// ---- The inbox --------------------------------------------------------------------------------

void WorkerProcess::submit(std::function<void()> action) {
  if (!alive_) return;
  inbox_.push_back(std::move(action));
  drain_inbox();
}

void WorkerProcess::drain_inbox() {
  if (handling_) return;
  handling_ = true;
  while (alive_ && !inbox_.empty() && world_.now() >= paused_until_) {
    const auto action = std::move(inbox_.front());
    inbox_.pop_front();
    action();
    while (alive_ && !events_.empty()) {
      const elastic::WorkerEvent event = std::move(events_.front());
      events_.pop_front();
      handle(event);
    }
  }
  handling_ = false;
}

void WorkerProcess::pause(Micros duration) {
  paused_until_ = std::max(paused_until_, world_.now() + duration);
  world_.trace("worker " + to_string(who_), "paused for " + std::to_string(duration / kMs) + " ms");
  world_.at(paused_until_, [this] { drain_inbox(); });
}

void WorkerProcess::tick() {
  submit([this] { handle(Tick{world_.now_ms()}); });
  if (alive_)
    world_.after(10 * kMs, [this] {
      if (alive_) tick();
    });
}

void WorkerProcess::later(Micros delay, elastic::WorkerEvent event) {
  world_.after(delay,
               [this, event = std::move(event)] { submit([this, event] { handle(event); }); });
}

void WorkerProcess::handle(const elastic::WorkerEvent& event) {
  if (!alive_) return;
  world_.mix(mix64(who_.nonce, event.index()));
  if (world_.tracing() && !std::holds_alternative<Tick>(event))
    world_.trace("worker " + to_string(who_), describe(event));
  if (const auto* done = std::get_if<MicroBatchDone>(&event))
    world_.moment(*this, Moment::kComputed, done->version);
  if (!alive_) return;
  const auto commands = machine_.on(event);
  world_.oracle().after_worker(*this);
  run_commands(commands);
  if (alive_) world_.oracle().after_commands(*this);
  if (const auto* begun = std::get_if<GatherBegun>(&event); begun && alive_)
    world_.moment(*this, Moment::kJoinerEntered, begun->version);
}

void WorkerProcess::receive(const Message& message, Nonce to_nonce) {
  if (to_nonce != who_.nonce) return;
  if (const auto* welcome = std::get_if<Welcome>(&message))
    if (welcome->who.nonce == who_.nonce) who_ = welcome->who;
  if (const auto* committed = std::get_if<Committed>(&message))
    if (const Rank r = Oracle::rank_of(committed->plan, who_.nonce); r != kNoRank)
      who_ = committed->plan.members[r].who;
  handle(Received{message});
}

elastic::WorkerCommands WorkerProcess::as_planted(const elastic::WorkerCommands& commands) {
  const Settings& s = world_.settings();
  if (s.plant_order == OrderFault::kNone || slot_ != 1) return commands;
  elastic::WorkerCommands out;
  for (const auto& command : commands) {
    const bool planted = command.index() == s.plant_order_kind;
    if (planted && s.plant_order == OrderFault::kLeftOut) continue;
    if (planted && s.plant_order == OrderFault::kAfterAnother) {
      held_back_ = command;
      continue;
    }
    out.push_back(command);
    if (planted) out.push_back(command);  // kTwice
    if (held_back_ && command.index() == s.plant_order_after)
      out.push_back(*std::exchange(held_back_, std::nullopt));
  }
  return out;
}

void WorkerProcess::run_commands(const elastic::WorkerCommands& commands) {
  for (const auto& command : as_planted(commands)) {
    if (!alive_) return;
    if (world_.tracing()) {
      const std::string text = describe(command);
      if (!text.empty()) world_.trace("worker " + to_string(who_), "  " + text);
    }
    std::visit([this](const auto& c) { run(c); }, command);
  }
}

// ---- Ending -----------------------------------------------------------------------------------

void WorkerProcess::kill(const char* why) {
  if (!alive_) return;
  world_.trace("worker " + to_string(who_), std::string("killed: ") + why);
  const Faults& f = world_.settings().faults;
  const bool guard = !random_.chance(f.guard_loss);
  if (!guard) world_.count("guard lost with its worker");
  world_.oracle().killed(*this);
  end_life(guard, world_.settings().end_of_file);
  if (world_.settings().roles) world_.after(1 * kMs, [this] { world_.keep_roles(); });
}

void WorkerProcess::end_life(bool guard_reports, Micros end_of_file) {
  alive_ = false;
  for (auto& [epoch, l] : links_) {
    l.open.given_up = true;
    if (l.transport) l.transport->give_up();
  }
  world_.bulk().close_all(*this, end_of_file);
  if (!guard_reports) return;
  world_.after(random_.range(300, 6 * kMs), [this] { world_.guard_reports(slot_, who_); });
}

void WorkerProcess::run(const Exit& c) {
  world_.trace("worker " + to_string(who_), "exit " + std::to_string(c.code) + ": " + c.reason);
  world_.oracle().exited(*this, c);
  if (c.fenced && hung_for() > 0) world_.count("hung worker left out");
  end_life(!c.end, /*end_of_file=*/1 * kMs);
  world_.ended(*this, c);
}

// ---- Commands ---------------------------------------------------------------------------------

void WorkerProcess::run(const ToCoordinators& c) {
  world_.oracle().says(*this, c.body);
  world_.worker_says(*this, c.body, c.turn);
  if (std::holds_alternative<Join>(c.body)) world_.moment(*this, Moment::kJoining, 0);
  if (std::holds_alternative<Report>(c.body))
    world_.moment(*this, Moment::kReported, machine_.version());
  if (std::holds_alternative<starling::Leave>(c.body))
    world_.moment(*this, Moment::kLeaveAnnounced, machine_.version());
  if (std::holds_alternative<Finished>(c.body))
    world_.moment(*this, Moment::kFinished, machine_.version());
}

void WorkerProcess::run(const Initialise& c) {
  if (c.version != 0) {
    const Micros delay = World::draw(random_, world_.settings().shard_write);
    return world_.after(
        delay, [this, c] { when_not_hung([this, c] { submit([this, c] { load(c); }); }); });
  }
  for (SegmentId s = 0; s < store_.params.size(); ++s)
    store_.set_params(s, Numbers::params_of(world_.numbers().initial(s)), 0);
  later(random_.range(100, 20 * kMs), Initialised{c.epoch});
}

void WorkerProcess::load(const Initialise& c) {
  if (!link(c.epoch)) return;  // that plan is over
  const SharedStorage& storage = world_.storage();
  for (SegmentId s = 0; s < c.segments.size(); ++s) {
    if (!c.segments[s]) continue;
    const auto state = storage.load(c.version, s);
    if (!state) {
      world_.count("damaged checkpoint");
      return handle(NotInitialised{c.epoch, "segment " + std::to_string(s) + " is damaged", false});
    }
    store_.held[s] = true;
    store_.states[s] = *state;
  }
  const StepRecord* record = storage.record(c.version);
  if (!record) return handle(NotInitialised{c.epoch, "there is no manifest", false});
  world_.oracle().applied(*this, c.version);
  handle(Initialised{c.epoch, *record});
}

// A copy of the state as it is now; the disk takes its time.
void WorkerProcess::run(const WriteCheckpoint& c) {
  std::map<SegmentId, SegmentState> part;
  for (SegmentId s : c.segments) part[s] = store_.states[s];
  const std::string file = to_string(c.epoch) + "-" + std::to_string(who_.nonce);
  world_.after(World::draw(random_, world_.settings().shard_write), [this, c, part, file] {
    submit([this, c, part, file] {
      ShardWritten written{c.version, c.record, {}, {}};
      if (random_.chance(world_.settings().disk_full))
        written.error = "no space left";
      else
        written.shard = world_.storage().put(c.version, file, part);
      handle(CheckpointWritten{std::move(written)});
    });
  });
}

void WorkerProcess::run(const Hold& c) {
  for (SegmentId s = 0; s < store_.held.size(); ++s) {
    if (c.fresh && c.segments[s] && !store_.held[s]) store_.states[s] = world_.numbers().initial(s);
    if (!c.segments[s]) store_.states[s] = {};
    store_.held[s] = c.segments[s];
  }
}

void WorkerProcess::run(const Connect& c) {
  Link& link = links_.try_emplace(c.plan->id, *this, c).first->second;
  executor_.open(link.open);
  if (link.world() > 1) link.transport = make_transport(c.plan->id);
  world_.oracle().connects(*this, *c.plan);
  for (Rank r = 0; r < link.world(); ++r)
    if (r != c.self)
      world_.bulk().connect(*this, c.self, c.plan->id, c.plan->members[r].who.nonce, r);
  if (link.world() == 1) {
    link.connected = true;
    later(random_.range(10, 100), Connected{c.plan->id});
  }
  world_.moment(*this, Moment::kConnecting, c.version);
}

void WorkerProcess::run(const SayReady& c) {
  executor_.execute(c);
  world_.moment(*this, Moment::kSaidReady, 0);
}

void WorkerProcess::run(const elastic::worker_command::Leave& c) {
  Link* l = link(c.epoch);
  if (!l) return;
  FrameHeader left;
  left.kind = FrameKind::kLeft;
  l->send_all(collectives::others(l->self(), l->world()), left, {});
  l->left = true;
  if (l->transport) l->transport->give_up();
  for (Rank r = 0; r < l->world(); ++r)
    if (l->peer_left[r]) world_.bulk().close_one(*this, c.epoch, l->plan->members[r].who.nonce);
  world_.moment(*this, Moment::kSwitched, machine_.version());
}

void WorkerProcess::run(const Stop& c) {
  const auto at = links_.find(c.epoch);
  const Micros delay = random_.range(50, 2 * kMs);
  if (at != links_.end()) {
    at->second.stopping = true;
    if (at->second.transport) at->second.transport->give_up();
    // The communication thread may handle a little more before it sees the request.
    if (random_.chance(0.5)) world_.bulk().close(*this, c.epoch, random_.range(100, 2 * kMs));
  }
  if (world_.settings().bugs.r8_forget_work && !machine_.pending()) forget_work();
  world_.after(delay, [this, epoch = c.epoch] {
    submit([this, epoch] {
      world_.bulk().close(*this, epoch, random_.range(100, 2 * kMs));
      executor_.close(epoch);
      links_.erase(epoch);
      handle(Stopped{epoch});
    });
  });
  world_.moment(*this, Moment::kStopped, machine_.version());
}

void WorkerProcess::run(const OpenStep& c) {
  world_.oracle().opens(*this, c);
  executor_.execute(c);
}

void WorkerProcess::run(const Apply& c) {
  world_.oracle().applies(*this, c.record);
  executor_.execute(c);
  world_.oracle().applied(*this, c.record.version + 1);
  world_.moment(*this, Moment::kApplied, c.record.version + 1);
}

void WorkerProcess::run(const ClearAccumulators& c) {
  world_.oracle().clears(*this);
  executor_.execute(c);
}

// ---- What came of orders ----------------------------------------------------------------------

void WorkerProcess::tell(elastic::WorkerEvent event) {
  if (!alive_) return;
  if (std::holds_alternative<Reduced>(event))
    return later(random_.range(10, 500), std::move(event));
  if (std::holds_alternative<DigestReady>(event))
    return later(random_.range(100, 3 * kMs), std::move(event));
  const auto* moved = std::get_if<MovedIn>(&event);
  const std::optional<Version> arrived = moved ? std::optional(moved->version) : std::nullopt;
  if (const auto* ready = std::get_if<TransportReady>(&event))
    links_.at(ready->epoch).ready_attempt = ready->attempt;
  if (const auto* lost = std::get_if<TransportLost>(&event))
    links_.at(lost->epoch).ready_attempt = 0;
  events_.push_back(std::move(event));
  if (arrived) world_.moment(*this, Moment::kMoveArrived, *arrived);
}

// A worker whose memory no fault has changed halts only by a fault of the protocol.
void WorkerProcess::halted(int, const std::string& reason) {
  if (!flipped_) return world_.oracle().refused(*this, reason);
  kill(reason.c_str());
}

// In a world whose connections corrupt nothing this can only be a fault of the protocol.
void WorkerProcess::gave_up(actors::OpenEpoch& epoch, Rank peer, const std::string& why) {
  Link& l = links_.at(epoch.id());
  if (l.transport) l.transport->give_up();
  if (why.empty()) return;  // a connection broke
  if (why.find("not as they were published") != std::string::npos &&
      world_.counted("parameter flipped") > 0)
    world_.count("damaged parameters refused");
  else if (peer == kNoRank && why.find("not the sum of its parts") != std::string::npos)
    world_.count("garbage totals refused");
  else if (peer == kNoRank)
    world_.oracle().transport_failed(*this, *l.plan, why);
  else
    world_.oracle().refused(*this, why);
}

}  // namespace starling::sim
