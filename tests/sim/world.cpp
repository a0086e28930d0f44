#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>

#include "core/wire/codec.h"

namespace starling::sim {

const char* name_of(Moment moment) {
  static const char* const names[] = {"joining",   "connecting",     "computed",        "reducing",
                                      "move sent", "move arrived",   "voted",           "applied",
                                      "gathering", "joiner entered", "said ready",      "switched",
                                      "stopped",   "reported",       "leave announced", "finished"};
  static_assert(std::size(names) == static_cast<std::size_t>(Moment::kCount));
  return names[static_cast<std::size_t>(moment)];
}

std::string slot_name(std::uint32_t slot) {
  std::string name(1, 'w');
  name += std::to_string(slot);
  return name;
}

World::World(const Settings& settings, bool trace)
    : settings_(settings),
      trace_(trace),
      numbers_(settings.seed, settings.micro_batches, settings.steps, settings.segments,
               settings.loss_scale),
      weather_(settings.seed, 31),
      late_dice_(settings.seed, 32),
      late_(settings.raft_late),
      late_until_(settings.raft_late.high > 0 ? settings.deadline : 0),
      bulk_(*this, settings.seed),
      oracle_(*this, numbers_),
      storage_(settings_, oracle_.reference()),
      transport_dice_(settings.seed, 41),
      transports_({[this](std::uint32_t ms, std::function<void()> what) {
                     after(ms == 0 ? draw(transport_dice_, settings_.bulk_delay) : ms * kMs,
                           std::move(what));
                   },
                   [this](Rank, bool peer_gone) { return transport_fault(peer_gone); }}),
      left_(settings.checkpoint.every == 0 ? std::vector<Checkpoint>()
                                           : storage_.fill(settings.resume_at)),
      faults_(*this) {
  for (std::uint32_t i = 0; i < settings.coordinators; ++i)
    coordinators_.push_back(std::make_unique<CoordinatorProcess>(*this, i));
}

// Transports that end call it.
World::~World() {
  workers_.clear();
}

void World::trace(const std::string& who, const std::string& what) const {
  if (trace_)
    std::fprintf(stderr, "%10.3f ms  %-24s %s\n", static_cast<double>(now_) / kMs, who.c_str(),
                 what.c_str());
}

// ---- Running ----------------------------------------------------------------------------------

void World::at(Micros time, std::function<void()> action) {
  queue_.push({std::max(time, now_), sequence_++, std::move(action)});
}

Outcome World::run() {
  for (auto& coordinator : coordinators_)
    if (!coordinator->alive()) coordinator->start();
  for (std::uint32_t slot = 0; slot < settings_.workers; ++slot)
    after(weather_.range(0, 50 * kMs), [this, slot] { start_worker(slot); });
  slots_ = std::max(slots_, settings_.workers);
  faults_.start();
  at(std::max(settings_.faults.until, 100 * kMs), [this] { settle(); });
  while (!queue_.empty() && oracle_.violation().empty() && !over()) {
    // The copy is cheap next to what an event does; priority_queue hands out only const references.
    const Queued next = queue_.top();
    queue_.pop();
    now_ = next.time;
    if (now_ > settings_.deadline) {
      oracle_.violated("P5: no end after " + std::to_string(now_ / kSecond) +
                       " s: " + oracle_.status());
      break;
    }
    next.action();
    ++events_;
    if (on_event) on_event();
  }
  Outcome outcome;
  outcome.violation = oracle_.violation();
  outcome.event_hash = mix64(hash_, now_);
  outcome.events = events_;
  outcome.ended_at = now_;
  if (oracle_.end()) outcome.exit_code = oracle_.end()->exit_code;
  outcome.coverage = coverage_;
  return outcome;
}

bool World::over() const {
  return oracle_.end() && settled_ && alive_workers() == 0;
}

const JobEnded* World::job_end() const {
  return oracle_.end() ? &*oracle_.end() : nullptr;
}

// From here on nothing goes wrong any more, so the job must end.
void World::settle() {
  settled_ = true;
  heal();
  for (auto& coordinator : coordinators_)
    if (!coordinator->alive()) coordinator->start();
  // A group that lost its state before the first commit starts again, with as many as it wanted.
  while (!oracle_.end() && alive_workers() < settings_.workers) start_worker(slots_);
  keep_roles();
}

void World::keep_roles() {
  if (!settled_ || oracle_.end() || !settings_.roles) return;
  if (!any_stays(computes) || !any_stays(holds)) start_worker(slots_);
}

WorkerRole World::role_of(std::uint32_t slot) const {
  if (!settings_.roles || settled_ || settings_.workers == 1) return WorkerRole::kBoth;
  Random random(settings_.seed, 1000 + slot);
  if (slot == 0) return random.chance(0.5) ? WorkerRole::kBoth : WorkerRole::kHold;
  if (slot == 1) return random.chance(0.5) ? WorkerRole::kBoth : WorkerRole::kCompute;
  return static_cast<WorkerRole>(random.range(1, 3));
}

bool World::any_stays(bool (*does)(WorkerRole)) const {
  return std::ranges::any_of(workers_, [&](const auto& worker) {
    return worker->alive() && does(worker->role()) && !worker->notice_end && !worker->admin_asked;
  });
}

// Without a member who is gone a round ends somehow, or never.
collectives::TransportFault World::transport_fault(bool peer_gone) {
  using collectives::TransportFault;
  constexpr TransportFault kHow[] = {TransportFault::kFails, TransportFault::kGarbage,
                                     TransportFault::kNever};
  if (peer_gone) {
    count("round without a member who is gone");
    return kHow[transport_dice_.below(3)];
  }
  if (now_ >= settings_.faults.until || !transport_dice_.chance(settings_.faults.bad_rounds))
    return TransportFault::kNone;
  const TransportFault how = kHow[transport_dice_.below(3)];
  count(how == TransportFault::kFails     ? "round failed"
        : how == TransportFault::kGarbage ? "round of garbage"
                                          : "round that never ends");
  return how;
}

void World::heal() {
  blocks_.clear();
}

// ---- Processes --------------------------------------------------------------------------------

WorkerProcess& World::start_worker(std::uint32_t slot) {
  slots_ = std::max(slots_, slot + 1);
  const Nonce nonce(mix64(settings_.seed, ++lives_) | 1);
  auto process = std::make_unique<WorkerProcess>(*this, slot, nonce);
  WorkerProcess& started = *process;
  workers_.push_back(std::move(process));
  by_nonce_[nonce] = &started;
  trace("worker " + to_string(started.who()), "starts in slot " + std::to_string(slot));
  started.start();
  return started;
}

WorkerProcess* World::worker_in(std::uint32_t slot) {
  for (auto& worker : workers_)
    if (worker->alive() && worker->slot() == slot) return worker.get();
  return nullptr;
}

std::uint32_t World::alive_workers() const {
  return static_cast<std::uint32_t>(std::count_if(
      workers_.begin(), workers_.end(), [](const auto& worker) { return worker->alive(); }));
}

CoordinatorProcess* World::leader() {
  for (auto& coordinator : coordinators_)
    if (coordinator->leads()) return coordinator.get();
  return nullptr;
}

void World::announce_leave(WorkerProcess& worker, Micros notice) {
  worker.notice_end = now_ + notice;
  worker.submit([&worker, notice] {
    worker.handle(elastic::worker_event::NoticeGiven{Notice{"sim", "", notice / kMs, true}});
  });
  count("leave announced");
  // The machine is taken away whatever the process does; its guard goes a moment later.
  at(*worker.notice_end + 5 * kMs, [&worker] { worker.kill("the notice ended"); });
}

void World::crash_coordinator(std::uint32_t index, Micros down) {
  CoordinatorProcess& coordinator = *coordinators_[index];
  if (!coordinator.alive()) return;
  if (coordinator.leads())
    for (auto& worker : workers_)
      if (worker->alive() && !worker->machine().run() &&
          worker->machine().version() != kNoVersion) {
        count("leader lost while forming");
        break;
      }
  coordinator.crash();
  count("coordinator crashed");
  after(down, [&coordinator] {
    if (!coordinator.alive()) coordinator.start();
  });
}

void World::ended(WorkerProcess& process, const elastic::worker_command::Exit& exit) {
  if (!exit.fenced) return;
  const std::uint32_t slot = process.slot();
  after(weather_.range(5 * kMs, 100 * kMs), [this, slot] {
    if (!oracle_.end() && !worker_in(slot)) start_worker(slot);
  });
}

void World::moment(WorkerProcess& process, Moment moment, Version version) {
  if (on_moment) on_moment(process, moment, version);
  if (process.alive()) faults_.on_moment(process, moment);
}

// ---- The control network ----------------------------------------------------------------------

void World::block(std::uint32_t from, std::uint32_t to, Micros until) {
  Block& block = blocks_[{from, to}];
  if (block.until <= now_) block.since = now_;
  block.until = std::max(block.until, until);
}

bool World::blocked(std::uint32_t from, std::uint32_t to) const {
  const auto at = blocks_.find({from, to});
  return at != blocks_.end() && at->second.until > now_;
}

bool World::blocked_for(std::uint32_t from, std::uint32_t to, Micros time) const {
  return blocked(from, to) && now_ - blocks_.at({from, to}).since >= time;
}

bool World::unheard_for(std::uint32_t place, Micros time) const {
  for (std::uint32_t c = 0; c < settings_.coordinators; ++c)
    if (!blocked_for(place, c, time)) return false;
  return true;
}

bool World::cut_off_for(std::uint32_t place, std::uint32_t other, Micros time) const {
  return blocked_for(place, other, time) || blocked_for(other, place, time);
}

void World::transmit(std::uint32_t from, std::uint32_t to, std::function<void()> deliver) {
  const bool weather = now_ < settings_.faults.until;
  if (weather && weather_.chance(settings_.loss)) return;
  const int copies = weather && weather_.chance(settings_.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i)
    after(draw(weather_, settings_.control_delay), [this, from, to, deliver] {
      if (!blocked(from, to)) deliver();
    });
}

Message World::through_codec(const Incarnation& from, const Incarnation& to, const Message& body) {
  if (!settings_.codec) return body;
  JobId job{};
  job[0] = 1;
  auto envelope = decode(encode(Envelope{job, from, to, body}));
  if (!envelope) {
    oracle_.violated("a message does not survive the codec: " + envelope.error().text());
    return body;
  }
  return std::move(envelope).value().body;
}

void World::worker_says(const WorkerProcess& from, const Message& body,
                        std::optional<std::uint32_t> turn) {
  if (loses && loses(from, body)) return;
  const auto message = std::make_shared<const Message>(through_codec(from.who(), {}, body));
  for (auto& c : coordinators_) {
    CoordinatorProcess* coordinator = c.get();
    if (turn && coordinator->index() != *turn % coordinators_.size()) continue;
    transmit(from.place(), coordinator->index(),
             [coordinator, who = from.who(), slot = from.slot(), message] {
               coordinator->submit([coordinator, who, slot, message] {
                 coordinator->handle(
                     elastic::coordinator_event::WorkerSaid{who, slot_name(slot), *message});
               });
             });
  }
}

void World::coordinator_says(std::uint32_t from, const Incarnation& to, const Message& body) {
  const auto at = by_nonce_.find(to.nonce);
  if (at == by_nonce_.end()) return;
  WorkerProcess* worker = at->second;
  const auto message =
      std::make_shared<const Message>(through_codec({1, Nonce(from + 1)}, to, body));
  transmit(from, worker->place(), [worker, message, nonce = to.nonce] {
    worker->submit([worker, message, nonce] { worker->receive(*message, nonce); });
  });
}

void World::raft_says(const RaftMessage& message) {
  if (message.to >= coordinators_.size()) return oracle_.violated("Raft sends to nobody");
  CoordinatorProcess* to = coordinators_[message.to].get();
  const auto sent =
      through_codec({1, Nonce(message.from + 1)}, {1, Nonce(message.to + 1)}, Message{message});
  const auto deliver = [to, sent] {
    to->submit([to, sent] {
      const auto& raft = std::get<RaftMessage>(sent);
      to->handle(elastic::coordinator_event::RaftArrived{raft.from, raft});
    });
  };
  if (now_ >= late_until_) return transmit(message.from, message.to, deliver);
  after(draw(late_dice_, late_), [this, from = message.from, place = message.to, deliver] {
    transmit(from, place, deliver);
  });
}

// A guard says it again until it has reason to think that everybody knows.
void World::guard_reports(std::uint32_t slot, const Incarnation& who) {
  if (oracle_.end()) return;
  const auto message = std::make_shared<const Message>(Death{who});
  for (auto& c : coordinators_) {
    CoordinatorProcess* to = c.get();
    transmit(place_of_worker(slot), to->index(), [to, who, slot, message] {
      to->submit([to, who, slot, message] {
        to->handle(elastic::coordinator_event::WorkerSaid{who, slot_name(slot), *message});
      });
    });
  }
  if (now_ < settings_.faults.until + 5 * kSecond)
    after(50 * kMs, [this, slot, who] { guard_reports(slot, who); });
}

}  // namespace starling::sim
