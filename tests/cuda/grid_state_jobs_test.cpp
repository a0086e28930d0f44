// Jobs that change or hash a state: what the device writes against the host's loops.

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/device/host_jobs.h"
#include "kernels/grid/quantise.h"
#include "kernels/optim/optimizer.h"
#include "tests/cuda/twin.h"
#include "tests/cuda/types.h"

namespace starling::kernels::cuda {
namespace {

// As many as there may be: without and with decay, less of a rate, none, statistics, and more.
std::vector<UpdateGroup> groups() {
  std::vector<UpdateGroup> all{{1, 0}, {1, 0.1}, {0.25, 0.3}, {0, 0.1}, {1, 0, true}};
  while (all.size() < kUpdateGroupsMax) all.push_back({3, 0.001 * static_cast<double>(all.size())});
  return all;
}

// A state of a layout in both places. Padding is no zero, so that it shows who writes it.
struct States {
  States(CudaDevice& device, const Place& place, Random& random)
      : layout(place.layout),
        exponents(device, made<std::int16_t>(layout.blocks(),
                                             [&] {
                                               return static_cast<std::int16_t>(
                                                   static_cast<int>(random() % 60) - 50);
                                             })),
        weights(device, made<float>(layout.elements(), [&] { return normal(random); })),
        first(device, made<float>(layout.elements(), [&] { return normal(random, -10); })),
        second(device,
               made<float>(layout.elements(), [&] { return std::fabs(normal(random, -20)); })),
        used(device, place.used()),
        groups(device,
               made<std::uint8_t>(layout.blocks(), [&] { return random() % kUpdateGroupsMax; })),
        checksums(device, std::vector<std::uint64_t>(place.count()), In::kPinned) {}

  void check(CudaDevice& device) {
    STARLING_CHECK_TWIN(exponents, device);
    STARLING_CHECK_TWIN(weights, device);
    STARLING_CHECK_TWIN(first, device);
    STARLING_CHECK_TWIN(second, device);
    STARLING_CHECK_TWIN(checksums, device);
  }

  const Layout& layout;
  Twin<std::int16_t> exponents;
  Twin<float> weights, first, second;
  Twin<std::uint16_t> used;
  Twin<std::uint8_t> groups;
  Twin<std::uint64_t> checksums;
};

// Totals and side entries of a step.
struct Step {
  Step(CudaDevice& device, const States& states, Random& random, bool with_wide)
      : totals(device, totals_of(states.layout, random)) {
    const Layout& layout = states.layout;
    for (std::uint32_t b = 1; b < layout.blocks() && with_wide; b += 3) blocks.push_back(b);
    const auto count = static_cast<std::uint32_t>(blocks.size());
    std::vector<float> values(std::size_t{count} * kBlock);
    for (std::uint32_t i = 0; i < count; ++i)
      for (std::uint32_t e = 0; e < layout.used(blocks[i]); ++e)
        values[i * kBlock + e] = i % 4 == 3 && e % 7 == 0 ? (e % 2 == 0 ? kInfinity : -kInfinity)
                                 : i % 4 == 2             ? finite_bits(random)
                                                          : normal(random, 5);
    list = std::make_unique<Twin<std::uint32_t>>(device, blocks, In::kPinned);
    means = std::make_unique<Twin<float>>(device, values, In::kPinned);
    largest = std::make_unique<Twin<float>>(
        device, made<float>(count, [&] { return std::fabs(finite_bits(random)); }), In::kPinned);
  }
  static std::vector<std::int32_t> totals_of(const Layout& layout, Random& random) {
    std::vector<std::int32_t> values(layout.elements());
    for (std::uint32_t b = 0; b < layout.blocks(); ++b)
      for (std::uint32_t i = 0; i < layout.used(b) && b % 6 != 5; ++i)  // some blocks are zero
        values[std::size_t{b} * kBlock + i] = static_cast<std::int32_t>(random()) >> random() % 32;
    return values;
  }
  WideMeans wide_host() { return {list->host(), means->host(), largest->host(), count()}; }
  WideMeans wide_there() { return {list->there(), means->there(), largest->there(), count()}; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(blocks.size()); }

