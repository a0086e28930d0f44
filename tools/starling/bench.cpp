// `starling bench`: the benchmarks of tools/bench.

#include "tools/bench/bench.h"

#include "tools/starling/commands.h"

namespace starling::tools {

int bench(const BenchCommand& command) {
  bench::Options options;
  options.json = command.json;
  options.quick = command.quick;
  if (command.what == "grid") return starling::bench::bench_grid(options);
  if (command.what == "allreduce") return starling::bench::bench_allreduce(options);
  return starling::bench::bench_model(options);
}

}  // namespace starling::tools
