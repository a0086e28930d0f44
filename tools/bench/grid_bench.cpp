// This measures how exact the integer grid is, the share of the side list, and a step's cost.
//
// Gradients are synthetic but shaped like those of training: per element a signal common to all
// micro-batches and heavy-tailed noise (a normal times a log-normal number), per block a signal to
// noise ratio from 1/8 to 2 and a scale that wanders and falls over the steps, per micro-batch a
// scale of its own; a quarter of the blocks is zero in most micro-batches, as rows of embeddings
// are.
//
// Headroom was chosen here and on a byte GPT of 0.12 M parameters (2 layers, width 64, English
// text, AdamW, from the start). There, error and share on the side list:
//   M = 8, 60 steps: headroom 1: 3.1e-8, 2.1 %; 2: 4.2e-8, 1.6 %; fp32 one after the other: 4.8e-8.
//                    Nearly all in the second half, where the norm rises again.
//   M = 64, 30 steps: headroom 1: 3.8e-8, 0.11 %; 2: 6.0e-8, 0.02 %; fp32 1.2e-7
//   M = 256, 16 steps: headroom 2: 1.1e-7, 0.03 %; fp32 2.4e-7
// Without the rule that exponents rise to fit the side list, M = 64 with headroom 1 has 0.70 %.
// Here, M = 64 with headroom 3 has 3.1 % without the rule and 0.13 % with it; a decay of a bit in 4
// steps instead of 8 doubles the side list and takes a tenth off the error.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "collectives/pack.h"
#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/philox.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/quantise.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"
#include "tools/bench/bench.h"

namespace starling::bench {
namespace {

using namespace kernels;

// ---- Output -----------------------------------------------------------------------------------

struct Line {
  std::string name;
  std::string unit;
  std::vector<double> samples;
};

void print(const Options& options, Line line) {
  std::sort(line.samples.begin(), line.samples.end());
  const std::size_t n = line.samples.size();
  const double median = line.samples[n / 2], p99 = line.samples[(n - 1) * 99 / 100];
  const char* format = options.json ? "{\"name\":\"%s\",\"n\":%zu,\"unit\":\"%s\",\"median\":%.4g,"
                                      "\"p99\":%.4g,\"min\":%.4g}\n"
                                    : "%-44s %5zu %-10s %10.4g %10.4g %10.4g\n";
  std::fprintf(options.out, format, line.name.c_str(), n, line.unit.c_str(), median, p99,
               line.samples[0]);
}

// ---- Synthetic gradients ------------------------------------------------------------------------

double normal(std::uint64_t seed, std::uint64_t index) {
  const auto bits = random4(seed, Purpose::kSyntheticData, 0, 0, index);
  return std::sqrt(-2 * std::log(uniform(bits[0]))) *
         std::cos(6.283185307179586 * uniform(bits[1]));
}

class Gradients {
 public:
  explicit Gradients(std::uint32_t blocks) : scales_(blocks, 0) {
    for (std::size_t i = 0; i < kTable; ++i)
      table_.push_back(static_cast<float>(normal(1, 2 * i) * std::exp(0.8 * normal(1, 2 * i + 1))));
  }

  std::uint32_t blocks() const { return static_cast<std::uint32_t>(scales_.size()); }

  // Lets the blocks' scales wander by an eighth of a bit or so, falling by three bits in 100 steps.
  void begin(Version step) {
    step_ = step;
    for (std::uint32_t b = 0; b < blocks(); ++b)
      scales_[b] += 0.12 * normal(2, step * blocks() + b) - 0.03;
  }

  // Makes block b of micro-batch m of this step; returns false, without writing, if it is zero.
  bool block(std::uint32_t b, MicroBatch m, float* g) const {
    const bool sparse = b % 4 == 3;
    const std::uint64_t key = mix64(mix64(step_, b), m);
    if (sparse && key % 8 != 0) return false;
    const double signal = std::exp2(static_cast<double>(b % 5) - 3);
    const double scale = std::exp2(scales_[b] - 12.0) * std::exp(0.3 * normal(3, key));
    const auto common = static_cast<float>(signal * scale), own = static_cast<float>(scale);
    const float* a = &table_[mix64(step_ / 4, b) % (kTable - kBlock)];
    const float* n = &table_[key / 8 % (kTable - kBlock)];
    for (std::uint32_t i = 0; i < kBlock; ++i) g[i] = common * a[i] + own * n[i];
    return true;
  }

