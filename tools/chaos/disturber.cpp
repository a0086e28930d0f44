#include "tools/chaos/disturber.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/chaos/processes.h"

namespace starling::chaos {
namespace {

constexpr double kStillThere_s = 0.3;  // after which who was not hit must still be there
constexpr double kNews_s = 1;          // for the event that tells why a process has ended
constexpr double kAftermath_s = 10;    // a fault may end a life so long after it is over
constexpr double kPulse_s = 0.1;

// The process that computes. Before it is known it may be born between a look and a kill, so the
// guard is stopped first and goes with it.
void kill_process(const Player& player) {
  if (player.pid != 0) {
    ::kill(player.pid, SIGKILL);
    return;
  }
  if (player.guard == 0) return;
  ::kill(player.guard, SIGSTOP);
  for (const int child : children_of(player.guard)) ::kill(child, SIGKILL);
  ::kill(player.guard, SIGKILL);
}

}  // namespace

Disturber::Disturber(const Plan& plan, DisturberOptions options, DisturberCalls calls, Cast& cast,
                     const Story& story)
    : options_(options), calls_(std::move(calls)), cast_(cast), story_(story) {
  for (const Fault& fault : plan.faults) {
    Deed deed;
    deed.fault = fault;
    deeds_.push_back(std::move(deed));
  }
}

void Disturber::advance(double now, double first_step_t) {
  first_step_t_ = first_step_t;
  agenda_.advance(now);
  while (next_ < deeds_.size() && first_step_t + deeds_[next_].fault.at_s <= now)
    begin(next_++, now);
}

void Disturber::end(double now) {
  agenda_.drop();
  for (Player& player : cast_.players()) {
    if (player.stopped && player.pid != 0) {
      ::kill(player.pid, SIGCONT);
      player.stopped = false;
    }
    if (player.link_disturbed) restore_link(player);
  }
  for (const auto* pids : {&full_, &full_workers_})
    for (const int pid : *pids) let_write_files(pid, true);
  for (Deed& deed : deeds_) {
    if (deed.outcome != Deed::Outcome::kDone) continue;
    deed.until_t = std::min(std::max(deed.t, deed.until_t), now);
    for (Effect& effect : deed.effects)
      if (!effect.seen && effect.after_s == 0) effect.overtaken = true;
  }
}

void Disturber::begin(std::size_t number, double now) {
  switch (deeds_[number].fault.kind) {
    case FaultKind::kKill:
      return kill(number, now);
    case FaultKind::kStop:
      return stop(number, now);
    case FaultKind::kJoin:
      return join(number, now);
    case FaultKind::kLeave:
      return leave(number, now);
    case FaultKind::kCoordinatorKill:
      return kill_coordinator(number, now);
    case FaultKind::kGuardKill:
      return kill_guard(number, now);
    case FaultKind::kSlow:
      return slow(number, now);
    case FaultKind::kPartition:
      return partition(number, now);
    case FaultKind::kCorrupt:
      return corrupt(number, now);
    case FaultKind::kSlowLink:
      return slow_link(number, now);
    case FaultKind::kDiskFull:
      return fill_disk(number, now);
    case FaultKind::kCheckpointFull:
      return fill_checkpoint_disk(number, now);
  }
}

// ---- Workers ----------------------------------------------------------------------------------

void Disturber::kill(std::size_t number, double now) {
  const auto chosen = to_be_gone(number);
  if (chosen.empty()) return;
  if (that_count() < options_.workers_min + chosen.size() && !options_.last_copies)
    return hold_back(number, "too few workers would be left");
  const std::vector<const Player*> taken(chosen.begin(), chosen.end());
  if (!options_.last_copies && cast_.last_copies(taken))
    return hold_back(number, "they have the last copies of some state");
  std::vector<Target> targets;
  for (Player* player : chosen) targets.push_back(player->target());
  for (Player* player : chosen) {
    kill_process(*player);
    player->killed = true;
  }
  hit(number, now, "kill -9", targets);
  for (const Target& target : targets) {
    expect_gone(number, now, target);
    expect_left_out(number, now, target);
    bring_back(deeds_[number].fault, now);
  }
}

void Disturber::stop(std::size_t number, double now) {
  const auto chosen = choose(number, cast_.members());
  if (chosen.empty()) return;
  if (options_.all_awake && that_count() < options_.workers_min + chosen.size())
    return hold_back(number, "too few workers would be awake");
  const double for_s = deeds_[number].fault.for_s;
  std::vector<Target> targets;
  for (Player* player : chosen) {
    targets.push_back(player->target());
    ::kill(player->pid, SIGSTOP);
    player->stopped = true;
  }
  hit(number, now, "stop for " + seconds_text(for_s), targets);
  deeds_[number].until_t = now + for_s;
  for (const Target& target : targets) {
    // A life that has just been left out may have ended of its own accord.
    const auto seen = std::make_shared<bool>(false);
    const auto look = [seen, pid = target.pid] {
      return *seen = *seen || stopped(pid) || !alive(pid);
    };
    expect(number, now, kSoon_s, process_text(target) + " is stopped, or over", look);
    agenda_.later(now + for_s, [=, this](double then) { wake(number, target, look, then); });
  }
}

// On a busy machine a process may get its first moment to stop in only after a short stop should be
// over, and a SIGCONT that comes before takes the stop back.
void Disturber::wake(std::size_t number, const Target& target,
                     const std::function<bool()>& was_stopped, double now) {
  if (!was_stopped() && now < deeds_[number].t + kSoon_s) {
    agenda_.later(now + kPulse_s,
                  [=, this](double then) { wake(number, target, was_stopped, then); });
    return;
  }
  deeds_[number].until_t = now;
  if (Player* player = cast_.by_process(target.pid)) player->stopped = false;
  if (!alive(target.pid)) return;
  ::kill(target.pid, SIGCONT);
  expect(number, now, kSoon_s, process_text(target) + " goes on",
         [pid = target.pid] { return !stopped(pid); });
}

void Disturber::join(std::size_t number, double now) {
  const Fault& fault = deeds_[number].fault;
  if (cast_.living() + fault.count > options_.workers_max)
    return hold_back(number, std::to_string(cast_.living()) + " workers are there");
  std::vector<Target> targets;
  for (std::uint32_t i = 0; i < fault.count; ++i) {
    Player* player = calls_.start_worker(now);
    if (!player) break;
    if (i < fault.nodes.size()) player->node = fault.nodes[i];
    targets.push_back(player->target());
    targets.back().pid = player->guard;
  }
  if (targets.empty()) return hold_back(number, "no worker can be started");
  hit(number, now, "join", targets);
  for (const Target& target : targets)
    expect(number, now, kJoin_s, target.name + " is a member of an epoch",
           [this, name = target.name, from = story_.epochs.size()] {
             const Player* player = cast_.find(name);
             for (std::size_t i = from; i < story_.epochs.size(); ++i)
               if (player && player->id != 0 && story_.epochs[i].has(player->id)) return true;
             return !player || player->over || player->killed;  // another fault was faster
           });
}

void Disturber::leave(std::size_t number, double now) {
  const auto chosen = to_be_gone(number);
  if (chosen.empty()) return;
  if (that_count() < options_.workers_min + chosen.size())
    return hold_back(number, "too few workers would be left");
  std::vector<Target> targets;
  for (Player* player : chosen) {
    targets.push_back(player->target());
    ::kill(player->guard != 0 ? player->guard : player->pid, SIGTERM);
    player->leaving = true;
  }
  hit(number, now, "leave (SIGTERM)", targets);
  if (const double notice = deeds_[number].fault.for_s; notice > 0)
    agenda_.later(now + notice, [=, this](double then) { take_away(number, targets, then); });
  for (const Target& target : targets) {
    expect(
        number, now, options_.notice_s + kEpoch_s, process_text(target) + " is gone",
        [pid = target.pid] { return !alive(pid); },
        [=, this](double then) { bring_back(deeds_[number].fault, then); });
    expect_left_out(number, now, target);
  }
}

// The notice is over: who is still there is killed.
void Disturber::take_away(std::size_t number, const std::vector<Target>& targets, double now) {
  deeds_[number].until_t = now;
  for (const Target& target : targets) {
    Player* player = cast_.by_process(target.pid);
    if (!player) player = cast_.by_guard(target.pid);
    if (!player || player->over || player->killed) continue;
    say(now, "  the notice is over: kill -9 " + process_text(target));
    kill_process(*player);
    player->killed = true;
  }
}

void Disturber::slow(std::size_t number, double now) {
  const auto chosen = choose(number, cast_.members());
  if (chosen.empty()) return;
  const Fault& fault = deeds_[number].fault;
  std::vector<Target> targets;
  for (Player* player : chosen) targets.push_back(player->target());
  char share[16];
  std::snprintf(share, sizeof share, "%.0f %%", 100 * (1 - fault.share));
  hit(number, now, std::string("slow to ") + share + " for " + seconds_text(fault.for_s), targets);
  deeds_[number].until_t = now + fault.for_s;
  for (const Target& target : targets) pulse(number, target, 0, now);
}

// `seen`: pulses in which the process was found to be stopped.
void Disturber::pulse(std::size_t number, const Target& target, int seen, double now) {
  const Fault& fault = deeds_[number].fault;
  Player* player = cast_.by_process(target.pid);
  const bool over = now >= deeds_[number].t + fault.for_s || !player || !alive(target.pid);
  if (over) {
    if (player) player->stopped = false;
    deeds_[number].until_t = now;
    expect(number, now, kSoon_s, process_text(target) + " was slow and goes on",
           [pid = target.pid, seen] { return !alive(pid) || (seen > 0 && !stopped(pid)); });
    return;
  }
  player->stopped = true;  // to other faults
  ::kill(target.pid, SIGSTOP);
  agenda_.later(now + kPulse_s * fault.share, [=, this](double then) {
    const int found = seen + (stopped(target.pid) ? 1 : 0);
    ::kill(target.pid, SIGCONT);
    agenda_.later(then + kPulse_s * (1 - deeds_[number].fault.share),
                  [=, this](double later) { pulse(number, target, found, later); });
  });
}

void Disturber::kill_guard(std::size_t number, double now) {
  std::vector<Player*> guarded;
  for (Player* player : cast_.members())
    if (player->guard != 0) guarded.push_back(player);
  const auto chosen = choose(number, guarded);
  if (chosen.empty()) return;
  std::vector<Target> targets;
  for (Player* player : chosen) {
    Target guard = player->target();
    guard.pid = player->guard;
    targets.push_back(guard);
    player->killed_guard = player->guard;
    ::kill(player->guard, SIGKILL);
  }
  hit(number, now, "kill -9 the guard of", targets);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Target worker = chosen[i]->target();
    expect_gone(number, now, targets[i], [=, this](double then) {
      agenda_.later(then + kStillThere_s, [=, this](double later) {
        expect(number, later, kNews_s, process_text(worker) + " lives without its guard",
               [=, this] { return alive(worker.pid) || has_other_end(number, worker); });
      });
    });
  }
}

