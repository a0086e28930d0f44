#include <algorithm>
#include <iterator>
#include <sstream>

#include "tests/sim/random.h"
#include "tests/sim/settings.h"
#include "tests/sim/world.h"

namespace starling::sim {
namespace {

// Off with probability 1/2, else uniform in (0, most].
double rate(Random& random, double most) {
  if (random.chance(0.5)) return 0;
  return most * static_cast<double>(random.range(1, 100)) / 100;
}

void draw_weather(Settings& s, Random& random) {
  s.compute = {random.range(200, 2 * kMs), random.range(2 * kMs, 20 * kMs)};
  s.control_delay = {random.range(20, 1 * kMs), random.range(1 * kMs, 30 * kMs)};
  s.bulk_delay = {random.range(20, 500), random.range(500, 8 * kMs)};
  s.persist = {random.range(50, 1 * kMs), random.range(1 * kMs, 20 * kMs)};
  s.loss = rate(random, 0.3);
  s.duplicate = rate(random, 0.3);
  s.end_of_file = random.range(1 * kMs, 300 * kMs);
  Random speeds(s.seed, /*purpose=*/2);
  s.slow_most = speeds.range(2, 6);
  s.probe_after = static_cast<std::uint32_t>(speeds.range(1, 8));
}

// Moments of a join, a leave or a move: at other odds hardly any of them would be hit.
bool comes_seldom(Moment moment) {
  constexpr Moment kSeldom[] = {Moment::kMoveSent,  Moment::kMoveArrived, Moment::kJoinerEntered,
                                Moment::kSaidReady, Moment::kSwitched,    Moment::kLeaveAnnounced};
  return std::ranges::find(kSeldom, moment) != std::end(kSeldom);
}

void draw_faults(Faults& f, Random& random) {
  f.until = random.range(300 * kMs, 3 * kSecond);
  f.kills = rate(random, 4);
  f.bursts = rate(random, 1);
  f.pauses = rate(random, 4);
  f.partitions = rate(random, 3);
  f.bulk_breaks = rate(random, 4);
  f.bulk_stalls = rate(random, 8);
  f.joins = rate(random, 4);
  f.leaves = rate(random, 3);
  f.coordinator_crashes = rate(random, 3);
  f.leader_and_worker = rate(random, 1);
  f.false_starts = rate(random, 2);
  f.guard_loss = rate(random, 0.5);
  if (random.chance(0.5)) {
    f.targeted = static_cast<std::uint32_t>(random.range(1, static_cast<int>(Moment::kCount)));
    f.targeted_chance = 0.5 / static_cast<double>(random.range(1, 20));
    if (comes_seldom(static_cast<Moment>(f.targeted - 1))) f.targeted_chance = 0.5;
  }
  f.kills_max = static_cast<std::uint32_t>(random.range(1, 8));
}

// From dice of its own, as checkpoints are.
void draw_cuts(Settings& s) {
  Random random(s.seed, /*purpose=*/8);
  s.faults.cuts = rate(random, 4);
  if (random.chance(0.2)) s.faults.loners = 1;
  if (s.coordinators > 1) s.faults.lateness = rate(random, 1);
}

// From dice of its own, as checkpoints are.
void draw_hangs(Settings& s) {
  Random random(s.seed, /*purpose=*/3);
  if (random.chance(0.5)) s.faults.hangs = rate(random, 3);
}

// From dice of its own, so that runs without checkpoints are what they were before there were any.
void draw_checkpoints(Settings& s) {
  Random random(s.seed, /*purpose=*/2);
  if (random.chance(0.5)) return;
  s.checkpoint.every = random.range(1, 6);
  s.checkpoint.keep = static_cast<std::uint32_t>(random.range(1, 3));
  s.shard_write = {random.range(100, 5 * kMs), random.range(5 * kMs, 100 * kMs)};
  if (random.chance(0.3)) s.damage = 0.1;
  if (random.chance(0.2)) s.disk_full = 0.2;
  if (random.chance(0.3)) s.resume_at = Version(random.below(s.steps));
  Random asks(s.seed, /*purpose=*/3);
  if (asks.chance(0.5)) return;
  s.faults.checkpoint_asks = 2;
  if (asks.chance(0.5)) s.checkpoint.every = 1000;  // no other ones
}

// As above.
void draw_transports(Settings& s) {
  Random random(s.seed, /*purpose=*/4);
  if (random.chance(0.5)) return;
  s.transport_ready = {random.range(1 * kMs, 20 * kMs), random.range(20 * kMs, 200 * kMs)};
  s.faults.transport_losses = rate(random, 8);
  s.faults.bad_rounds = rate(random, 0.05);
  s.transport_ms = static_cast<std::uint32_t>(random.range(20, 400));
  s.round_bytes = random.range(1, 16) * kBlock * sizeof(std::int32_t);
}

// As above: from dice of its own.
void draw_logs(Settings& s) {
  Random random(s.seed, /*purpose=*/3);
  s.faults.wipes = rate(random, 1);
  if (random.chance(0.5)) s.log_entries_max = static_cast<std::uint32_t>(random.range(1, 20));
}

// As above: from dice of its own.
void draw_loss_scale(Settings& s) {
  Random random(s.seed, /*purpose=*/5);
  if (random.chance(0.5)) return;
  s.loss_scale = {.on = true,
                  .first = static_cast<std::uint8_t>(random.range(0, LossScaleRule::kMax)),
                  .every = static_cast<std::uint32_t>(random.range(1, 6))};
}

// As above: from dice of its own.
void draw_end(Settings& s) {
  Random random(s.seed, /*purpose=*/8);
  s.evaluates = s.seed % 2 == 0;
  s.stop_on_nonfinite = random.chance(0.125);
  if (random.chance(0.0625)) s.faults.end_at = random.range(50 * kMs, 2 * kSecond);
}

// As above: from dice of its own.
void draw_steers(Settings& s) {
  Random random(s.seed, /*purpose=*/9);
  if (random.chance(0.25)) s.faults.steers = static_cast<int>(random.range(1, 4));
}

// As above: from dice of its own.
void draw_rates(Settings& s) {
  Random random(s.seed, /*purpose=*/11);
  if (random.chance(0.25)) s.faults.rates = static_cast<int>(random.range(1, 4));
}

// As above: from dice of its own.
void draw_roles(Settings& s) {
  s.roles = Random(s.seed, /*purpose=*/10).chance(0.25);
}

void draw_flips(Settings& s) {
  Random random(s.seed, /*purpose=*/7);
  if (random.chance(0.7)) return;
  s.faults.flips = rate(random, 4);
  s.compare = {random.range(0, 1 * kMs), random.range(1 * kMs, 40 * kMs)};
}

// As above: from dice of its own.
void draw_rechecks(Settings& s) {
  Random random(s.seed, /*purpose=*/7);
  if (random.chance(0.7)) return;
  s.elastic.recheck = static_cast<std::uint32_t>(random.range(1, 30));
  s.recheck_first = random.range(0, 10);
}

}  // namespace

Settings draw_settings(std::uint64_t seed) {
  Random random(seed, /*purpose=*/1);
  Settings s;
  s.seed = seed;
  s.micro_batches = static_cast<std::uint32_t>(random.range(1, 12));
  s.steps = random.range(5, 25);
  s.segments = static_cast<std::uint32_t>(random.range(1, 8));
  s.workers = static_cast<std::uint32_t>(random.range(1, 6));
  s.coordinators = random.chance(0.5) ? 1 : 3;
  s.replicas = static_cast<std::uint32_t>(random.range(0, 3));
  s.move_budget = static_cast<std::uint32_t>(random.range(1, 4));
  s.codec = random.chance(0.125);
  draw_weather(s, random);
  draw_faults(s.faults, random);
  draw_checkpoints(s);
  draw_logs(s);
  draw_hangs(s);
  draw_steers(s);
  draw_rates(s);
  draw_loss_scale(s);
  draw_transports(s);
  draw_end(s);
  draw_flips(s);
  draw_cuts(s);
  draw_rechecks(s);
  draw_roles(s);
  return s;
}

std::string to_string(const Settings& s) {
  const Faults& f = s.faults;
  std::ostringstream out;
  out << "seed " << s.seed << ": M " << s.micro_batches << ", steps " << s.steps << ", segments "
      << s.segments << ", workers " << s.workers << ", coordinators " << s.coordinators << ", r "
      << s.replicas << ", budget " << s.move_budget << (s.codec ? ", codec" : "") << "; until "
      << f.until / kMs << " ms, kills " << f.kills << " (at most " << f.kills_max << "), bursts "
      << f.bursts << ", pauses " << f.pauses << ", hangs " << f.hangs << ", partitions "
      << f.partitions << ", cuts " << f.cuts << ", loners " << f.loners << ", breaks "
      << f.bulk_breaks << ", stalls " << f.bulk_stalls << ", transports "
      << s.transport_ready.high / kMs << " ms, lost " << f.transport_losses << ", bad rounds "
      << f.bad_rounds << ", joins " << f.joins << ", leaves " << f.leaves << ", crashes "
      << f.coordinator_crashes << " + " << f.leader_and_worker << ", late " << f.lateness
      << ", wipes " << f.wipes << ", snapshots after " << s.log_entries_max << ", slow "
      << s.slow_most << ", loss " << s.loss << ", guard loss " << f.guard_loss << ", targeted "
      << (f.targeted ? name_of(static_cast<Moment>(f.targeted - 1)) : "nothing") << " "
      << f.targeted_chance << "; checkpoints every " << s.checkpoint.every << ", keep "
      << s.checkpoint.keep << ", resumed at " << s.resume_at << ", damage " << s.damage
      << ", disk full " << s.disk_full << ", asks " << f.checkpoint_asks;
  if (s.roles) out << ", roles";
  if (f.steers > 0) out << ", steers " << f.steers;
  if (f.rates > 0) out << ", rates " << f.rates;
  if (f.flips > 0) out << ", flips " << f.flips << ", compares " << s.compare.high / kMs << " ms";
  if (s.elastic.recheck > 0)
    out << ", recheck " << s.elastic.recheck << ", first " << s.recheck_first;
  if (s.loss_scale.on)
    out << ", loss scale 2^" << int(s.loss_scale.first) << " for " << s.loss_scale.every;
  if (f.end_at != 0) out << ", told to end after " << f.end_at / kMs << " ms";
  if (s.stop_on_nonfinite) out << ", stops at a skipped step";
  return out.str();
}

}  // namespace starling::sim
