// How much memory of the device is taken, which the imitation counts exactly.

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "elastic/membership/placement.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/no_memory.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"
#include "kernels/models/gradient_maker.h"
#include "kernels/models/model.h"
#include "tests/cuda/imitation/imitation.h"

namespace starling::kernels::cuda {
namespace {

std::size_t taken() {
  std::size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  return total - free;
}

TEST_CASE("a GPU without room for what is to be backed is told so, and nothing of it is taken") {
  constexpr std::size_t kElements = 1u << 20;
  CudaDevice device(0);
  auto array = Array<float>::sparse(device, kElements);
  array.back(0, 1000);
  const std::size_t before = taken();
  imitation::set_memory(before + (1u << 20));
  CHECK_THROWS_AS(array.back(kElements / 2, kElements / 2), NoMemory);
  CHECK(taken() == before);
  imitation::set_memory(0);
  array.back(kElements / 2, kElements / 2);
  CHECK(taken() >= before + (2u << 20));
  const auto queue = device.make_queue();
  std::vector<float> read(kElements / 2, 1);
  array.copy_out(*queue, kElements / 2, read);
  queue->wait();
  CHECK(read == std::vector<float>(kElements / 2));
}

TEST_CASE("a state without room for all arrays of a segment holds nothing of it") {
  Job job;
  job.model = MlpSpec{{512, 512, 512}};
  const Layout layout(make_model(job.model, "reference").value()->tensors());
  const auto device = Gpu::open({}).value();
  State state(layout, job, *device);
  const std::size_t before = taken();
  for (const std::size_t room : {0u, 1u << 16, 1u << 17}) {  // for none of three, one, and two
    imitation::set_memory(before + room);
    CHECK_THROWS_AS(state.hold(0), NoMemory);
    CHECK_FALSE(state.holds(0));
    CHECK(taken() == before);
    imitation::set_memory(0);
  }
  state.hold(0);
  state.drop(0);
  CHECK(taken() == before);
}

// The driver's granules are larger than the imitation's, and what a worker holds lies in runs: of models with
// thousands of millions of parameters, with a driver's 2 MiB.
TEST_CASE("whole granules cost a large model less than half a byte a parameter") {
  constexpr std::size_t kGrain = 2u << 20;
  for (const std::uint32_t width : {2048u, 4096u}) {
    std::vector<TensorSpec> tensors;
    for (std::uint32_t layer = 0; layer < 32; ++layer)
      for (const std::uint32_t rows : {3 * width, width, 4 * width, 4 * width})
        tensors.push_back({"w" + std::to_string(tensors.size()), {rows, width}});
    const Layout layout(tensors);
    for (const std::uint32_t world : {4u, 8u, 16u, 32u})
      for (const std::uint32_t replicas : {1u, 2u}) {
        elastic::PlacementInput in;
        in.segments = layout.segments();
        in.bucket_segments = layout.bucket(0).count;
        in.replicas = replicas;
        in.members.resize(world);
        const auto holders = elastic::target_holders(in);
        std::size_t held = 0, mapped = 0;
        for (Rank rank = 0; rank < world; ++rank) {
          Granules granules(layout.bytes_of(What::kWeights), kGrain);
          for (SegmentId s = 0; s < layout.segments(); ++s) {
            if (std::ranges::find(holders[s], rank) == holders[s].end()) continue;
            const std::size_t bytes = layout.bytes_of({s, 1}, What::kWeights);
            granules.take(layout.first_element(s) * sizeof(float), bytes);
            held += bytes;
          }
          for (const auto& run : granules.mapped()) mapped += run.count;
        }
        const double extra = 4.0 * static_cast<double>(mapped - held) / world /
                             static_cast<double>(layout.elements());
        INFO(extra << " bytes a parameter, of " << world << " workers, " << replicas
                   << " replicas, width " << width);
        CHECK(extra < 0.5);
      }
  }
}

// 4 bytes a parameter of working parameters, 2 of those rounded, 4 of sums, and of a part h of them weights, two
// moments and totals.
TEST_CASE(
    "a worker takes 10 + 16 h bytes of the GPU for each parameter, wherever its segments lie") {
  Job job;
  job.model = MlpSpec{std::vector<std::uint32_t>(97, 512)};
  job.precision = Precision::kBf16;
  job.optimizer.kind = OptimizerKind::kAdamW;
  const auto model = make_model(job.model, "reference").value();
  const Layout layout(model->tensors());
  for (const std::uint32_t world : {1u, 2u, 8u}) {
    elastic::PlacementInput in;
    in.segments = layout.segments();
    in.bucket_segments = layout.bucket(0).count;
    in.replicas = 1;
    in.members.resize(world);
    const auto holders = elastic::target_holders(in);
    for (const Rank rank : {Rank(0), Rank(world - 1)}) {
      const auto device = Gpu::open({}).value();
      const std::size_t before = taken();
      State state(layout, job, *device);
      Accumulators accumulators(layout, 8, *device);
      Totals totals(layout, 8, *device);
      const auto maker = make_gradient_maker(job, *model, layout, *device, /*sequences=*/1);
      for (SegmentId s = 0; s < layout.segments(); ++s) {
        if (std::ranges::find(holders[s], rank) == holders[s].end()) continue;
        state.hold(s);
        totals.hold(s);
      }
      const auto parameters = static_cast<double>(layout.elements());
      const double held = std::min(1.0, 2.0 / world);
      const double each = static_cast<double>(taken() - before) / parameters;
      INFO(each << " bytes a parameter, of rank " << rank.value() << " of " << world);
      CHECK(each >= 10 + 16 * held);
      CHECK(each <= 1.05 * (10 + 16 * held));
    }
  }
}

}  // namespace
}  // namespace starling::kernels::cuda
