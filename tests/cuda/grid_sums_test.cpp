// Jobs that make integers: what the device writes against the host's loops.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/device/host_jobs.h"
#include "kernels/grid/exact_mean.h"
#include "kernels/grid/quantise.h"
#include "tests/cuda/twin.h"
#include "tests/cuda/types.h"

namespace starling::kernels::cuda {
namespace {

constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();
constexpr float kMax = std::numeric_limits<float>::max();

// Real elements of a gradient; padding is zero.
std::vector<float> gradient_of(const Layout& layout, Random& random,
                               std::span<const std::int16_t> exponents, int limit_bits) {
  std::vector<float> gradient(layout.elements());
  for (std::uint32_t b = 0; b < layout.blocks(); ++b) {
    const std::span block(gradient.data() + std::size_t{b} * kBlock, layout.used(b));
    const int top = exponents[b] + limit_bits;  // what does not fit
    for (float& x : block) x = normal(random, top - 1);
    float& one = block[random() % block.size()];
    const float edge = std::ldexp(1.0f, top);
    switch (random() % 24) {
      case 0:
        one = kNan;
        break;
      case 1:
        one = -kInfinity;
        break;
      case 2:
        one = kInfinity;
        block[0] = kNan;
        break;
      case 3:
        one = std::nextafter(edge, 0.0f);
        break;  // rounds to the limit or just fits
      case 4:
        one = -edge;
        break;
      case 5:
        one = edge * 0.999f;
        break;
      case 6:
        one = kMax;
        break;
      case 7:
        std::ranges::fill(block, -0.0f);
        break;
      case 8:
        std::ranges::fill(block, kSubnormal * static_cast<float>(random() % 100));
        break;
      case 9:
        for (float& x : block)  // ties
          x = std::ldexp(static_cast<float>(random() % 1000) + 0.5f, exponents[b]);
        break;
      case 10:
        for (float& x : block) x = random_bits(random);
        break;
      default:
        break;
    }
  }
  return gradient;
}

TEST_CASE("cuda add: sums, weighted sums, what was left and what was broken are the host's") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    Random random(1);
    const Layout& layout = place.layout;
    const SegmentList list(layout, place.segments);
    const Segments segments = list;
    std::uint32_t blocks = 0, first_block = layout.blocks();
    for (const SegmentId s : place.segments) {
      blocks += layout.block_count(s);
      first_block = std::min(first_block, layout.first_block(s));
    }
    CudaQueue queue(device);
    Twin<std::int32_t> sums(device, std::vector<std::int32_t>(layout.elements()));
    Twin<std::uint64_t> weighted(device, std::vector<std::uint64_t>(place.count(), 5), In::kPinned);
    Twin<std::uint32_t> outside(device, std::vector<std::uint32_t>(1 + blocks), In::kPinned);
    Twin<std::uint32_t> broken(device, {77}, In::kPinned);
    std::uint32_t all_left = 0, all_broken = 0;
    std::int32_t scale = 0;
    for (const int limit_bits : {27, 27, 30, 6}) {
      auto exponents = made<std::int16_t>(layout.blocks(), [&] {
        return static_cast<std::int16_t>(static_cast<int>(random() % 240) - 140);
      });
      const auto whole = gradient_of(layout, random, exponents, limit_bits);
      Twin<float> gradient(device, {whole.begin() + first_block * kBlock, whole.end()});
      Twin<std::int16_t> x(device, exponents);
      AddJob job{.gradient = gradient.host(),
                 .scale = std::exchange(scale, scale + 9),
                 .first_block = first_block,
                 .exponents = x.host(),
                 .sums = sums.host(),
                 .limit = std::int32_t{1} << limit_bits,
                 .segments = segments,
                 .weighted = weighted.host(),
                 .outside = outside.host(),
                 .broken = broken.host()};
      run(job);
      job.gradient = gradient.there();
      job.exponents = x.there();
      job.sums = sums.there();
      job.weighted = weighted.there();
      job.outside = outside.there();
      job.broken = broken.there();
      queue.add(job);
      queue.wait();
      STARLING_CHECK_TWIN(sums, device);
      STARLING_CHECK_TWIN(weighted, device);
      STARLING_CHECK_TWIN(broken, device);
      const auto left = outside.copy(device);
      REQUIRE(left[0] == outside.host()[0]);
      std::vector<std::uint32_t> which(left.begin() + 1, left.begin() + 1 + left[0]);
      std::vector<std::uint32_t> wanted(outside.host() + 1, outside.host() + 1 + left[0]);
      std::ranges::sort(which);
      std::ranges::sort(wanted);
      CHECK(which == wanted);
      all_left += left[0];
      all_broken += *broken.host();
    }
    if (layout.elements() > 10'000) CHECK(all_left > 0);
    if (layout.elements() > 10'000) CHECK(all_broken > 0);
  });
}

TEST_CASE("cuda sum: element by element, also into one of the two") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    Random random(4);
    const std::uint64_t n = place.layout.elements();
    const auto integers = [&] {
      return made<std::int32_t>(n, [&] { return static_cast<std::int32_t>(random()) >> 1; });
    };
    Twin<std::int32_t> a(device, integers()), b(device, integers());
    Twin<std::int32_t> sums(device, std::vector<std::int32_t>(n, 3));
    CudaQueue queue(device);
    run(SumJob{.sums = sums.host(), .a = a.host(), .b = b.host(), .elements = n});
    queue.sum({.sums = sums.there(), .a = a.there(), .b = b.there(), .elements = n});
    run(SumJob{.sums = a.host(), .a = a.host(), .b = b.host(), .elements = n});
    queue.sum({.sums = a.there(), .a = a.there(), .b = b.there(), .elements = n});
    queue.wait();
    STARLING_CHECK_TWIN(sums, device);
    STARLING_CHECK_TWIN(a, device);
  });
}