// Whether something besides this deed ends that life: another deed, a restart (it fences all who
// live), the end of the job.
bool Disturber::has_other_end(std::size_t number, const Target& target) const {
  const double since = deeds_[number].t - kAftermath_s;
  const auto hit_it = [&](const Deed& deed) {
    return &deed != &deeds_[number] && deed.outcome == Deed::Outcome::kDone &&
           std::max(deed.t, deed.until_t) >= since &&
           std::any_of(deed.targets.begin(), deed.targets.end(),
                       [&](const Target& other) { return other.pid == target.pid; });
  };
  return story_.over() || std::any_of(deeds_.begin(), deeds_.end(), hit_it) ||
         std::any_of(story_.restarts.begin(), story_.restarts.end(),
                     [&](const RestartSeen& restart) { return restart.t >= since; });
}

// ---- Bookkeeping ------------------------------------------------------------------------------

std::size_t Disturber::that_count() {
  return options_.all_awake ? cast_.members().size() : cast_.living();
}

// Whom a kill or a leave is for: by name wherever they are, also on their way in.
std::vector<Player*> Disturber::to_be_gone(std::size_t number) {
  const auto& nodes = deeds_[number].fault.nodes;
  if (nodes.empty()) return choose(number, cast_.members());
  std::vector<Player*> found;
  for (const std::string& node : nodes) {
    Player* player = cast_.by_node(node);
    if (player && !player->over && !player->killed && !player->leaving) found.push_back(player);
  }
  if (found.empty()) hold_back(number, "they are gone already");
  return found;
}

