#include "kernels/models/host_maker.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "kernels/device/emulated.h"
#include "kernels/device/lazy_pages.h"
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

Made make_step(Device& device) {
  const Job job = synthetic_job();
  const auto model = make_model(job.model, "auto").value();
  const Layout layout(model->tensors());
  std::vector<float> parameters(layout.elements()), gradient(layout.elements());
  REQUIRE(model->initialise(job.seed, layout, parameters));
  const auto workspace = model->make_workspace(1);
  REQUIRE(model->forward_backward(parameters, batch_of(0), *workspace, gradient));
  std::vector<std::int16_t> exponents(layout.blocks());
  initial_exponents(Grid(kMicroBatches), layout, gradient, exponents);

  State state(layout, job, device);
  state.initialise(parameters, exponents);
  Accumulators accumulators(layout, kMicroBatches, device);
  HostMaker maker(*model, layout, device, 1);
  Made made;
  const auto* const counting = dynamic_cast<const EmulatedDevice*>(&device);
  const auto copies = [&] { return counting ? counting->copies() : EmulatedDevice::Copies(); };
  const auto before = copies();
  for (MicroBatch m = 0; m < kMicroBatches; ++m) {
    const Working working = state.working();
    auto adding = accumulators.begin(maker.queue(), working.exponents, job.seed, 0, m);
    if (m == 3) maker.drop_gradient();
    const auto result = maker.make(working, batch_of(m), adding);
    REQUIRE(result);
    made.losses.push_back(result.value().loss);
    CHECK(adding.finish().finite);
  }
  made.copies = {copies().in - before.in, copies().out - before.out};
  made.sums = sums_of(layout, accumulators);
  CHECK(accumulators.done().size() == kMicroBatches);
  return made;
}

TEST_CASE(
    "host maker: the same sums on every device; parameters are copied for loss and gradient") {
  EmulatedDevice counting;
  const Made host = make_step(host_device()), emulated = make_step(counting);
  CHECK(std::ranges::any_of(host.sums, [](std::int32_t sum) { return sum != 0; }));
  CHECK(emulated.sums == host.sums);
  CHECK(emulated.losses == host.losses);
  const std::uint64_t array = host.sums.size() * sizeof(float);
  CHECK(emulated.copies.in == kMicroBatches * array);
  CHECK(emulated.copies.out >= 2 * kMicroBatches * array);  // and side entries
  CHECK(emulated.copies.out < (2 * kMicroBatches + 1) * array);
}

// A model of one part whose gradient is twice its parameters. places: it maps both as another process does, and
// follows no address.
class Doubling : public Model {
 public:
  explicit Doubling(bool places) : places_(places) {}
  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  bool takes_places() const override { return places_; }
  Result<> initialise(std::uint64_t, const Layout&, std::span<float> parameters) const override {
    std::iota(parameters.begin(), parameters.end(), 1.0f);
    return ok();
  }
  Result<MicroBatchResult> forward_backward(std::span<const float> parameters, const Batch&,
                                            Workspace&, std::span<float> gradient) const override {
    std::ranges::transform(parameters, gradient.begin(), [](float x) { return 2 * x; });
    return MicroBatchResult{1, 1, true};
  }
  Result<MicroBatchResult> pass(const Layout& layout, PartSource& parameters, const Batch& batch,
                                Workspace& workspace, GradientSink& gradient) const override {
    if (!places_) return Model::pass(layout, parameters, batch, workspace, gradient);
    parameters.acquire(0);
    gradient.begin(0, 0);
    const auto from = parameters.parameters_at(0), to = gradient.gradient_at(0, 0);
    if (!from || !to) return Error(Code::kBadInput, "no place");
    const std::size_t n = layout.elements(), bytes = n * sizeof(float);
    const auto map = [bytes](const SharedPlace& place) {
      return static_cast<float*>(
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, place.file, 0));
    };
    float *const read = map(*from), *const written = map(*to);
    auto result = forward_backward({read, n}, batch, workspace, {written, n});
    ::munmap(read, bytes);
    ::munmap(written, bytes);
    parameters.release(0);
    gradient.end(0, 0);
    return result;
  }

 private:
  const bool places_;
  const std::vector<TensorSpec> tensors_{{"a", {4 * kBlock}}};
};

TEST_CASE(
    "host maker: for a model that goes by places nothing is copied on a device that exports") {
  const Job job = synthetic_job();
  const Doubling plain(false), mapping(true);
  const Layout layout(plain.tensors());
  const std::uint64_t array = layout.elements() * sizeof(float);
  std::vector<float> parameters(layout.elements());
  REQUIRE(plain.initialise(0, layout, parameters));
  std::vector<std::vector<float>> made;
  const auto copied_by = [&](const Model& model, EmulatedDevice& device) {
    State state(layout, job, device);
    state.initialise(parameters, std::vector<std::int16_t>(layout.blocks()));
    HostMaker maker(model, layout, device, 1);
    const auto before = device.copies();
    PassHooks hooks;
    hooks.take = [&](PartId, std::uint32_t, const float* gradient) {
      made.emplace_back(layout.elements());
      maker.queue().copy_out(writable_bytes(std::span(made.back())), gradient);
    };
    REQUIRE(maker.make(state.working(), batch_of(1), hooks));
    const auto after = device.copies();
    return after.in - before.in + after.out - before.out - array;  // but for the test's own
  };
  EmulatedDevice exporting(/*exports=*/true), alone;
  CHECK(copied_by(mapping, exporting) == 0);
  CHECK(copied_by(plain, exporting) == 2 * array);
  CHECK(copied_by(plain, alone) == 2 * array);
  CHECK(made[0][7] == 16);
  CHECK(made[1] == made[0]);
  CHECK(made[2] == made[0]);
}

