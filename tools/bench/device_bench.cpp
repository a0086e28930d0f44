// This checks that a device computes the same gradient each time, and how fast.
//
// The model is GPT-2 124M or a Llama of its size, in bf16 by default; quick: a small one. Gradients go to accumulators
// on the device as in a worker, so a device's figures are those of training alone.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/check.h"
#include "core/base/exit.h"
#include "core/base/hash.h"
#include "core/base/philox.h"
#include "kernels/grid/quantise.h"
#include "kernels/models/first_gradient.h"
#include "tools/bench/bench.h"

namespace starling::bench {
namespace {

using namespace kernels;
using Clock = std::chrono::steady_clock;

constexpr GptSpec kGpt2{
    .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257};
constexpr GptSpec kSmall{.layers = 2, .heads = 2, .width = 32, .context = 32, .vocabulary = 256};
constexpr LlamaSpec kLlama{.layers = 12,
                           .heads = 12,
                           .key_value_heads = 4,
                           .head_width = 64,
                           .width = 768,
                           .feed_forward = 2048,
                           .context = 1024,
                           .vocabulary = 50257,
                           .tied_embeddings = true};
constexpr LlamaSpec kSmallLlama{.layers = 2,
                                .heads = 2,
                                .key_value_heads = 1,
                                .head_width = 16,
                                .width = 32,
                                .feed_forward = 88,
                                .context = 32,
                                .vocabulary = 256};

ModelSpec spec_of(const DeviceOptions& o) {
  if (o.llama) return o.quick ? kSmallLlama : kLlama;
  return o.quick ? kSmall : kGpt2;
}
constexpr std::uint32_t kMicroBatches = 32;  // of a step
constexpr std::uint32_t kWarm = 3;           // micro-batches of a maker until all is captured

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

Batch batch_of(const ModelInput& input, std::uint32_t sequences, std::uint64_t number) {
  Batch batch;
  batch.sequences = sequences;
  const auto vocabulary = static_cast<std::uint32_t>(input.vocabulary);
  for (std::uint64_t i = 0; i < sequences * input.positions; ++i) {
    const auto bits = random4(1, Purpose::kSyntheticData, number, 0, i);
    batch.tokens.push_back(static_cast<std::int32_t>(bits[0] % vocabulary));
    batch.targets.push_back(static_cast<std::int32_t>(bits[1] % vocabulary));
  }
  return batch;
}

// A DeviceBench is a model with its first parameters, on the device and here.
struct DeviceBench {
  DeviceBench(const DeviceOptions& o, Device& on)
      : options(o), input(*input_of(spec_of(o))), device(on) {
    job.model = spec_of(o);
    job.micro_batches = kMicroBatches;
    job.precision = o.precision;
    model = make_model(job.model, "auto").value();
    layout.emplace(model->tensors());
    parameters.resize(layout->elements());
    STARLING_CHECK(model->initialise(1, *layout, parameters));
    for (float& p : parameters) p = rounded(p, o.precision);
  }