  Twin<std::int32_t> totals;
  std::vector<std::uint32_t> blocks;
  std::unique_ptr<Twin<std::uint32_t>> list;
  std::unique_ptr<Twin<float>> means, largest;
};

void apply_on_both(CudaDevice& device, const Place& place, States& states, Step& step,
                   ApplyJob job) {
  const SegmentList list(place.layout, place.segments);
  const bool two = job.second != nullptr;
  job.segments = list;
  job.totals = step.totals.host();
  job.used = states.used.host();
  job.groups = states.groups.host();
  job.wide = step.wide_host();
  job.exponents = states.exponents.host();
  job.weights = states.weights.host();
  job.first = states.first.host();
  job.second = two ? states.second.host() : nullptr;
  job.checksums = states.checksums.host();
  run(job);
  job.totals = step.totals.there();
  job.used = states.used.there();
  job.groups = states.groups.there();
  job.wide = step.wide_there();
  job.exponents = states.exponents.there();
  job.weights = states.weights.there();
  job.first = states.first.there();
  job.second = two ? states.second.there() : nullptr;
  job.checksums = states.checksums.there();
  CudaQueue queue(device);
  queue.apply(job);
  queue.wait();
}

OptimizerSpec optimizer(OptimizerKind kind, bool nesterov = false) {
  OptimizerSpec spec;
  spec.kind = kind;
  spec.momentum = 0.9;
  spec.nesterov = nesterov;
  spec.weight_decay = 0.1;
  return spec;
}

// Steps that follow each other, so that every optimizer's moments are in use; with side entries and
// infinities, which make moments that are no numbers.
TEST_CASE("cuda apply: weights, moments, exponents and checksums are the host's") {
  CudaDevice device(0);
  const OptimizerSpec specs[] = {optimizer(OptimizerKind::kAdamW), optimizer(OptimizerKind::kAdam),
                                 optimizer(OptimizerKind::kSgd),
                                 optimizer(OptimizerKind::kSgd, /*nesterov=*/true)};
  on_places([&](const Place& place) {
    for (std::size_t o = 0; o < std::size(specs); ++o) {
      if (!place.small() && o % 2 == 1) continue;
      CAPTURE(o);
      Random random(o);
      States states(device, place, random);
      for (const std::uint64_t v : {0, 1, 7, 8}) {  // 7: exponents fall
        CAPTURE(v);
        const std::uint32_t M = v % 2 == 0 ? 8 : 6;
        Step step(device, states, random, /*with_wide=*/v != 1);
        StepScale scale;
        scale.rate = 1e-3;
        scale.clip_scale = v == 7 ? 0.3 : 1;
        scale.t = v + 1;
        const Grid grid(M);
        apply_on_both(device, place, states, step,
                      {.second = moments(specs[o]) == 2 ? states.second.host() : nullptr,
                       .numbers = update_numbers(specs[o], scale, groups()),
                       .micro_batches = M,
                       .limit_bits = grid.limit_bits,
                       .headroom_bits = grid.headroom_bits,
                       .step = v,
                       .skipped = v == 8});
        states.check(device);
      }
    }
  });
}

TEST_CASE("cuda publish: parameters, exponents and checksums, rounded or not") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    Random random(5);
    States states(device, place, random);
    const std::size_t n = place.layout.elements();
    const SegmentList list(place.layout, place.segments);
    Twin<float> weights(device, made<float>(n, [&] { return random_bits(random); }));
    Twin<float> parameters(device, std::vector<float>(n, 3.0f));
    Twin<std::int16_t> exponents(device, std::vector<std::int16_t>(place.layout.blocks(), 99));
    CudaQueue queue(device);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
      PublishJob job{.weights = weights.host(),
                     .held_exponents = states.exponents.host(),
                     .parameters = parameters.host(),
                     .precision = precision,
                     .exponents = exponents.host(),
                     .segments = list,
                     .checksums = states.checksums.host()};
      run(job);
      job.weights = weights.there();
      job.held_exponents = states.exponents.there();
      job.parameters = parameters.there();
      job.exponents = exponents.there();
      job.checksums = states.checksums.there();
      queue.publish(job);
      queue.wait();
      STARLING_CHECK_TWIN(parameters, device);
      STARLING_CHECK_TWIN(exponents, device);
      STARLING_CHECK_TWIN(states.checksums, device);
    }
  });
}

// Of arrays with any bits, in padding too.
struct Hashed {
  Hashed(CudaDevice& device, const Place& place, Random& random)
      : a(device, values(place, random)),
        b(device, values(place, random)),
        c(device, values(place, random)),
        exponents(device, made<std::int16_t>(place.layout.blocks(),
                                             [&] { return static_cast<std::int16_t>(random()); })) {
  }
  static std::vector<float> values(const Place& place, Random& random) {
    return made<float>(place.layout.elements(), [&] { return random_bits(random); });
  }
  Twin<float> a, b, c;
  Twin<std::int16_t> exponents;
};

