#pragma once
// Benchmarks behind `starling bench`: one question each, in a file of its own.

#include <cstdint>
#include <cstdio>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::bench {

struct Options {
  bool json = false;   // one JSON object a line instead of text
  bool quick = false;  // a few repetitions, to see that it runs
  std::FILE* out = stdout;
};

// How exact is the integer grid, how much goes to the side list, what does a step cost?
// Returns the exit code.
int bench_grid(const Options& options);

// How fast is one forward and backward pass of the small GPT and of GPT-2 124M, per instruction set
// and with one and two compute threads? Medians, tokens/s, GFLOP/s. Returns the exit code: 0, or 1
// if a pass failed.
int bench_model(const Options& options);

struct BridgeOptions {
  std::string job;  // of a script's model
  std::uint64_t passes = 300;
  bool json = false;
  std::FILE* out = stdout;
};

// What does a micro-batch of a script's model cost beside the script's own batches, losses and
// gradients, and is anything copied? Returns the exit code.
int bench_bridge(const BridgeOptions& options);

struct DeviceOptions {
  std::string isa = "cuda";
  bool same_only = false, speed_only = false;
  Precision precision = Precision::kBf16;
  std::string tune;  // measure which algorithms of products are fastest, into this file; else empty
  bool quick = false;  // a small model and few passes
  bool json = false;
  std::FILE* out = stdout;
};

// Does a device give one gradient of GPT-2 124M the same bits each time, alone and beside other work,
// and how many tokens a second does it train alone? Returns the exit code: 1 if bits differ.
int bench_device(const DeviceOptions& options);

// How fast is an all-reduce over the TCP mesh between 2, 3 and 4 processes on this machine, and
// would a ring be faster? Forks: call it before the process has threads.
// Returns the exit code: 0, or 1 if a sum was wrong or a process failed.
int bench_allreduce(const Options& options);

// What an all-reduce of so many bytes of int32 takes between `world` processes of this machine:
// median of five, milliseconds. Forks, as above. Errors: kInternal  a wrong sum, or it broke.
Result<double> all_reduce_ms(std::uint32_t world, std::size_t bytes);

enum class LossKind : std::uint8_t {
  kKill,
  kFreeze,          // SIGSTOP, and SIGCONT when the others have gone on
  kCut,             // no packet passes to or from it until then: network namespaces, needs root
  kKillWithLeader,  // three coordinators; the one that leads is killed in the same instant
};

struct RecoveryOptions {
  std::string job;  // its steps are ignored: the run ends with the last loss
  std::uint32_t workers = 8;
  std::uint32_t losses = 200;
  std::uint64_t seed = 1;  // draws whom and when
  LossKind kind = LossKind::kKill;
  bool json = false;
  std::FILE* out = stdout;
};

// How long does a run pause when a worker, and with it maybe the leader, is lost at a random
// instant? The longest distance of the commits around it minus the median step of the remaining
// workers, by what the worker was at, and where the time goes. Checks meanwhile that no step and no
// micro-batch is lost or counted twice; beside it what the wire itself needs. Forks, as above.
// Returns the exit code.
int bench_recovery(const RecoveryOptions& options);

struct ChangesOptions {
  std::string job;            // its steps are ignored
  std::uint32_t workers = 8;  // before and after; twice as many in between
  std::uint32_t rounds = 3;
  std::size_t quiet_steps = 40, after_steps = 20;  // measured undisturbed, and after each change
  bool json = false;
  std::FILE* out = stdout;
};

// What do joins all at once, and announced leaves all at once, cost the others? Distances of
// commits against undisturbed ones of as many workers in the same run; epochs, and forced ones.
// Returns the exit code.
int bench_changes(const ChangesOptions& options);

struct PriceOptions {
  std::string job;  // synthetic; its steps, micro-batches and compute time are not used
  std::uint32_t workers = 8;
  std::uint64_t steps = 300;
  double compute_ms = 50;  // of a step: one micro-batch of each worker
  bool json = false;
  std::FILE* out = stdout;
};

// What does fault tolerance cost a run that nothing disturbs? Where a step's time goes beyond
// computing, and the bytes of replicas against what placement predicts. Returns the exit code.
int bench_price(const PriceOptions& options);

struct PathOptions {
  std::string job;           // its isa and steps are not used
  std::string isa = "cuda";  // or emulated, with STARLING_NCCL
  std::uint32_t workers = 3;
  std::uint32_t rounds = 3;   // of a join, a leave and a kill
  std::uint64_t steps = 300;  // of the quiet runs
  std::uint64_t seed = 1;     // draws whom and when
  bool json = false;
  std::FILE* out = stdout;
};

// What does it change that a step's bytes go from device to device? The same job over the hosts and
// over direct paths: steps, bytes by TCP, until a path is made, a kill until the next commit, the
// longest steps around joins and leaves. Both end with the same digest, or it is an error. Returns
// the exit code: 2 where there is no library of direct paths.
int bench_path(const PathOptions& options);

}  // namespace starling::bench
