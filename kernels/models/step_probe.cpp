#include "kernels/models/step_probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/job/layout.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"
#include "kernels/optim/optimizer.h"

namespace starling::kernels {

namespace {

constexpr std::uint64_t kSteps = 3;
constexpr std::uint32_t kMicroBatches = 3;  // one step adds up so many, if the job has them
constexpr std::uint32_t kUses = 2;          // of the matrix

// Gives the same on every machine: from integers, by exact operations.
float noise(std::uint64_t i, std::uint64_t step, std::uint64_t m) {
  const std::uint64_t bits = mix64(mix64(i, step), m);
  const auto value = static_cast<float>(static_cast<std::int32_t>(bits >> 40) - (1 << 23));
  return value * (bits % 64 == 0 ? 0x1p-14f : 0x1p-30f);  // now and then one for the side list
}

std::vector<float> probe_gradient(const Layout& layout, Version step, MicroBatch m) {
  std::vector<float> gradient(layout.elements());
  for (std::uint32_t b = 0; b < layout.blocks(); ++b)
    for (std::uint32_t i = 0; i < layout.used(b); ++i)
      gradient[std::size_t{b} * kBlock + i] = noise(std::size_t{b} * kBlock + i, step, m);
  return gradient;
}

Digest state_after_steps(const Job& job) {
  const Layout layout({{.name = "matrix", .shape = {40, 30}, .layer = 0, .uses = kUses},
                       {.name = "vector", .shape = {300}, .layer = 1}});
  const std::uint32_t adds = std::min(job.micro_batches, kMicroBatches);
  State state(layout, job);
  std::vector<SegmentId> all(layout.segments());
  std::iota(all.begin(), all.end(), SegmentId{0});
  for (const SegmentId s : all) state.hold(s);
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(Grid(job), layout, probe_gradient(layout, 0, 0), exponents);
  state.initialise(probe_gradient(layout, 99, 99), exponents);
  const auto queue = host_device().make_queue();
  Accumulators accumulators(layout, job.micro_batches, host_device(), job.numbers);
  Totals totals(layout, job.micro_batches);
  for (Version step = 0; step < kSteps; ++step) {
    for (MicroBatch m = 0; m < adds; ++m) {
      auto adding = accumulators.begin(*queue, state.working().exponents, job.seed, step, m);
      for (std::uint32_t use = 0; use < kUses; ++use) {
        const auto gradient = probe_gradient(layout, step, m + use * kMicroBatches);
        for (PartId p = 0; p < layout.parts().size(); ++p)
          if (use < layout.parts()[p].uses)
            adding.add(p, use, gradient.data() + layout.parts()[p].first());
      }
      adding.finish();
    }
    std::ranges::copy(accumulators.sums(), totals.sums().begin());
    for (const SideEntry& entry : accumulators.side())
      STARLING_CHECK(totals.add_side(entry).has_value());
    totals.set_pending(step);
    StepRecord record;
    record.version = step;
    record.norm = std::sqrt(state.partial_norm(totals, all).squares.value());
    state.apply(totals, record, all);
    state.publish(all);
    totals.clear();
    accumulators.clear();
  }
  return state.digest_part(all);
}

// Puts rates and updates late in so many steps.
void put_updates(ByteWriter& probe, const OptimizerSpec& optimizer, std::uint64_t steps) {
  for (const std::uint64_t late : {steps / 3, steps / 2, steps - 1}) {
    StepScale scale;
    scale.rate = learning_rate(optimizer, late, steps);
    scale.clip_scale = clip_factor(0.7, optimizer.clip);
    scale.t = late + 1;
    std::vector<float> gradient(kBlock), weights(kBlock), first(kBlock), second(kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) {
      gradient[i] = noise(i, late, 1);
      weights[i] = noise(i, late, 2);
      first[i] = noise(i, late, 3);
      second[i] = noise(i, late, 4) * noise(i, late, 4);
    }
    update(optimizer, scale, /*decay=*/true, gradient, weights, first, second);
    probe.put(scale.rate);
    for (const auto& values : {weights, first, second})
      probe.put(hash128(as_bytes(std::span<const float>(values))));
  }
}

}  // namespace

Digest probe_steps(const Job& job) {
  ByteWriter probe;
  probe.put(state_after_steps(job));
  put_updates(probe, job.optimizer, std::max<std::uint64_t>(1, job.steps));
  if (job.local.on()) put_updates(probe, job.local.optimizer, local_steps(job));
  return hash128(std::move(probe).take());
}

}  // namespace starling::kernels