TEST_CASE("host maker: parameters that are at no place are copied, also for such a model") {
  const Doubling mapping(true);
  const Layout layout(mapping.tensors());
  EmulatedDevice device(/*exports=*/true);
  State state(layout, synthetic_job(), device);
  HostMaker maker(mapping, layout, device, 1);
  Working working = state.working();
  working.place.reset();
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) {};
  const auto result = maker.make(working, batch_of(1), hooks);
  REQUIRE(result.has_error());  // and no address of the device was followed
  CHECK(result.error().text() == "no place");
}

// The host, which counts what is taken from it.
class CountingHost : public Device {
 public:
  std::uint64_t bytes() const { return bytes_; }
  const std::string& name() const override { return host_device().name(); }
  bool host_memory() const override { return true; }
  std::unique_ptr<Queue> make_queue() override { return host_device().make_queue(); }
  std::shared_ptr<Stream> make_stream() override { return host_device().make_stream(); }

 private:
  std::byte* take(std::size_t bytes, bool) override {
    bytes_ += bytes;
    return take_pages(bytes);
  }
  void give_back(std::byte* at, std::size_t bytes) override {
    bytes_ -= bytes;
    give_back_pages(at, bytes);
  }
  void prepare(std::byte*, std::size_t, std::size_t, const std::stop_token&) override {}
  void release(std::byte* at, std::size_t offset, std::size_t count) override {
    release_pages(at, offset, count);
  }

  std::uint64_t bytes_ = 0;
};

TEST_CASE("host maker: a compute thread takes memory for the gradient of one part") {
  Job job = synthetic_job();
  job.model = GptSpec{.layers = 4, .heads = 2, .width = 32, .context = 16, .vocabulary = 64};
  const auto model = make_model(job.model, "auto").value();
  const Layout layout(model->tensors());
  CountingHost device;
  State state(layout, job, device);
  state.initialise(std::vector<float>(layout.elements()),
                   std::vector<std::int16_t>(layout.blocks()));
  Accumulators accumulators(layout, kMicroBatches, device);
  const std::uint64_t before = device.bytes(), part = layout.largest_part() * sizeof(float);
  CHECK(part == 36 * kBlock * sizeof(float));  // of a feed-forward layer
  CHECK(part * 6 < layout.bytes_of(What::kGradient));
  std::vector<std::unique_ptr<HostMaker>> makers;
  for (MicroBatch m = 0; m < kMicroBatches; ++m) {
    makers.push_back(std::make_unique<HostMaker>(*model, layout, device, 1));
    Batch batch = batch_of(m);
    batch.tokens.assign(16, 3);
    batch.targets.assign(16, 5);
    const Working working = state.working();
    auto adding = accumulators.begin(makers.back()->queue(), working.exponents, job.seed, 0, m);
    REQUIRE(makers.back()->make(working, batch, adding));
    adding.finish();
    CHECK(device.bytes() == before + (m + 1) * part);
  }
}

DEVICE_CASE("host maker: what the model refuses is an error") {
  const Job job = synthetic_job();
  const auto model = make_model(GptSpec{}, "auto").value();
  const Layout layout(model->tensors());
  State state(layout, job, device);
  HostMaker maker(*model, layout, device, 1);
  Accumulators accumulators(layout, kMicroBatches, device);
  auto adding =
      accumulators.begin(maker.queue(), state.working().exponents, job.seed, /*step=*/0, /*m=*/0);
  const auto result = maker.make(state.working(), Batch{}, adding);
  REQUIRE(result.has_error());
  CHECK(result.error().code() == Code::kBadInput);
  accumulators.clear();  // nothing was begun
}

DEVICE_CASE("host maker: a pass whose parameters do not come adds nothing") {
  const Job job = synthetic_job();
  const auto model = make_model(job.model, "auto").value();
  const Layout layout(model->tensors());
  const PartId last(static_cast<std::uint32_t>(layout.parts().size()) - 1);
  State state(layout, job, device);
  HostMaker maker(*model, layout, device, 1);
  Accumulators accumulators(layout, kMicroBatches, device);
  auto adding =
      accumulators.begin(maker.queue(), state.working().exponents, job.seed, /*step=*/0, /*m=*/0);
  PassHooks hooks;
  hooks.before_reading = [&](PartId part) { return part != last; };
  const auto result = maker.make(state.working(), batch_of(0), adding, hooks);
  REQUIRE(result.has_error());
  CHECK(result.error().code() == Code::kUnavailable);
  accumulators.clear();  // nothing was begun
  CHECK(accumulators.done().empty());
}

}  // namespace
}  // namespace starling::kernels