  const DeviceOptions& options;
  const ModelInput input;
  Device& device;
  Job job;
  std::unique_ptr<Model> model;
  std::optional<Layout> layout;
  std::vector<float> parameters;
};

// Prints hashes of one gradient, and how many times each came.
Result<int> same(const DeviceBench& bench, std::uint32_t sequences) {
  const Batch batch = batch_of(bench.input, sequences, 0);
  WholeGradients gradients(bench.job, *bench.model, *bench.layout, bench.device, sequences);
  WholeGradients others(bench.job, *bench.model, *bench.layout, bench.device, sequences);
  std::vector<float> gradient(bench.layout->elements()), other(gradient.size());
  std::map<Digest, std::uint32_t> hashes;
  const std::uint32_t times = bench.options.quick ? 4 : 10;
  for (std::uint32_t i = 0; i < times; ++i) {
    // Every second time another maker works on the same device.
    std::jthread beside;
    if (i % 2 == 1)
      beside = std::jthread([&] {
        STARLING_CHECK(
            others.compute(bench.parameters, batch_of(bench.input, sequences, i), other));
      });
    STARLING_TRY(gradients.compute(bench.parameters, batch, gradient));
    ++hashes[hash128(as_bytes(std::span<const float>(gradient)))];
  }
  const std::string hash = to_string(hashes.begin()->first);
  std::fprintf(bench.options.out,
               bench.options.json ? "{\"name\":\"same\",\"sequences\":%u,\"n\":%u,\"hashes\":%zu,"
                                    "\"hash\":\"%s\"}\n"
                                  : "same   %u sequences: %u gradients, %zu different, %s\n",
               sequences, times, hashes.size(), hash.c_str());
  std::fflush(bench.options.out);
  return hashes.size() == 1 ? 0 : 1;
}

// Speed has the seconds of a micro-batch, with so many compute
// threads, and how many of a thousand blocks went to the side list.
struct Speed {
  double seconds = 0;
  double aside = 0;
};
Result<Speed> speed(const DeviceBench& bench, std::uint32_t sequences, std::uint32_t threads,
                    std::uint32_t each) {
  const Layout& layout = *bench.layout;
  const auto queue = bench.device.make_queue();
  Array<float> parameters(bench.device, layout.elements());
  parameters.copy_in(*queue, 0, bench.parameters);
  Array<std::int16_t> exponents(bench.device, layout.blocks());
  {
    std::vector<float> gradient(layout.elements());
    WholeGradients first(bench.job, *bench.model, layout, bench.device, sequences);
    STARLING_TRY(first.compute(bench.parameters, batch_of(bench.input, sequences, 0), gradient));
    std::vector<std::int16_t> fitting(layout.blocks());
    initial_exponents(Grid(kMicroBatches), layout, gradient, fitting);
    exponents.copy_in(*queue, 0, fitting);
  }
  queue->wait();
  Accumulators sums(layout, threads * (each + kWarm), bench.device);
  std::vector<std::unique_ptr<GradientMaker>> makers;
  for (std::uint32_t t = 0; t < threads; ++t)
    makers.push_back(make_gradient_maker(bench.job, *bench.model, layout, bench.device, sequences));
  const Working working{parameters.data(), exponents.data(),
                        next_scale(loss_scale_rule(bench.job), {}, false).log2};
  std::atomic<std::uint64_t> aside = 0;
  const auto work = [&](std::uint32_t t, std::uint32_t first, std::uint32_t count) {
    const Batch batch = batch_of(bench.input, sequences, 0);
    for (std::uint32_t i = first; i < first + count; ++i) {
      auto adding = sums.begin(makers[t]->queue(), working.exponents, /*seed=*/1, /*step=*/0,
                               MicroBatch(t * (each + kWarm) + i));
      STARLING_CHECK(makers[t]->make(working, batch, adding));
      aside += adding.finish().side_entries;
    }
  };
  const auto all = [&](std::uint32_t first, std::uint32_t count) {
    std::vector<std::jthread> running;
    for (std::uint32_t t = 0; t < threads; ++t) running.emplace_back(work, t, first, count);
  };
  all(0, kWarm);
  const auto begun = Clock::now();
  all(kWarm, each);
  Speed s;
  s.seconds = seconds_since(begun) / (threads * each);
  s.aside = 1000.0 * double(aside) / (double(layout.blocks()) * threads * (each + kWarm));
  return s;
}

// Returns the floating point operations of a token: 6 for each weight of a
// product, and for attention's two products 6 for each number of queries and visible position.
double operations(const GptSpec& s) {
  const double c = s.width, weights = s.layers * 12 * c * c + s.vocabulary * c;
  return 6 * weights + s.layers * 2 * 6 * c * (s.context + 1) / 2;
}
double operations(const LlamaSpec& s) {
  const double c = s.width, q = s.query_width(), k = s.key_value_width(), f = s.feed_forward;
  const double weights = s.layers * c * (2 * q + 2 * k + 3 * f) + s.vocabulary * c;
  return 6 * weights + s.layers * 2 * 6 * q * (s.context + 1) / 2;
}
double operations(const ModelSpec& spec) {
  if (const auto* llama = std::get_if<LlamaSpec>(&spec)) return operations(*llama);
  return operations(std::get<GptSpec>(spec));
}

Result<> speeds(const DeviceBench& bench) {
  const DeviceOptions& o = bench.options;
  const auto either = [](std::uint32_t one, std::vector<std::uint32_t> several) {
    return one > 0 ? std::vector{one} : several;
  };
  const std::uint32_t usual = o.quick ? 2 : 20;
  for (const std::uint32_t sequences :
       either(o.sequences, o.quick ? std::vector{2u} : std::vector{8u, 16u, 32u}))
    for (const std::uint32_t threads : either(o.threads, {1u, 2u})) {
      STARLING_TRY(s,
                   speed(bench, sequences, threads, o.micro_batches > 0 ? o.micro_batches : usual));
      const double tokens = double(sequences) * double(bench.input.positions) / s.seconds;
      std::fprintf(bench.options.out,
                   o.json ? "{\"name\":\"speed\",\"sequences\":%u,\"threads\":%u,\"ms\":%.4g,"
                            "\"tokens_per_s\":%.6g,\"tflop_s\":%.4g,\"aside_permille\":%.4g}\n"
                          : "speed  %3u sequences, %u threads: %8.3f ms, %9.0f tokens/s, %6.1f "
                            "TFLOP/s, %.2f of 1000 blocks to the side list\n",
                   sequences, threads, 1000 * s.seconds, tokens,
                   tokens * operations(bench.job.model) / 1e12, s.aside);
      std::fflush(bench.options.out);
    }
  return ok();
}

int device_failed(const Error& error) {
  std::fprintf(stderr, "starling: %s\n", error.text().c_str());
  return error.code() == Code::kBadInput ? kExitBadInput : kExitAlone;
}

}  // namespace

int bench_device(const DeviceOptions& options) {
  auto opened = open_device(options.isa);
  if (!opened) return device_failed(opened.error());
  Device& device = *opened.value();
  const DeviceBench bench(options, device);
  if (!options.json) std::fprintf(options.out, "device %s\n", device.name().c_str());
  if (!options.tune.empty()) {
    const auto tuned = device.tune({bench.job.model, *bench.layout, bench.job.precision, false,
                                    options.sequences > 0 ? options.sequences : 16},
                                   options.tune);
    return tuned ? 0 : device_failed(tuned.error());
  }
  int code = 0;
  if (!options.speed_only)
    for (const std::uint32_t sequences : options.quick ? std::vector{2u} : std::vector{16u, 32u}) {
      const auto one = same(bench, sequences);
      if (!one) return device_failed(one.error());
      code = std::max(code, one.value());
    }
  if (!options.same_only)
    if (const auto done = speeds(bench); !done) return device_failed(done.error());
  return code;
}

}  // namespace starling::bench