std::vector<Player*> Disturber::choose(std::size_t number, std::vector<Player*> among) {
  const Fault& fault = deeds_[number].fault;
  if (among.empty()) {
    hold_back(number, story_.over() ? "the run has ended" : "there is nobody to hit");
    return {};
  }
  const auto first = static_cast<std::size_t>(fault.target * static_cast<double>(among.size()));
  std::vector<Player*> chosen;
  for (std::size_t i = 0; i < std::min<std::size_t>(fault.count, among.size()); ++i)
    chosen.push_back(among[(first + i) % among.size()]);
  return chosen;
}

void Disturber::hold_back(std::size_t number, const std::string& why) {
  deeds_[number].outcome = Deed::Outcome::kHeldBack;
  deeds_[number].why = why;
  say(first_step_t_ + deeds_[number].fault.at_s,
      std::string(to_string(deeds_[number].fault.kind)) + " held back: " + why);
}

void Disturber::hit(std::size_t number, double now, const std::string& what,
                    std::vector<Target> targets) {
  Deed& deed = deeds_[number];
  deed.outcome = Deed::Outcome::kDone;
  deed.t = deed.until_t = now;
  deed.targets = std::move(targets);
  std::string text = what;
  for (const Target& target : deed.targets)
    text += (&target == deed.targets.data() ? " " : ", ") + process_text(target);
  say(now, text);
}

