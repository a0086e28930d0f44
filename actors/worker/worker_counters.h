#pragma once
// WorkerCounters is what a worker counts of its own work while it works, for metrics of its process
// (docs/metrics.md) and for what it warns of. Nothing is decided by it.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "actors/gateway/control_counters.h"
#include "core/observe/exposition.h"
#include "core/wire/frame_counts.h"
#include "core/wire/messages.h"

namespace starling::actors {

// Threads: any. Times are sums over compute threads, in ns.
struct WorkerCounters {
  std::atomic<std::uint64_t> micro_batches{0};       // computed and added
  std::atomic<std::uint64_t> again{0};               // computed a second time, to be compared
  std::atomic<std::uint64_t> computing_ns{0};        // without the waits below
  std::atomic<std::uint64_t> data_wait_ns{0};        // until a micro-batch's data were read
  std::atomic<std::uint64_t> parameters_wait_ns{0};  // within passes, for parts that arrive
  std::atomic<std::uint64_t> steps{0};               // passed, with this worker in their epoch
  std::atomic<std::uint32_t> waiting_orders{0};      // of the data plane: begun and not done
  FrameCounts frames;                                // bytes to and from other workers
  ControlCounters control;                           // of the gateway

  // Adds the families of one worker; `phase`: what it is at.
  void write(Exposition& out, WorkPhase phase) const;
};

}  // namespace starling::actors