TEST_CASE("cuda checksum: of one to three arrays, each with its seed") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    Random random(6);
    Hashed hashed(device, place, random);
    const SegmentList list(place.layout, place.segments);
    Twin<std::uint64_t> sums(device, std::vector<std::uint64_t>(place.count()), In::kPinned);
    CudaQueue queue(device);
    for (const int arrays : {1, 2, 3}) {
      const auto seeds = made<std::uint64_t>(place.count(), [&] { return random(); });
      ChecksumJob job{.exponents = hashed.exponents.host(),
                      .arrays = {hashed.a.host(), arrays > 1 ? hashed.b.host() : nullptr,
                                 arrays > 2 ? hashed.c.host() : nullptr},
                      .segments = list,
                      .seeds = seeds.data(),
                      .checksums = sums.host()};
      run(job);
      job.exponents = hashed.exponents.there();
      job.arrays[0] = hashed.a.there();
      if (arrays > 1) job.arrays[1] = hashed.b.there();
      if (arrays > 2) job.arrays[2] = hashed.c.there();
      job.checksums = sums.there();
      queue.checksum(job);
      queue.wait();
      CAPTURE(arrays);
      STARLING_CHECK_TWIN(sums, device);
    }
  });
}

TEST_CASE("cuda checksum: of arrays that begin at a later block") {
  CudaDevice device(0);
  on_places([&](const Place& place) {
    if (place.segments.size() < 2) return;
    Random random(9);
    Hashed hashed(device, place, random);
    const SegmentList list(place.layout, std::span(place.segments).last(1));
    const std::uint32_t first = place.layout.first_block(place.segments.back());
    Twin<std::uint64_t> sums(device, std::vector<std::uint64_t>(1), In::kPinned);
    const std::vector<std::uint64_t> seeds{0};
    CudaQueue queue(device);
    ChecksumJob job{.exponents = hashed.exponents.host(),
                    .arrays = {hashed.a.host() + std::size_t{first} * kBlock, nullptr, nullptr},
                    .first_block = first,
                    .segments = list,
                    .seeds = seeds.data(),
                    .checksums = sums.host()};
    run(job);
    job.exponents = hashed.exponents.there();
    job.arrays[0] = hashed.a.there() + std::size_t{first} * kBlock;
    job.checksums = sums.there();
    queue.checksum(job);
    queue.wait();
    STARLING_CHECK_TWIN(sums, device);
  });
}

void check_digests(CudaDevice& device, const Place& place) {
  Random random(7);
  Hashed hashed(device, place, random);
  const SegmentList list(place.layout, place.segments);
  Twin<std::uint16_t> used(device, place.used());
  Twin<std::uint64_t> digests(device, std::vector<std::uint64_t>(2 * place.count()), In::kPinned);
  CudaQueue queue(device);
  for (const int which : {0b001, 0b011, 0b111, 0b101, 0b1111, 0b1001, 0b1011, 0b1110}) {
    const auto job_of = [&](auto at) {
      DigestJob job{.exponents = (which & 8) != 0 ? at(hashed.exponents) : nullptr,
                    .arrays = {(which & 1) != 0 ? at(hashed.a) : nullptr,
                               (which & 2) != 0 ? at(hashed.b) : nullptr,
                               (which & 4) != 0 ? at(hashed.c) : nullptr},
                    .used = at(used),
                    .segments = list,
                    .digests = at(digests)};
      return job;
    };
    run(job_of([](auto& twin) { return twin.host(); }));
    queue.digest(job_of([](auto& twin) { return twin.there(); }));
    queue.wait();
    CAPTURE(which);
    STARLING_CHECK_TWIN(digests, device);
  }
}

TEST_CASE("cuda digest: number, real elements and exponents, of any arrays") {
  CudaDevice device(0);
  on_places([&](const Place& place) { check_digests(device, place); });
}

// Many short blocks, so that what is hashed has many gaps: some at every place within 32 blocks and
// within the 1024 bytes that a hash takes at once.
TEST_CASE("cuda digest: gaps anywhere") {
  CudaDevice device(0);
  Random random(8);
  for (int i = 0; i < 12; ++i) {
    std::vector<std::uint64_t> sizes;
    const std::uint64_t largest = i % 3 == 0 ? 40 : i % 3 == 1 ? 600 : 20'000;
    for (int t = 0; t < 60; ++t) sizes.push_back(1 + random() % largest);
    check_digests(device, mixed_place(sizes, i % 2 == 0 ? 1000 : 70));
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
