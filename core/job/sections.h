#pragma once
// Sections of a job file as structs, which a Job holds and hands down whole to leader, worker and sockets.
// elastic/ includes this header, so this header includes nothing impure.

#include <cstdint>
#include <string>
#include <vector>

namespace starling {

// GridRounding says how a gradient's element becomes an integer of the grid.
enum class GridRounding : std::uint8_t {
  kNearest = 1,
  kStochastic,  // up or down at random, so that the mean is the element (core/base/grid_dice.h)
};

// NumbersSpec says with how many bits gradients are added up, and how they are rounded.
struct NumbersSpec {
  // Of an element of a micro-batch, sign and all. 0: as many as sums of 32 bits leave.
  std::uint32_t grid_bits = 0;
  GridRounding rounding = GridRounding::kNearest;
  bool operator==(const NumbersSpec&) const = default;
};
inline constexpr std::uint32_t kGridBitsMin = 4, kGridBitsMax = 24, kStochasticBitsMax = 15;

// ShareRule says how much of a step each worker computes.
enum class ShareRule : std::uint8_t {
  kEqual = 1,
  kSpeed,  // what each worker's measured speed lets it do in the same time
};

// OnMismatch says what follows when a recomputed micro-batch gives another contribution.
enum class OnMismatch : std::uint8_t {
  kWarn = 1,  // a warning and an event; a worker known to compute wrongly leaves
  kStop,      // the end of the job, exit code 1
};
// SealRule says how bulk connections protect what they carry from attackers between their ends.
enum class SealRule : std::uint8_t {
  kAuto = 1,  // on, except between two ends on one machine: there authenticated only
  kOn,        // encrypted and authenticated
  kOff,       // neither: a checksum against accidents, for networks that encrypt themselves
};

// ElasticSpec says how long the processes of a job wait for each other, and what they make sure of
// beside the steps. Nothing of it reaches a bit of the parameters.
struct ElasticSpec {
  std::uint64_t lease_ms = 1000;  // a worker not heard for this long may be left out (tolerance_ms)
  std::uint64_t state_timeout_ms = 60000;
  std::uint64_t coordinator_timeout_ms = 30000;
  std::uint64_t start_timeout_ms = 30000;
  std::uint32_t standstill_steps = 20;  // a standstill is borne for the time of so many steps,
  std::uint64_t standstill_ms = 30000;  // at least so long; 0 = for ever
  std::uint32_t slowest = 0;  // a joiner whose micro-batch takes more than so many times the
                              // members' median is refused; 0 = none
  ShareRule shares = ShareRule::kSpeed;
  SealRule seal = SealRule::kAuto;
  bool ledger_events = true;        // write `ledger` events
  std::uint64_t digest_every = 10;  // steps between two digests of the state; 0 = none
  std::uint32_t recheck = 256;      // one micro-batch in so many is computed again; 0 = none
  OnMismatch on_mismatch = OnMismatch::kWarn;
  bool operator==(const ElasticSpec&) const = default;
};

inline constexpr std::uint64_t kCheckpointsByTime = 1'000'000'000'000;  // above any number of steps

// Copies of the state on shared storage, for the loss of all workers that have some of it.
struct CheckpointSpec {
  std::string dir;          // relative paths are relative to the job file; empty = no checkpoints
  std::uint64_t every = 0;  // steps between two; kCheckpointsByTime: none is written for its step
  std::uint32_t keep = 2;   // complete ones, the newest; older ones are removed
  bool tended = false;      // no warning if one is gone: the script removes some
  // state_hash() of another job whose checkpoints this one goes on from; 0: only from its own.
  std::uint64_t accepts = 0;
  std::uint64_t every_seconds = 0;  // one is asked for when the newest is so old; 0: never
  bool on() const { return !dir.empty(); }
  bool operator==(const CheckpointSpec&) const = default;
};

// What the parameters are tried on while they are trained, which changes nothing of them.
struct EvaluateSpec {
  std::string path;           // held-out data, of the kind that [data] is; of a script: empty
  std::uint64_t samples = 0;  // of a script's held-out data
  std::uint64_t every = 0;    // versions that are multiples of it, and the last one; 0: none
  std::uint32_t batches = 0;  // the first so many; 0: all whole ones, kHeldOutMax at most
  std::vector<std::string> metrics;  // names of what a script's evaluation gives beside the loss
  bool on() const { return every != 0; }
  bool operator==(const EvaluateSpec&) const = default;
};

}  // namespace starling