 private:
  static constexpr std::size_t kTable = 1u << 17;
  std::vector<float> table_;
  std::vector<double> scales_;  // log2, by block
  Version step_ = 0;
};

// ---- Exactness and side list --------------------------------------------------------------------

struct Quality {
  double grid_error = 0;  // norm of the fp32 mean's error over the norm of the exact one
  double fp32_error = 0;  // the same when the M gradients are added in fp32, one after the other
  double side_share = 0;  // of all blocks that are not zero
};

Quality measure(Grid grid, std::uint32_t blocks, std::uint64_t steps) {
  Gradients gradients(blocks);
  std::vector<std::int16_t> exponents(blocks, kExponentMin);
  const auto& kernels = block_kernels();
  double grid_squares = 0, fp32_squares = 0, squares = 0;
  std::uint64_t side = 0, contributions = 0;
  const double M = grid.micro_batches;
  // The first step only sets the exponents, as the start of a job does.
  for (Version step = 0; step <= steps; ++step) {
    gradients.begin(step);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      std::int32_t sums[kBlock] = {};
      float g[kBlock], sequential[kBlock] = {}, mean[kBlock];
      double exact[kBlock] = {};
      std::vector<WideSum> wide;
      float largest_side = 0;
      for (MicroBatch m = 0; m < grid.micro_batches; ++m) {
        if (!gradients.block(b, m, g)) continue;
        std::uint64_t weighted = 0;
        std::uint32_t outside = 0;
        const bool fits = kernels.add(g, &exponents[b], grid.limit(), b * kBlock, 1, sums,
                                      &weighted, &outside) == 0;
        if (!fits && wide.empty()) wide.resize(kBlock);
        for (std::uint32_t i = 0; i < kBlock; ++i) {
          exact[i] += g[i];
          sequential[i] += g[i];
          if (fits) continue;
          wide[i].add(g[i]);
          largest_side = std::max(largest_side, std::fabs(g[i]));
        }
        if (step == 0) continue;
        side += fits ? 0 : 1;
        ++contributions;
      }
      kernels.mean(sums, std::ldexp(1.0, exponents[b]), M, mean);
      for (std::uint32_t i = 0; !wide.empty() && i < kBlock; ++i) {
        wide[i].add_total(sums[i], exponents[b]);
        mean[i] = wide[i].mean(grid.micro_batches);
      }
      const auto largest = std::bit_cast<float>(kernels.largest(mean));
      exponents[b] = next_exponent(grid, exponents[b], largest, largest_side, step);
      if (step == 0) continue;
      for (std::uint32_t i = 0; i < kBlock; ++i) {
        const double truth = exact[i] / M;
        const double fp32 = static_cast<double>(sequential[i] / static_cast<float>(M));
        squares += truth * truth;
        grid_squares += (mean[i] - truth) * (mean[i] - truth);
        fp32_squares += (fp32 - truth) * (fp32 - truth);
      }
    }
  }
  return {std::sqrt(grid_squares / squares), std::sqrt(fp32_squares / squares),
          static_cast<double>(side) / static_cast<double>(contributions)};
}

constexpr int kHeadroomOffsets[] = {-1, 0, 1, 2, 3};

void bench_quality(const Options& options) {
  for (const std::uint32_t M : {8u, 64u, 256u}) {
    for (const int offset : kHeadroomOffsets) {
      Grid grid(M);
      grid.headroom_bits += offset;
      const Quality q = measure(grid, /*blocks=*/40, options.quick ? 10 : 200);
      const std::string name = "grid M=" + std::to_string(M) +
                               " headroom=" + std::to_string(grid.headroom_bits) +
                               (offset == 0 ? " (chosen)" : "");
      print(options, {name + " error", "relative", {q.grid_error}});
      print(options, {name + " side list", "share", {q.side_share}});
      if (offset != 0) continue;
      print(options, {"fp32 M=" + std::to_string(M) + " error", "relative", {q.fp32_error}});
    }
  }
}

// ---- Time -------------------------------------------------------------------------------------

template <class F>
std::vector<double> times_ms(const Options& options, F f) {
  std::vector<double> samples;
  f();  // touches pages
  for (int i = 0; i < (options.quick ? 3 : 30); ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const auto end = std::chrono::steady_clock::now();
    samples.push_back(std::chrono::duration<double, std::milli>(end - start).count());
  }
  return samples;
}

std::vector<float> flat_gradient(const Layout& layout, MicroBatch m) {
  Gradients gradients(64);
  gradients.begin(0);
  std::vector<float> flat(layout.elements());
  for (std::uint32_t b = 0; b < layout.blocks(); ++b)
    gradients.block(b % 64 / 4 * 4, MicroBatch(m * layout.blocks() + b),
                    &flat[std::size_t{b} * kBlock]);
  return flat;
}

// Measures adding with 8 bits, by dice and without, and what packs the sums; in GB/s of words.
template <class PerMillion, class Added>
void bench_coarse(const Options& options, const PerMillion& per_million, const Added& added) {
  print(options,
        {"add, 8 bits, nearest", "ms/Mi", per_million(added({8, GridRounding::kNearest}).first)});
  auto [times, sums] = added({8, GridRounding::kStochastic});
  print(options, {"add, 8 bits, stochastic", "ms/Mi", per_million(std::move(times))});
  const auto rate_of = [&](std::vector<double> ms) {
    for (double& t : ms) t = static_cast<double>(sums.size() * sizeof(std::int32_t)) / t / 1e6;
    return ms;
  };
  Bytes packed;
  print(options, {"pack, 8 bits", "GB/s", rate_of(times_ms(options, [&] {
                    packed.clear();
                    collectives::pack(sums, packed);
                  }))});
  std::vector<std::int32_t> back(sums.size());
  print(options, {"unpack, 8 bits", "GB/s", rate_of(times_ms(options, [&] {
                    ByteView from = packed;
                    STARLING_CHECK(collectives::unpack(from, 32, back));
                  }))});
  print(options, {"packed sums of 8 bits",
                  "of words",
                  {static_cast<double>(packed.size()) /
                   static_cast<double>(sums.size() * sizeof(std::int32_t))}});
}

// Measures per 2^20 parameters; counts only bytes that must move: add reads
// the gradient twice and the sums once and writes them, 16 a parameter.
void bench_time(const Options& options) {
  constexpr std::uint32_t M = 8;
  const Layout layout({{"w", {16, 1u << 20}}});  // 64 MiB of gradient: beyond the caches
  Job job;
  job.micro_batches = M;
  job.steps = 1000;
  const double millions = static_cast<double>(layout.elements()) / (1u << 20);
  const auto per_million = [&](std::vector<double> ms) {
    for (double& t : ms) t /= millions;
    return ms;
  };
  const auto gradient = flat_gradient(layout, 0);
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(Grid(M), layout, gradient, exponents);

  const auto queue = host_device().make_queue();
  Accumulators accumulators(layout, M);
  MicroBatch m = 0;
  const auto times_of_adding = [&](Accumulators& sums, const std::vector<std::int16_t>& x) {
    return times_ms(options, [&] {
      if (m == M) {
        sums.clear();
        m = 0;
      }
      sums.add(*queue, gradient.data(), x.data(), 1, 0, m++);
    });
  };
  auto add = times_of_adding(accumulators, exponents);
  std::vector<double> rate;
  for (const double t : add)
    rate.push_back(12.0 * static_cast<double>(layout.elements()) / t / 1e6);
  print(options, {"add a micro-batch", "ms/Mi", per_million(std::move(add))});
  print(options, {"add a micro-batch", "GB/s", std::move(rate)});
  print(options, {"clear and add", "ms/Mi", per_million(times_ms(options, [&] {
                    accumulators.clear();
                    accumulators.add(*queue, gradient.data(), exponents.data(), 1, 0, 0);
                  }))});

  bench_coarse(options, per_million, [&](const NumbersSpec& numbers) {
    std::vector<std::int16_t> coarse(layout.blocks());
    initial_exponents(Grid(M, numbers.grid_bits), layout, gradient, coarse);
    Accumulators sums(layout, M, host_device(), numbers);
    m = 0;
    auto times = times_of_adding(sums, coarse);
    return std::pair(std::move(times), std::vector(sums.sums().begin(), sums.sums().end()));
  });

  Totals totals(layout, M);
  std::copy(accumulators.sums().begin(), accumulators.sums().end(), totals.sums().begin());
  State state(layout, job);
  std::vector<SegmentId> all;
  for (SegmentId s = 0; s < layout.segments(); ++s) {
    state.hold(s);
    all.push_back(s);
  }
  state.initialise(std::vector<float>(layout.elements()), exponents);
  double norm = 0;
  print(options, {"partial norm", "ms/Mi", per_million(times_ms(options, [&] {
                    norm = std::sqrt(state.partial_norm(totals, all).squares.value());
                  }))});
  Version version = 0;
  print(options, {"apply (AdamW)", "ms/Mi", per_million(times_ms(options, [&] {
                    totals.set_pending(version);
                    state.apply(totals, {.version = version, .norm = norm}, all);
                    ++version;
                  }))});
  print(options, {"publish", "ms/Mi", per_million(times_ms(options, [&] { state.publish(all); }))});
  print(options,
        {"digest", "ms/Mi", per_million(times_ms(options, [&] { (void)state.digest_part(all); }))});
}

}  // namespace

int bench_grid(const Options& options) {
  bench_quality(options);
  bench_time(options);
  return 0;
}

}  // namespace starling::bench
