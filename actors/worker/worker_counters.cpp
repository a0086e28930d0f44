#include "actors/worker/worker_counters.h"

#include <string>
#include <utility>
#include <vector>

#include "core/observe/event.h"

namespace starling::actors {
namespace {

double seconds(const std::atomic<std::uint64_t>& ns) {
  return static_cast<double>(ns.load(std::memory_order_relaxed)) / 1e9;
}

constexpr std::array<const char*, kFrameKinds> kFrames{
    "",       "contribution", "side",  "total", "ledger",   "vote",
    "gather", "move",         "ready", "left",  "transport"};

void write_frames(Exposition& out, const char* name, const char* help,
                  const FrameCounts::Bytes& bytes) {
  std::vector<Sample> samples;
  for (std::size_t kind = 1; kind < kFrameKinds; ++kind)
    samples.push_back({label("kind", kFrames[kind]),
                       static_cast<double>(bytes[kind].load(std::memory_order_relaxed))});
  out.counter(name, help, samples);
}

}  // namespace

void WorkerCounters::write(Exposition& out, WorkPhase phase) const {
  out.counter("starling_worker_micro_batches", "Micro-batches that this worker has computed.",
              {{label("again", "false"), static_cast<double>(micro_batches.load())},
               {label("again", "true"), static_cast<double>(again.load())}});
  out.counter("starling_worker_steps", "Steps that this worker has told.", steps.load());
  out.counter("starling_worker_seconds", "Time of compute threads, by what it went into.",
              {{label("part", "computing"), seconds(computing_ns)},
               {label("part", "data"), seconds(data_wait_ns)},
               {label("part", "parameters"), seconds(parameters_wait_ns)}});
  std::vector<Sample> phases;
  for (auto at = std::uint8_t(WorkPhase::kNone); at <= std::uint8_t(WorkPhase::kEnd); ++at)
    phases.push_back(
        {label("phase", to_string(WorkPhase(at))), WorkPhase(at) == phase ? 1.0 : 0.0});
  out.gauge("starling_worker_phase", "1 for what the worker is at, else 0.", phases);
  out.gauge("starling_worker_waiting_orders", "Orders of the data plane that are not done.",
            waiting_orders.load());
  write_frames(out, "starling_worker_sent_bytes", "Bytes to other workers, by kind.", frames.sent);
  write_frames(out, "starling_worker_received_bytes", "Bytes from other workers, by kind.",
               frames.received);
  control.write(out);
}

}  // namespace starling::actors