void Disturber::expect(std::size_t number, double now, double within_s, const std::string& what,
                       std::function<bool()> seen, std::function<void(double)> then) {
  const std::size_t index = deeds_[number].effects.size();
  deeds_[number].effects.push_back({what, false, false, 0});
  agenda_.expect(now + within_s, std::move(seen),
                 [this, number, index, then = std::move(then)](bool was_seen, double at) {
                   Deed& deed = deeds_[number];
                   Effect& effect = deed.effects[index];
                   effect.seen = was_seen;
                   effect.after_s = std::max(1e-6, at - deed.t);
                   if (!was_seen) say(at, "NOT SEEN: " + effect.what);
                   if (was_seen && then) then(at);
                 });
}

void Disturber::expect_gone(std::size_t number, double now, const Target& target,
                            std::function<void(double)> then) {
  expect(
      number, now, kSoon_s, "process " + std::to_string(target.pid) + " is gone",
      [pid = target.pid] { return !alive(pid); }, std::move(then));
}

// An epoch without that life of it, told after the deed.
void Disturber::expect_left_out(std::size_t number, double now, const Target& target) {
  expect(number, now, options_.notice_s + kEpoch_s, "an epoch begins without " + target.name,
         [this, target, from = story_.epochs.size()] {
           for (std::size_t i = from; i < story_.epochs.size(); ++i)
             if (!story_.epochs[i].has(target.id)) return true;
           return false;
         });
}

void Disturber::bring_back(const Fault& fault, double now) {
  if (fault.back_s <= 0) return;
  agenda_.later(now + fault.back_s, [this](double then) {
    if (Player* player = calls_.start_worker(then))
      say(then, "  " + player->name + " starts (process " + std::to_string(player->guard) + ")");
  });
}

std::vector<Target> Disturber::targets_of(const std::vector<Player*>& players) {
  std::vector<Target> targets;
  for (const Player* player : players) targets.push_back(player->target());
  return targets;
}

std::string Disturber::seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

void Disturber::say(double now, const std::string& text) {
  char time[32];
  std::snprintf(time, sizeof time, "%8.2f s  ", now - first_step_t_);
  calls_.say(time + text);
}

}  // namespace starling::chaos
