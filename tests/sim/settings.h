#pragma once
// One simulated run: the job, the group, the weather and the faults. Drawn from a seed by the swarm
// (swarm.cpp), or written down by a directed schedule.

#include <cstdint>
#include <string>

#include "core/base/ids.h"
#include "core/base/loss_scale.h"
#include "core/job/layout.h"
#include "core/job/sections.h"
#include "elastic/protocol/bugs.h"

namespace starling::sim {

using Micros = std::uint64_t;  // virtual time
inline constexpr Micros kMs = 1000;
inline constexpr Micros kSecond = 1000 * kMs;

// A range from which one value is drawn each time.
struct Span {
  Micros low = 0, high = 0;
};

inline constexpr std::uint8_t kEndSignal = 15;

// What the executor of a worker's orders could do wrong with one kind of order, at one worker.
enum class OrderFault : std::uint8_t { kNone, kTwice, kLeftOut, kAfterAnother };

// What happens between start and `until`; a rate is the mean number of events a second.
struct Faults {
  Micros until = 0;   // then everything heals: partitions, loss, crashed coordinators
  double kills = 0;   // of a worker; the guard dies with it with probability guard_loss
  double bursts = 0;  // of several workers within 20 ms
  double pauses = 0;
  double hangs = 0;       // a worker computes and loads nothing for a while; its heartbeats go on
  double partitions = 0;  // between two groups of processes, or in one direction only
  double cuts = 0;        // between two workers alone, or in one direction of these
  double loners = 0;  // probability that nobody can connect to a worker of the start for a while
  double bulk_breaks = 0;  // one connection
  double bad_rounds =
      0;  // probability that a round of a device transport fails, brings garbage or never ends
  double flips = 0;  // of a bit of the working parameters of a worker
  double transport_losses =
      0;                   // one attempt's device transport, at one member and a while later at all
  double bulk_stalls = 0;  // one direction of a connection delivers nothing for a while
  double joins = 0;
  double checkpoint_asks = 0;  // a last one before the run is ended, which then goes on
  Micros end_at = 0;           // the run is told to end, in order; 0: it is not
  double leaves = 0;
  int steers = 0;  // an admin drains a worker or evicts it, so often
  int rates = 0;   // an admin changes the peak rate, so often
  double coordinator_crashes = 0;
  double lateness = 0;  // for a while what coordinators say to each other comes late
  double leader_and_worker = 0;
  double wipes = 0;  // probability that a crashed coordinator comes back with an empty folder
  double false_starts = 0;      // a joiner that is killed a moment after its start
  double guard_loss = 0;        // probability, per kill
  std::uint32_t targeted = 0;   // index of a moment + 1; 0 = none (world.h, Moment)
  double targeted_chance = 0;   // probability that a process dies at that moment
  std::uint32_t kills_max = 0;  // over the run; the end of a notice does not count
};

struct Settings {
  std::uint64_t seed = 0;
  // The job.
  std::uint32_t micro_batches = 4;
  std::uint64_t steps = 8;
  std::uint32_t segments = 4;
  ElasticSpec elastic{.lease_ms = 300,
                      .state_timeout_ms = 10000,
                      .coordinator_timeout_ms = 40000,
                      .start_timeout_ms = 20000,
                      .standstill_steps = 5,
                      .standstill_ms = 500,
                      .digest_every = 2,
                      .recheck = 0};
  LossScaleRule loss_scale;
  bool stop_on_nonfinite = false;
  bool evaluates = false;           // the last version, at the end
  std::uint64_t recheck_first = 0;  // elastic::RecheckRule's
  // Checkpoints, which need no folder here.
  CheckpointSpec checkpoint;
  Version resume_at = 0;  // an earlier run left checkpoints up to this version; 0: there was none
  double damage = 0;      // probability that a shard is damaged
  double disk_full = 0;   // probability that one cannot be written
  // The group.
  std::uint32_t workers = 3;  // at the start; the first epoch waits for them
  std::uint32_t coordinators = 1;
  std::uint32_t log_entries_max = 1024;  // of a coordinator, until it makes a snapshot
  bool plant_wiped_vote = false;         // an empty folder counts as that of a first life
  bool plant_impatient = false;          // coordinators elect however late all of them are
  bool plant_early_bucket = false;       // sums are sent before the share's last micro-batch is in
  bool plant_stale_part = false;         // a pass waits for no part of the parameters (R4)
  bool plant_use_twice = false;          // a part of two uses gets one of them twice
  bool plant_unweighed = false;          // nobody compares totals with their fifth lane
  bool plant_rows_first = false;         // a share's rows leave before the compare (R4)
  bool plant_unproven_words = false;     // parameters count as they come, whatever their owner says
  bool plant_wrong_copy = false;         // a replica publishes other parameters than the owner
  bool roles = false;  // until the faults are over some slots hold alone, and some compute alone
  std::uint32_t replicas = 2;
  std::uint32_t move_budget = 2;
  elastic::Bugs bugs;
  bool plant_lost_contribution = false;  // one frame's sums are not added at its receiver (R3)
  OrderFault plant_order = OrderFault::kNone;
  std::size_t plant_order_kind = 0;   // elastic::WorkerCommand's index
  std::size_t plant_order_after = 0;  // kAfterAnother: the kind that it comes after
  // Moves overtake nothing, but everything overtakes them by this, as on a stream of their own.
  Micros move_delay = 0;
  bool codec = false;  // control messages travel as bytes
  // The weather.
  Span compute{1 * kMs, 5 * kMs};  // of a micro-batch
  // Workers measure their speed, and a micro-batch takes up to so many times longer at some of them
  // for some time. 0: nobody measures, and shares stay equal.
  std::uint64_t slow_most = 0;
  std::uint32_t probe_after = 4;  // elastic::Speedometer
  Span compare{0, 0};  // what comparing the working parameters takes before a share's rows leave
  Span control_delay{100, 1 * kMs};
  Span bulk_delay{50, 500};
  // From an epoch's connections to its device transport, at each member; {0, 0}: there are no such
  // transports.
  Span transport_ready{0, 0};
  std::uint32_t transport_ms = 300;  // until a transport is ready, or for a round
  std::size_t round_bytes = 8 * kBlock * sizeof(std::int32_t);
  Span persist{200, 2 * kMs};
  Span shard_write{1 * kMs, 20 * kMs};
  double loss = 0, duplicate = 0;  // of control messages
  Micros connect_timeout = 200 * kMs;
  Micros end_of_file = 5 * kMs;  // until a peer sees a killed process's connections close
  Micros partition_noticed = 200 * kMs;
  Span raft_late{0, 0};  // what coordinators say to each other comes later by this
  // Timeouts of the machines, ms.
  std::uint64_t report_deadline_ms = 300;
  std::uint64_t change_window_ms = 20;
  std::uint64_t restart_window_ms = 200;
  Faults faults;
  Micros deadline = 90 * kSecond;  // the job must have ended by then
};

// The swarm: every fault class is off with probability 1/2, all rates and sizes are drawn.
Settings draw_settings(std::uint64_t seed);
std::string to_string(const Settings& settings);

}  // namespace starling::sim