TEST_CASE("cuda gather: any blocks of a gradient, one after another") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    Random random(5);
    const std::uint32_t first = place.layout.blocks() / 3, blocks = place.layout.blocks() - first;
    Twin<float> gradient(
        device, made<float>(std::size_t{blocks} * kBlock, [&] { return random_bits(random); }));
    for (const std::uint32_t count : {0u, 1u, 7u, 8u, 9u, blocks}) {
      Twin<std::uint32_t> chosen(device, made<std::uint32_t>(std::size_t{count} + 1, [&] {
                                   return first + static_cast<std::uint32_t>(random()) % blocks;
                                 }));
      Twin<float> values(device, std::vector<float>((std::size_t{count} + 1) * kBlock, 3));
      CudaQueue queue(device);
      const GatherJob job{.gradient = gradient.host(),
                          .first_block = first,
                          .blocks = chosen.host(),
                          .count = count,
                          .values = values.host()};
      run(job);
      GatherJob there = job;
      there.gradient = gradient.there(), there.blocks = chosen.there();
      there.values = values.there();
      queue.gather(there);
      queue.wait();
      STARLING_CHECK_TWIN(values, device);
    }
  });
}

TEST_CASE("cuda weigh: weighted sums of any integers") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    Random random(2);
    const SegmentList list(place.layout, place.segments);
    Twin<std::int32_t> sums(device, made<std::int32_t>(place.layout.elements(), [&] {
                              return static_cast<std::int32_t>(random());
                            }));
    Twin<std::uint64_t> weighted(device, std::vector<std::uint64_t>(place.count()), In::kPinned);
    run(WeighJob{.sums = sums.host(), .segments = list, .weighted = weighted.host()});
    CudaQueue queue(device);
    queue.weigh({.sums = sums.there(), .segments = list, .weighted = weighted.there()});
    queue.wait();
    STARLING_CHECK_TWIN(weighted, device);
  });
}

