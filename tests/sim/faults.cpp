#include "tests/sim/faults.h"

#include <cmath>

#include "tests/sim/world.h"

namespace starling::sim {

FaultInjector::FaultInjector(World& world)
    : world_(world),
      random_(world.settings().seed, 21),
      wipes_(world.settings().seed, 22),
      cuts_(world.settings().seed, 23),
      admin_(world.settings().seed, 24),
      rates_(world.settings().seed, 25) {}

void FaultInjector::start() {
  const Faults& f = world_.settings().faults;
  repeat(f.kills, &FaultInjector::kill_one);
  repeat(f.bursts, &FaultInjector::kill_several);
  repeat(f.pauses, &FaultInjector::pause_one);
  repeat(f.hangs, &FaultInjector::hang_one);
  repeat(f.partitions, &FaultInjector::partition);
  repeat(f.cuts, &FaultInjector::cut_pair);
  if (cuts_.chance(f.loners)) seclude_one();
  repeat(f.lateness, &FaultInjector::make_coordinators_late);
  repeat(f.bulk_breaks, &FaultInjector::break_connection);
  repeat(f.bulk_stalls, &FaultInjector::stall_connection);
  repeat(f.transport_losses, &FaultInjector::lose_transport);
  repeat(f.joins, &FaultInjector::join);
  repeat(f.leaves, &FaultInjector::leave);
  repeat(f.coordinator_crashes, &FaultInjector::crash_coordinator);
  repeat(f.leader_and_worker, &FaultInjector::crash_leader_and_worker);
  repeat(f.false_starts, &FaultInjector::false_start);
  repeat(f.checkpoint_asks, &FaultInjector::ask_checkpoint);
  if (f.end_at != 0) world_.after(f.end_at, [this] { end_run(); });
  repeat(f.flips, &FaultInjector::flip_one);
  for (int i = 0; i < f.steers; ++i)
    world_.after(admin_.range(1 * kMs, f.until), [this] { steer(); });
  for (int i = 0; i < f.rates; ++i)
    world_.after(rates_.range(1 * kMs, f.until), [this] { change_rate(); });
}

void FaultInjector::repeat(double rate, void (FaultInjector::*action)()) {
  if (rate <= 0) return;
  const double uniform = static_cast<double>(random_.next() >> 11) * 0x1p-53;
  const auto wait = static_cast<Micros>(-std::log(1 - uniform) / rate * kSecond) + 1;
  if (world_.now() + wait >= world_.settings().faults.until) return;
  world_.after(wait, [this, rate, action] {
    (this->*action)();
    repeat(rate, action);
  });
}

WorkerProcess* FaultInjector::any_worker() {
  return world_.worker_in(static_cast<std::uint32_t>(random_.below(world_.slots())));
}

bool FaultInjector::kill(WorkerProcess& process, const char* why) {
  if (!process.alive() || kills_ >= world_.settings().faults.kills_max) return false;
  ++kills_;
  if (!process.machine().run() || process.machine().version() == kNoVersion)
    world_.count("joiner killed");
  process.kill(why);
  if (world_.any_stays(holds) && !world_.any_stays(computes))
    world_.count("everybody who computes was lost");
  return true;
}

void FaultInjector::kill_one() {
  if (WorkerProcess* process = any_worker()) kill(*process, "killed");
}

void FaultInjector::kill_several() {
  const std::uint64_t count = random_.range(2, 3);
  for (std::uint64_t i = 0; i < count; ++i) world_.after(burst_delay(), [this] { kill_one(); });
  world_.count("burst of kills");
}

void FaultInjector::pause_one() {
  const Micros duration = random_.chance(0.7) ? random_.range(1 * kMs, 200 * kMs)
                                              : random_.range(200 * kMs, 2 * kSecond);
  if (world_.settings().coordinators > 1 && random_.chance(0.2)) {
    world_.coordinator(random_.below(world_.settings().coordinators)).pause(duration);
    world_.count("coordinator paused");
  } else if (WorkerProcess* process = any_worker()) {
    process->pause(duration);
    world_.count("worker paused");
  }
}

void FaultInjector::hang_one() {
  const std::uint64_t length = random_.below(10);
  const Micros duration = length < 5   ? random_.range(5 * kMs, 500 * kMs)
                          : length < 8 ? random_.range(500 * kMs, 10 * kSecond)
                                       : random_.range(10 * kSecond, 40 * kSecond);
  WorkerProcess* process = any_worker();
  if (!process) return;
  process->hang(duration);
  world_.count("worker hung");
}

void FaultInjector::partition() {
  const std::uint32_t places = world_.settings().coordinators + world_.slots();
  const Micros until =
      std::min(world_.now() + random_.range(5 * kMs, 1500 * kMs), world_.settings().faults.until);
  const bool one_way = random_.chance(0.3);
  const bool single = random_.chance(0.5);
  const auto lonely = static_cast<std::uint32_t>(random_.below(places));
  const std::uint64_t sides = random_.next();
  for (std::uint32_t a = 0; a < places; ++a)
    for (std::uint32_t b = 0; b < places; ++b) {
      const bool left = single ? a == lonely : (sides >> a & 1) != 0;
      const bool right = single ? b != lonely : (sides >> b & 1) == 0;
      if (!left || !right) continue;
      world_.block(a, b, until);
      if (!one_way) world_.block(b, a, until);
    }
  world_.bulk().on_partition();
  world_.count("partition");
}

// Both are heard by the coordinators and by everybody else.
void FaultInjector::cut_pair() {
  const std::uint32_t slots = world_.slots();
  if (slots < 2) return;
  const auto a = static_cast<std::uint32_t>(cuts_.below(slots));
  const auto b = static_cast<std::uint32_t>((a + 1 + cuts_.below(slots - 1)) % slots);
  const Micros until =
      std::min(world_.now() + cuts_.range(5 * kMs, 3 * kSecond), world_.settings().faults.until);
  world_.block(world_.place_of_worker(a), world_.place_of_worker(b), until);
  if (cuts_.chance(0.7)) world_.block(world_.place_of_worker(b), world_.place_of_worker(a), until);
  world_.bulk().on_cut();
  world_.count("pair of workers cut");
}

// From before the first plan on.
void FaultInjector::seclude_one() {
  const std::uint32_t slots = world_.settings().workers;
  if (slots < 2) return;
  const auto loner = static_cast<std::uint32_t>(cuts_.below(slots));
  const Micros until =
      std::min(cuts_.range(300 * kMs, 3 * kSecond), world_.settings().faults.until);
  for (std::uint32_t other = 0; other < slots + 4; ++other)
    if (other != loner)
      world_.block(world_.place_of_worker(other), world_.place_of_worker(loner), until);
  world_.count("worker of the start unreachable");
}

void FaultInjector::make_coordinators_late() {
  const Micros most = cuts_.range(20 * kMs, 800 * kMs);
  world_.make_late({0, most}, std::min(world_.now() + cuts_.range(100 * kMs, 2 * kSecond),
                                       world_.settings().faults.until));
  world_.count("coordinators late");
}

void FaultInjector::break_connection() {
  if (world_.bulk().break_one()) world_.count("connection broken");
}

void FaultInjector::stall_connection() {
  if (world_.bulk().stall_one(random_.range(5 * kMs, 300 * kMs)))
    world_.count("connection stalled");
}

// One member finds out; the others learn of it by its words, or by rounds that do not end.
void FaultInjector::lose_transport() {
  WorkerProcess* first = any_worker();
  if (!first || !first->machine().run()) return;
  const EpochId epoch = first->machine().run()->plan->id;
  const auto link = first->links().find(epoch);
  if (link == first->links().end() || !link->second.transport) return;
  const std::uint32_t attempt = link->second.transport->attempt();
  if (attempt == 0) return;
  world_.count("transport lost");
  first->submit([first, epoch, attempt] { first->lose_transport(epoch, attempt); });
}

void FaultInjector::flip_one() {
  WorkerProcess* process = any_worker();
  const auto segment = SegmentId(random_.below(world_.settings().segments));
  if (process) process->submit([process, segment] { process->flip(segment); });
}

void FaultInjector::join() {
  if (world_.alive_workers() < 7) world_.start_worker(world_.slots());
}

void FaultInjector::ask_checkpoint() {
  for (std::uint32_t i = 0; i < world_.settings().coordinators; ++i) {
    CoordinatorProcess& process = world_.coordinator(i);
    process.submit([&process] { process.handle(elastic::coordinator_event::AskCheckpoint{}); });
  }
  world_.count("asked for a checkpoint");
}

// All coordinators are told, and again, as one that begins again has forgotten it.
void FaultInjector::end_run() {
  if (world_.job_end()) return;
  world_.count("told to end");
  for (std::uint32_t i = 0; i < world_.settings().coordinators; ++i) {
    CoordinatorProcess& process = world_.coordinator(i);
    process.submit([&process] {
      process.handle(elastic::coordinator_event::EndRun{kEndSignal, "told to end"});
    });
  }
  world_.after(100 * kMs, [this] { end_run(); });
}

// An admin drains or evicts a worker. The worker's machine stays, and the worker hears of it when it is released.
void FaultInjector::steer() {
  WorkerProcess* process =
      world_.worker_in(static_cast<std::uint32_t>(admin_.below(world_.slots())));
  if (!process) return;
  const bool evict = admin_.chance(0.5);
  world_.count(evict ? "asked to evict" : "asked to drain");
  process->admin_asked = true;
  ask({evict ? AdminAction::kEvict : AdminAction::kDrain, slot_name(process->slot()),
       process->nonce()},
      /*times=*/20);
}

void FaultInjector::change_rate() {
  world_.count("asked for another rate");
  AdminAsked asked{.action = AdminAction::kRate, .worker = {}};
  asked.peak_rate = static_cast<double>(rates_.range(1, 1000));
  ask(asked, /*times=*/3);
}

void FaultInjector::ask(AdminAsked asked, int times) {
  for (std::uint32_t i = 0; i < world_.settings().coordinators; ++i) {
    CoordinatorProcess& process = world_.coordinator(i);
    process.submit([&process, asked] {
      process.handle(elastic::coordinator_event::AdminArrived{{0, Nonce(1)}, "admin", asked});
    });
  }
  if (times > 1) world_.after(50 * kMs, [this, asked, times] { ask(asked, times - 1); });
}

void FaultInjector::false_start() {
  if (world_.alive_workers() >= 7) return;
  WorkerProcess* process = &world_.start_worker(world_.slots());
  world_.after(random_.range(1 * kMs, 150 * kMs),
               [this, process] { kill(*process, "false start"); });
}

void FaultInjector::leave() {
  WorkerProcess* process = any_worker();
  if (process && !process->notice_end)
    world_.announce_leave(*process, random_.range(20 * kMs, 3 * kSecond));
}

void FaultInjector::crash_coordinator() {
  const auto index = static_cast<std::uint32_t>(random_.below(world_.settings().coordinators));
  world_.crash_coordinator(index, random_.range(10 * kMs, 600 * kMs));
  wipe(index);
}

// More than a minority of folders that are lost at once: nobody can know what was promised, and the
// group refuses to go on.
void FaultInjector::wipe(std::uint32_t index) {
  const std::uint32_t group = world_.settings().coordinators;
  CoordinatorProcess& coordinator = world_.coordinator(index);
  if (coordinator.alive() || !wipes_.chance(world_.settings().faults.wipes)) return;
  std::uint32_t whole = 0;
  for (std::uint32_t i = 0; i < group; ++i) whole += i != index && world_.coordinator(i).whole();
  if (whole < group / 2 + 1) return;
  coordinator.wipe();
  world_.count("coordinator wiped");
}

void FaultInjector::crash_leader_and_worker() {
  CoordinatorProcess* leader = world_.leader();
  if (!leader) return;
  world_.crash_coordinator(leader->index(), random_.range(10 * kMs, 600 * kMs));
  wipe(leader->index());
  world_.after(burst_delay(), [this] { kill_one(); });
  world_.count("leader and worker lost together");
}

void FaultInjector::on_moment(WorkerProcess& process, Moment moment) {
  const Faults& f = world_.settings().faults;
  if (f.targeted != static_cast<std::uint32_t>(moment) + 1 || world_.now() >= f.until) return;
  if (!random_.chance(f.targeted_chance)) return;
  if (!kill(process, name_of(moment))) return;
  world_.count(std::string("killed when: ") + name_of(moment));
  if (random_.chance(0.2)) crash_leader_and_worker();
  if (random_.chance(0.2)) kill_several();
}

}  // namespace starling::sim
