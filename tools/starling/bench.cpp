// `starling bench`: the benchmarks of tools/bench.

#include "tools/bench/bench.h"

#include <algorithm>

#include "tools/starling/commands.h"

namespace starling::tools {

int bench(const BenchCommand& command) {
  if (command.what == "recovery") {
    bench::RecoveryOptions options;
    options.job = command.job;
    options.workers = command.workers;
    options.losses = command.quick ? std::min(command.losses, 3u) : command.losses;
    options.seed = command.seed;
    options.freeze = command.freeze;
    options.json = command.json;
    return starling::bench::bench_recovery(options);
  }
  bench::Options options;
  options.json = command.json;
  options.quick = command.quick;
  if (command.what == "grid") return starling::bench::bench_grid(options);
  if (command.what == "allreduce") return starling::bench::bench_allreduce(options);
  return starling::bench::bench_model(options);
}

}  // namespace starling::tools