TEST_CASE("cuda wide means: exact sums of totals and entries, rounded once") {
  CudaDevice device(0);
  Random random(3);
  constexpr std::uint32_t kBlocks = 40;
  const auto check = [&](std::uint32_t count, std::uint32_t micro_batches, auto value) {
    std::vector<std::uint32_t> blocks(kBlocks), ends;
    std::iota(blocks.begin(), blocks.end(), 0);
    std::ranges::shuffle(blocks, random);
    blocks.resize(count);
    std::ranges::sort(blocks);
    std::uint32_t entries = 0;
    for (std::uint32_t i = 0; i < count; ++i) ends.push_back(entries += random() % 6);
    Twin<std::int32_t> totals(device, made<std::int32_t>(std::size_t{kBlocks} * kBlock, [&] {
                                return static_cast<std::int32_t>(random()) >> random() % 32;
                              }));
    totals.host()[blocks[0] * kBlock] = INT32_MIN;
    Twin<std::int32_t> same(device, totals.values());
    Twin<std::int16_t> exponents(
        device, made<std::int16_t>(kBlocks, [&] {
          return static_cast<std::int16_t>(static_cast<int>(random() % 278) - 149);
        }));
    Twin<std::uint32_t> list(device, blocks, In::kPinned), until(device, ends, In::kPinned);
    Twin<float> values(device, made<float>(std::size_t{entries} * kBlock, value), In::kPinned);
    Twin<float> means(device, std::vector<float>(std::size_t{count} * kBlock), In::kPinned);
    Twin<float> largest(device, std::vector<float>(count), In::kPinned);
    WideJob job{.totals = same.host(),
                .exponents = exponents.host(),
                .blocks = list.host(),
                .ends = until.host(),
                .entries = values.host(),
                .count = count,
                .micro_batches = micro_batches,
                .means = means.host(),
                .largest = largest.host()};
    run(job);
    job.totals = same.there();
    job.exponents = exponents.there();
    job.blocks = list.there();
    job.ends = until.there();
    job.entries = values.there();
    job.means = means.there();
    job.largest = largest.there();
    CudaQueue queue(device);
    queue.wide_means(job);
    queue.wait();
    CAPTURE(micro_batches);
    STARLING_CHECK_TWIN(means, device);
    STARLING_CHECK_TWIN(largest, device);
  };
  for (const std::uint32_t M :
       {1u, 2u, 3u, 7u, 256u, 1000u, kMicroBatchesMax - 1, kMicroBatchesMax})
    in_every_order([&] {
      check(1, M, [&] { return finite_bits(random); });
      check(kBlocks, M, [&] { return finite_bits(random); });
      check(9, M, [&] { return normal(random, -20); });
      check(5, M, [&] { return random() % 2 == 0 ? kMax : kSubnormal; });
    });
}

TEST_CASE("cuda squares: the exact sum and the weighted sums are the host's") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    Random random(4);
    const Layout& layout = place.layout;
    const SegmentList list(layout, place.segments);
    Twin<std::uint16_t> used(device, place.used());
    Twin<std::uint64_t> bins(device, std::vector<std::uint64_t>(SquareSum::kWords), In::kPinned);
    Twin<std::uint64_t> weighted(device, std::vector<std::uint64_t>(place.count()), In::kPinned);
    CudaQueue queue(device);
    for (const std::uint32_t M : {1u, 8u, 6u, 1u << 24, (1u << 24) - 3}) {
      std::vector<std::int32_t> values(layout.elements());
      for (std::uint32_t b = 0; b < layout.blocks(); ++b)
        for (std::uint32_t i = 0; i < layout.used(b); ++i) {
          const auto any = static_cast<std::int32_t>(random());
          const std::int32_t of_kind[] = {any >> random() % 32, any >> 4, any >> 31,
                                          0x7fffff80};  // the largest sum of squares of a block
          values[b * kBlock + i] = of_kind[b % 4];
        }
      Twin<std::int32_t> total(device, values);
      Twin<std::int16_t> exponents(
          device, made<std::int16_t>(layout.blocks(), [&] {
            return static_cast<std::int16_t>(static_cast<int>(random() % 230) - 140);
          }));
      // Side entries in every fifth block, or none.
      std::vector<std::uint32_t> blocks;
      for (std::uint32_t b = M % 4; b < layout.blocks() && M != 8; b += 5) blocks.push_back(b);
      const auto count = static_cast<std::uint32_t>(blocks.size());
      auto wide = made<float>(std::size_t{count} * kBlock, [&] { return finite_bits(random); });
      for (std::uint32_t i = 0; i < count; ++i) wide[i * kBlock] = kInfinity;
      Twin<std::uint32_t> where(device, blocks, In::kPinned);
      Twin<float> means(device, wide, In::kPinned);
      Twin<float> largest(device, std::vector<float>(count, 1.0f), In::kPinned);
      SquaresJob job{.totals = total.host(),
                     .exponents = exponents.host(),
                     .used = used.host(),
                     .wide = {where.host(), means.host(), largest.host(), count},
                     .micro_batches = M,
                     .segments = list,
                     .bins = bins.host(),
                     .weighted = weighted.host()};
      run(job);
      job.totals = total.there();
      job.exponents = exponents.there();
      job.used = used.there();
      job.wide = {where.there(), means.there(), largest.there(), count};
      job.bins = bins.there();
      job.weighted = weighted.there();
      queue.squares(job);
      queue.wait();
      CAPTURE(M);
      STARLING_CHECK_TWIN(weighted, device);
      const auto sum = [](const std::vector<std::uint64_t>& words) {
        return SquareSum::sum_of(
            std::span<const std::uint64_t, SquareSum::kWords>(words.data(), SquareSum::kWords));
      };
      CHECK(sum(bins.copy(device)) == sum(bins.values()));  // of all M until now
    }
  });
}

}  // namespace
}  // namespace starling::kernels::cuda
