// `starling bench` runs the benchmarks of tools/bench.

#include "tools/bench/bench.h"

#include <algorithm>

#include "tools/starling/commands.h"

namespace starling::tools {

namespace {

int recovery(const BenchCommand& command) {
  bench::RecoveryOptions options;
  options.job = command.job;
  options.workers = command.workers;
  options.losses = command.quick ? std::min(command.losses, 3u) : command.losses;
  options.seed = command.seed;
  options.kind = command.freeze   ? bench::LossKind::kFreeze
                 : command.cut    ? bench::LossKind::kCut
                 : command.leader ? bench::LossKind::kKillWithLeader
                                  : bench::LossKind::kKill;
  options.json = command.json;
  return bench::bench_recovery(options);
}

int changes(const BenchCommand& command) {
  bench::ChangesOptions options;
  options.job = command.job;
  options.workers = command.workers;
  options.rounds = command.quick ? 1 : command.rounds;
  if (command.quick) options.quiet_steps = 6, options.after_steps = 4;
  options.json = command.json;
  return bench::bench_changes(options);
}

int price(const BenchCommand& command) {
  bench::PriceOptions options;
  options.job = command.job;
  options.workers = command.workers;
  options.steps = command.quick ? std::min<std::uint64_t>(command.steps, 20) : command.steps;
  options.json = command.json;
  return bench::bench_price(options);
}

int transport(const BenchCommand& command) {
  bench::TransportBenchOptions options;
  options.job = command.job;
  options.isa = command.isa;
  options.workers = command.workers;
  options.rounds = command.quick ? 1 : command.rounds;
  options.steps = command.quick ? std::min<std::uint64_t>(command.steps, 60) : command.steps;
  options.seed = command.seed;
  options.json = command.json;
  return bench::bench_transport(options);
}

}  // namespace

int bench(const BenchCommand& command) {
  if (command.what == "recovery") return recovery(command);
  if (command.what == "changes") return changes(command);
  if (command.what == "price") return price(command);
  if (command.what == "transport") return transport(command);
  if (command.what == "bridge")
    return bench::bench_bridge({command.job, command.steps, command.json, stdout});
  if (command.what == "device")
    return bench::bench_device({command.isa, command.same, command.speed, command.precision,
                                command.tune, command.quick, command.json, stdout});
  bench::Options options;
  options.json = command.json;
  options.quick = command.quick;
  if (command.what == "grid") return bench::bench_grid(options);
  if (command.what == "allreduce") return bench::bench_allreduce(options);
  return bench::bench_model(options);
}

}  // namespace starling::tools
