#pragma once
// `starling-bench` runs these benchmarks: one question each, in a file of its own.

#include <cstdint>
#include <cstdio>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::bench {

struct Options {
  bool json = false;   // one JSON object a line instead of text
  bool quick = false;  // a few repetitions, as a trial
  std::FILE* out = stdout;
};

// Measures how exact the integer grid is, how much goes to the
// side list, and what a step costs. Returns the exit code.
int bench_grid(const Options& options);

// Measures one forward and backward pass of the small GPT and of GPT-2
// 124M, per instruction set and with one and two compute threads: medians,
// tokens/s, GFLOP/s. Returns the exit code: 0, or 1 if a pass failed.
int bench_model(const Options& options);

struct BridgeOptions {
  std::string job;  // of a script's model
  std::uint64_t passes = 300;
  bool json = false;
  std::FILE* out = stdout;
};

// Measures what a micro-batch of a script's model costs beside the script's own
// batches, losses and gradients, and whether memory is copied. Returns the exit code.
int bench_bridge(const BridgeOptions& options);

struct DeviceOptions {
  std::string isa = "cuda";
  bool same_only = false, speed_only = false;
  Precision precision = Precision::kBf16;
  std::string tune;    // the file for the fastest algorithms of products; empty: do not measure
  bool llama = false;  // a Llama of GPT-2's size instead
  bool quick = false;  // a small model and few passes
  // Of speed: sequences of a micro-batch, compute threads (0: several of each), and how many
  // micro-batches each thread computes when all is captured (0: 20, 2 if quick).
  std::uint32_t sequences = 0, threads = 0, micro_batches = 0;
  bool json = false;
  std::FILE* out = stdout;
};

// Checks that a device gives one gradient of GPT-2 124M, or of a Llama of that size, the same bits each time, alone and beside
// other work, and measures the tokens a second that it trains. Exit code: 1 if bits differ.
int bench_device(const DeviceOptions& options);

// Measures an all-reduce over the TCP mesh between 2, 3 and 4 processes on this
// machine, and a ring beside it. Forks: call it before the process has threads.
// Returns the exit code: 0, or 1 if a sum was wrong or a process failed.
int bench_allreduce(const Options& options);

// Returns the time of an all-reduce of so many bytes of int32 between `world` processes here:
// median of five, milliseconds. Forks, as above. Errors: kInternal  a wrong sum, or it broke.
Result<double> all_reduce_ms(std::uint32_t world, std::size_t bytes);

enum class LossKind : std::uint8_t {
  kKill,
  kFreeze,          // SIGSTOP, and SIGCONT when the others have gone on
  kCut,             // no packet passes to or from it until then: network namespaces, needs root
  kKillWithLeader,  // three coordinators; the leader is killed in the same instant
};

struct RecoveryOptions {
  std::string job;  // its steps are ignored: the run ends with the last loss
  std::uint32_t workers = 8;
  std::uint32_t losses = 200;
  std::uint64_t seed = 1;  // draws the worker and the time
  LossKind kind = LossKind::kKill;
  bool json = false;
  std::FILE* out = stdout;
};

// Measures how long a run pauses when a worker, and with it maybe the leader, is
// lost at a random instant: the longest distance of the commits around it minus the
// median step of the remaining workers, by the worker's phase, and where the time
// goes. Checks meanwhile that no step and no micro-batch is lost or counted twice;
// measures the wire's own time beside it. Forks, as above. Returns the exit code.
int bench_recovery(const RecoveryOptions& options);

struct ChangesOptions {
  std::string job;            // its steps are ignored
  std::uint32_t workers = 8;  // before and after; twice as many in between
  std::uint32_t rounds = 3;
  std::size_t quiet_steps = 40, after_steps = 20;  // measured undisturbed, and after each change
  bool json = false;
  std::FILE* out = stdout;
};

// Measures what joins all at once, and announced leaves all at once, cost
// the others: distances of commits against undisturbed ones of as many
// workers in the same run; epochs, and forced ones. Returns the exit code.
int bench_changes(const ChangesOptions& options);

struct PriceOptions {
  std::string job;  // synthetic; its steps, micro-batches and compute time are not used
  std::uint32_t workers = 8;
  std::uint64_t steps = 300;
  double compute_ms = 50;  // of a step: one micro-batch of each worker
  bool json = false;
  std::FILE* out = stdout;
};

// Measures what fault tolerance costs an undisturbed run: where a step's time goes beyond
// computing, and the bytes of replicas against what placement predicts. Returns the exit code.
int bench_price(const PriceOptions& options);

struct TransportBenchOptions {
  std::string job;           // its isa and steps are not used
  std::string isa = "cuda";  // or emulated, with STARLING_NCCL
  std::uint32_t workers = 3;
  std::uint32_t rounds = 3;   // of a join, a leave and a kill
  std::uint64_t steps = 300;  // of the quiet runs
  std::uint64_t seed = 1;     // draws the worker and the time
  bool json = false;
  std::FILE* out = stdout;
};

// Measures what it changes that a step's bytes go from device to device. Runs one job
// over TCP and over NCCL: steps, bytes by TCP, until a communicator is made, a kill
// until the next commit, the longest steps around joins and leaves. Both must end with
// the same digest. Returns the exit code: 2 where there is no library of device transports.
int bench_transport(const TransportBenchOptions& options);

}  // namespace starling::bench
