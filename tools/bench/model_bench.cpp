// This measures one forward and backward pass, on one core and with several compute threads.
//
// The models are the small GPT and GPT-2 124M with a context of 256. Each
// thread works on micro-batches of its own, as in a worker.

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "kernels/cpu/table.h"
#include "kernels/models/model.h"
#include "tools/bench/bench.h"

namespace starling::bench {
namespace {

using namespace kernels;
using Clock = std::chrono::steady_clock;

struct ModelCase {
  const char* name;
  ModelSpec spec;
  std::uint32_t sequences;
  const char* isa;
  unsigned threads;
  std::size_t passes;  // per thread
};

Batch random_batch(const ModelInput& input, std::uint32_t sequences) {
  Batch b;
  b.sequences = sequences;
  const auto below = static_cast<std::uint32_t>(input.vocabulary);
  for (std::uint64_t i = 0; i < std::uint64_t{sequences} * input.positions; ++i) {
    const auto bits = random4(1, Purpose::kSyntheticData, 0, 0, i);
    b.tokens.push_back(static_cast<std::int32_t>(bits[0] % below));
    b.targets.push_back(static_cast<std::int32_t>(bits[1] % below));
  }
  return b;
}

// Returns the floating point operations of a pass: 6 per token and weight of a product (2 forward,
// 4 backward), and 6 per token, width of all heads and visible position for each of attention's two products.
struct Operations {
  std::uint32_t sequences;
  double operator()(const GptSpec& s) const {
    const double c = s.width;
    return of(s.context, s.layers * 12 * c * c + s.vocabulary * c, s.layers * c);
  }
  double operator()(const LlamaSpec& s) const {
    const double c = s.width,
                 block = 2.0 * s.query_width() + 2.0 * s.key_value_width() + 3.0 * s.feed_forward;
    return of(s.context, s.layers * block * c + s.vocabulary * c,
              double{1} * s.layers * s.query_width());
  }
  template <class Other>
  double operator()(const Other&) const {
    return 0;
  }
  double of(double context, double weights, double attended) const {
    return sequences * context * (6 * weights + 2 * 6 * attended * (context + 1) / 2);
  }
};

// Returns the seconds of each pass of one thread. Empty if a pass failed.
std::vector<double> time_passes(const Model& model, const ModelCase& c, std::span<const float> p) {
  const auto workspace = model.make_workspace(c.sequences);
  const Batch batch = random_batch(*input_of(c.spec), c.sequences);
  std::vector<float> gradient(p.size());
  std::vector<double> seconds;
  for (std::size_t i = 0; i <= c.passes; ++i) {
    const auto start = Clock::now();
    const auto result = model.forward_backward(p, batch, *workspace, gradient);
    if (!result || !result.value().finite) return {};
    // The first pass touches the memory.
    if (i > 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

bool run(const Options& options, const ModelCase& c) {
  const auto made = make_model(c.spec, c.isa);
  if (!made) return false;
  const Model& model = *made.value();
  const Layout layout(model.tensors());
  std::vector<float> p(layout.elements());
  STARLING_CHECK(model.initialise(1, layout, p).has_value());
  std::vector<std::vector<double>> times(c.threads);
  std::vector<std::thread> threads;
  for (auto& t : times) threads.emplace_back([&] { t = time_passes(model, c, p); });
  for (std::thread& t : threads) t.join();
  std::vector<double> all;
  for (const auto& t : times) {
    if (t.empty()) return false;
    all.insert(all.end(), t.begin(), t.end());
  }
  std::sort(all.begin(), all.end());
  const std::size_t n = all.size();
  const double median = all[n / 2], p99 = all[(n - 1) * 99 / 100];
  const double tokens =
      double{1} * c.threads * c.sequences * static_cast<double>(input_of(c.spec)->positions);
  const double gflops = c.threads * std::visit(Operations{c.sequences}, c.spec) * 1e-9;
  const char* format =
      options.json ? "{\"name\":\"%s, %s, threads %u\",\"n\":%zu,\"unit\":\"ms\",\"median\":%.4g,"
                     "\"p99\":%.4g,\"min\":%.4g,\"tokens_per_s\":%.0f,\"gflop_per_s\":%.1f}\n"
                   : "%-12s %-10s threads %u  n %4zu  ms %8.2f p99 %8.2f min %8.2f  "
                     "tokens/s %8.0f  GFLOP/s %6.1f\n";
  std::fprintf(options.out, format, c.name, model.isa().c_str(), c.threads, n, median * 1e3,
               p99 * 1e3, all[0] * 1e3, tokens / median, gflops / median);
  return true;
}

}  // namespace

int bench_model(const Options& options) {
  const GptSpec tiny;
  const GptSpec gpt2{.layers = 12, .heads = 12, .width = 768, .context = 256, .vocabulary = 50257};
  const LlamaSpec tiny_llama{.key_value_heads = 2};
  const LlamaSpec llama{.layers = 12,
                        .heads = 12,
                        .key_value_heads = 4,
                        .head_width = 64,
                        .width = 768,
                        .feed_forward = 2048,
                        .context = 256,
                        .vocabulary = 50257,
                        .tied_embeddings = true};
  std::vector<ModelCase> cases{{"gpt-tiny", tiny, 4, "reference", 1, 1}};
  for (const char* isa : {"avx2", "avx512"}) {
    if (!cpu_has(isa)) continue;
    const std::size_t passes = options.quick ? 3 : 100;
    cases.push_back({"gpt-tiny", tiny, 4, isa, 1, passes});
    cases.push_back({"gpt-tiny", tiny, 4, isa, 2, passes});
    cases.push_back({"llama-tiny", tiny_llama, 4, isa, 1, passes});
    if (options.quick) continue;
    cases.push_back({"gpt2-124m", gpt2, 1, isa, 1, 5});
    cases.push_back({"gpt2-124m", gpt2, 1, isa, 2, 5});
    cases.push_back({"llama-114m", llama, 1, isa, 2, 5});
  }
  bool good = true;
  for (const ModelCase& c : cases) good = run(options, c) && good;
  return good ? 0 : 1;
}

}  // namespace starling::bench
