// This measures what a micro-batch of a script's model costs beside the script.
//
// One process computes, as in a worker, in memory that both map. Passes follow one another with the
// samples that the job's first steps have.

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "actors/script/python_model.h"
#include "actors/worker/setup.h"
#include "core/base/exit.h"
#include "core/formats/job_file.h"
#include "kernels/device/array.h"
#include "kernels/models/gradient_maker.h"
#include "tools/bench/bench.h"

namespace starling::bench {
namespace {

using namespace kernels;

int bridge_failed(const Error& error) {
  std::fprintf(stderr, "starling: %s\n", error.text().c_str());
  return kExitBadInput;
}

}  // namespace

int bench_bridge(const BridgeOptions& options) {
  const auto job = load_job(options.job);
  if (!job) return bridge_failed(job.error());
  if (!std::holds_alternative<PythonSpec>(job.value().model))
    return bridge_failed(
        Error(Code::kBadInput, "expected a script, or a job of one; " + options.job));
  const auto made = actors::set_up(job.value());
  if (!made) return bridge_failed(made.error());
  const actors::TrainingSetup& setup = *made.value();
  const actors::script::PythonModel* const model = setup.script.get();
  auto first = Array<float>::shared(*setup.device, setup.layout->elements());
  if (auto given = model->initialise(job.value().seed, *setup.layout, first); !given)
    return bridge_failed(given.error());
  const auto maker = make_gradient_maker(job.value(), *model, *setup.layout, *setup.device,
                                         job.value().micro_batch_sequences);
  auto parameters = Array<float>::exported(*setup.device, setup.layout->elements());
  parameters.copy_in(maker->queue(), 0, first.all());
  maker->queue().wait();
  const Working working{parameters.data(), nullptr, 0, parameters.place()};
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) {};
  std::vector<double> all, own;  // milliseconds
  constexpr std::uint64_t kWarm = 3;
  const std::uint64_t copied = model->copied();  // first parameters
  for (std::uint64_t i = 0; i < options.passes + kWarm; ++i) {
    const auto m = static_cast<MicroBatch>(i % job.value().micro_batches);
    auto batch = setup.batches(i / job.value().micro_batches, m);
    if (!batch) return bridge_failed(batch.error());
    const auto before = model->times();
    const auto done = maker->make(working, batch.value(), hooks);
    if (!done) return bridge_failed(done.error());
    const auto after = model->times();
    if (i < kWarm) continue;
    using Ms = std::chrono::duration<double, std::milli>;
    const double whole = Ms(after.all - before.all).count();
    all.push_back(whole);
    own.push_back(whole - Ms(after.script - before.script).count());
  }
  const auto median = [](std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  const double mean = std::accumulate(own.begin(), own.end(), 0.0) / double(own.size());
  const double whole = median(all), bridge = median(own), p99 = own[(own.size() - 1) * 99 / 100];
  std::uint64_t elements = 0;
  for (const TensorSpec& tensor : model->tensors()) elements += tensor.elements();
  const char* const format =
      options.json ? "{\"name\":\"bridge\",\"parameters\":%llu,\"n\":%zu,\"pass_ms\":%.4g,"
                     "\"bridge_ms\":%.4g,\"mean_ms\":%.4g,\"p99_ms\":%.4g,\"copied_bytes\":%llu}\n"
                   : "bridge  %llu parameters  n %zu  pass %.3f ms, of which the bridge %.4f ms "
                     "(mean %.4f, p99 %.4f), copied %llu bytes\n";
  std::fprintf(options.out, format, static_cast<unsigned long long>(elements), own.size(), whole,
               bridge, mean, p99, static_cast<unsigned long long>(model->copied() - copied));
  return 0;
}

}  // namespace starling::bench
