#include "kernels/models/host_maker.h"

#include <doctest/doctest.h>

#include "tests/kernels/grid_device.h"

namespace starling::kernels {
namespace {

constexpr std::uint32_t kMicroBatches = 4;

Job synthetic_job() {
  Job job;
  job.micro_batches = kMicroBatches;
  job.steps = 10;
  job.model = SyntheticSpec{3000, 0, 0, {}};
  return job;
}

Batch batch_of(MicroBatch m) {
  Batch batch;
  batch.sequences = 1;
  batch.draw = {1, 0, m};
  return batch;
}

// What a compute thread adds up from a state on that device.
struct Made {
  std::vector<std::int32_t> sums;
  std::vector<double> losses;
  EmulatedDevice::Copies copies;
};

template <class On>
Made make_step() {
  On on;
  const Job job = synthetic_job();
  const auto model = make_model(job.model, "auto").value();
  const Layout layout(model->tensors());
  std::vector<float> parameters(layout.elements()), gradient(layout.elements());
  model->initialise(job.seed, layout, parameters);
  const auto workspace = model->make_workspace(1);
  REQUIRE(model->forward_backward(parameters, batch_of(0), *workspace, gradient));
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(Grid(kMicroBatches), layout, gradient, exponents);

  State state(layout, job, on.device);
  state.initialise(parameters, exponents);
  Accumulators accumulators(layout, kMicroBatches, on.device);
  HostMaker maker(*model, layout, on.device, 1);
  Made made;
  const auto copies = [&]() -> EmulatedDevice::Copies {
    if constexpr (requires { on.own; }) return on.own->copies();
    return {};
  };
  const auto before = copies();
  for (MicroBatch m = 0; m < kMicroBatches; ++m) {
    const Working working = state.working();
    const auto result = maker.make(working, batch_of(m));
    REQUIRE(result);
    made.losses.push_back(result.value().loss);
    if (m == 3) maker.drop_gradient();
    const auto added =
        accumulators.add(maker.queue(), maker.gradient(), working.exponents, job.seed, 0, m);
    CHECK(added.finite);
  }
  made.copies = {copies().in - before.in, copies().out - before.out};
  made.sums = sums_of(layout, accumulators);
  CHECK(accumulators.done().size() == kMicroBatches);
  return made;
}

TEST_CASE("host maker: the same sums on every device, for one copy each way a micro-batch") {
  const Made host = make_step<OnHost>(), emulated = make_step<OnEmulated>();
  CHECK(std::ranges::any_of(host.sums, [](std::int32_t sum) { return sum != 0; }));
  CHECK(emulated.sums == host.sums);
  CHECK(emulated.losses == host.losses);
  const std::uint64_t array = host.sums.size() * sizeof(float);
  CHECK(emulated.copies.in == (kMicroBatches + 1) * array);  // one gradient was dropped
  CHECK(emulated.copies.out >= kMicroBatches * array);       // and side entries
  CHECK(emulated.copies.out < (kMicroBatches + 1) * array);
}

TEST_CASE_TEMPLATE("host maker: what the model refuses is an error", On, OnHost, OnEmulated) {
  On on;
  const Job job = synthetic_job();
  const auto model = make_model(GptSpec{}, "auto").value();
  const Layout layout(model->tensors());
  State state(layout, job, on.device);
  HostMaker maker(*model, layout, on.device, 1);
  const auto result = maker.make(state.working(), Batch{});
  REQUIRE(result.has_error());
  CHECK(result.error().code() == Code::kBadInput);
}

}  // namespace
}  // namespace starling::kernels
