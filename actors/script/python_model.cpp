#include "actors/script/python_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "actors/script/requests.h"
#include "actors/script/window.h"
#include "core/base/check.h"
#include "core/base/mutex.h"
#include "kernels/cpu/table.h"
#include "kernels/models/own.h"

namespace starling::actors::script {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::SharedPlace;

// Floats are in the worker's memory, and at `place` for other processes, if these can map them.
template <class Float>
struct Floats {
  std::span<Float> values;
  std::optional<SharedPlace> place;
};

class PythonWorkspace : public kernels::Workspace {
 public:
  PythonWorkspace(Processes& processes, std::uint32_t sequences)
      : Workspace(1, sequences), processes_(processes) {}
  ~PythonWorkspace() override {
    if (process.child) processes_.give_back(std::move(process));
  }

  Process process;
  Window parameters, gradient;

 private:
  Processes& processes_;
};

}  // namespace

// Resources change while the model computes, which itself does not.
struct PythonModel::Resources {
  Resources(const PythonSpec& spec, std::string isa, const std::vector<TensorSpec>& tensors)
      : data(spec), processes(spec, std::move(isa), tensors, data) {}

  Result<> initialise(std::uint64_t seed, const Layout& layout, const Floats<float>& parameters);
  Result<kernels::MicroBatchResult> compute(const Floats<const float>& parameters,
                                            const Batch& batch, kernels::Workspace& workspace,
                                            const Floats<float>& gradient);

  DataReader data;
  Processes processes;
  std::atomic<std::uint64_t> copied = 0;
  std::atomic<bool> on_device = false;
  Mutex mutex;
  Times times STARLING_GUARDED_BY(mutex);
};

Result<> PythonModel::Resources::initialise(std::uint64_t seed, const Layout& layout,
                                            const Floats<float>& parameters) {
  const std::span<float> values = parameters.values;
  STARLING_CHECK(values.size() == layout.elements());
  Window window;
  const SharedPlace place = window.show(parameters.place, values.size());
  ByteWriter request;
  request.put(Ask::kInitialise);
  request.put(seed);
  request.put(place.offset);
  request.put(std::uint64_t{values.size_bytes()});
  Process process;
  STARLING_TRY(processes.ask(process, std::move(request).take(), {&place.file, 1}));
  if (!window.here()) {
    std::copy_n(window.own(), values.size(), values.data());
    copied += values.size_bytes();
  }
  processes.give_back(std::move(process));
  return ok();
}

Result<kernels::MicroBatchResult> PythonModel::Resources::compute(
    const Floats<const float>& parameters, const Batch& batch, kernels::Workspace& workspace,
    const Floats<float>& gradient) {
  auto& space = static_cast<PythonWorkspace&>(workspace);
  if (batch.samples.size() != batch.sequences)
    return Error(Code::kBadInput, "a batch of " + std::to_string(batch.sequences) +
                                      " samples has " + std::to_string(batch.samples.size()) +
                                      " numbers");
  if (auto wrong = data.wrong(); !wrong.empty()) return Error(Code::kBadInput, std::move(wrong));
  const std::uint64_t bytes = parameters.values.size_bytes();
  const SharedPlace from = space.parameters.show(parameters.place, parameters.values.size());
  const SharedPlace to = space.gradient.show(gradient.place, gradient.values.size());
  const Mapped wanted{from.id, to.id, from.offset, to.offset};
  if (!space.parameters.here()) {
    std::ranges::copy(parameters.values, space.parameters.own());
    copied += bytes;
  }
  const auto map = [&](Process& process) -> Result<> {
    if (process.mapped == wanted) return ok();
    ByteWriter request;
    request.put(Ask::kMap);
    put_place(request, from);
    put_place(request, to);
    request.put(bytes);
    const int files[] = {from.file, to.file};
    STARLING_TRY(
        ask(*process.child, std::move(request).take(), files, processes.patience().most()));
    process.mapped = wanted;
    return ok();
  };
  const auto begun = Clock::now();
  const Ask kind = batch.held_out ? Ask::kEvaluate : Ask::kPass;
  STARLING_TRY(reply, processes.ask_for_pass(space.process, batch_request(kind, batch),
                                             batch.held_out, map));
  const auto all = Clock::now() - begun;

  ByteReader reader(reply);
  kernels::MicroBatchResult result;
  result.loss = reader.get<double>();
  result.tokens = reader.get<std::uint64_t>();
  const auto script = std::chrono::nanoseconds(reader.get<std::uint64_t>());
  const auto metrics = reader.get<std::uint8_t>();
  for (std::size_t i = 0; i < metrics && reader.good(); ++i)
    result.metrics.push_back(reader.get<double>());
  if (!reader.good() || result.tokens > batch.sequences * std::uint64_t{1 << 20})
    return Error(Code::kUnavailable, "the script's process said what is no loss");
  result.finite = std::isfinite(result.loss);
  if (batch.held_out) return result;  // no gradient was computed
  {
    const MutexLock lock(mutex);
    ++times.passes;
    times.all += all;
    times.script += std::min<std::chrono::nanoseconds>(script, all);
  }
  if (!space.gradient.here()) {
    std::copy_n(space.gradient.own(), gradient.values.size(), gradient.values.data());
    copied += gradient.values.size_bytes();
  }
  data.read_on(processes, space.process, all);
  return result;
}

PythonModel::PythonModel(const PythonSpec& spec, std::string isa, std::vector<TensorSpec> tensors)
    : tensors_(std::move(tensors)),
      resources_(std::make_unique<Resources>(spec, std::move(isa), tensors_)) {}

PythonModel::~PythonModel() = default;

const std::string& PythonModel::isa() const {
  static const std::string python = "python";
  return python;
}

std::unique_ptr<kernels::Workspace> PythonModel::make_workspace(std::uint32_t sequences) const {
  return std::make_unique<PythonWorkspace>(resources_->processes, sequences);
}

Result<> PythonModel::initialise(std::uint64_t seed, const Layout& layout,
                                 std::span<float> parameters) const {
  return resources_->initialise(seed, layout, {parameters, std::nullopt});
}

Result<> PythonModel::initialise(std::uint64_t seed, const Layout& layout,
                                 kernels::Array<float>& parameters) const {
  return resources_->initialise(seed, layout, {parameters.all(), parameters.place()});
}

Result<kernels::MicroBatchResult> PythonModel::forward_backward(std::span<const float> parameters,
                                                                const Batch& batch,
                                                                kernels::Workspace& workspace,
                                                                std::span<float> gradient) const {
  return resources_->compute({parameters, std::nullopt}, batch, workspace,
                             {gradient, std::nullopt});
}

Result<kernels::MicroBatchResult> PythonModel::pass(const Layout& layout,
                                                    kernels::PartSource& parameters,
                                                    const Batch& batch,
                                                    kernels::Workspace& workspace,
                                                    kernels::GradientSink& gradient) const {
  STARLING_CHECK(layout.parts().size() == 1);  // no tensor of a script has a layer
  constexpr PartId kAll = 0;
  const std::size_t floats = layout.elements();
  const std::span from(parameters.acquire(kAll), floats);
  const std::span to(gradient.begin(kAll, 0), floats);
  auto result = resources_->compute({from, parameters.parameters_at(kAll)}, batch, workspace,
                                    {to, gradient.gradient_at(kAll, 0)});
  parameters.release(kAll);
  if (result) gradient.end(kAll, 0);
  return result;
}

void PythonModel::compute_beside(const kernels::Device& device) {
  resources_->processes.on_gpu(device.uuid());
}

Result<> PythonModel::meet(kernels::Device& device) {
  if (device.host_memory()) return ok();
  const auto piece = kernels::Array<float>::exported(device, 1);
  const auto place = piece.place();
  if (!place) return ok();
  Process process;
  STARLING_TRY(reply, resources_->processes.ask(process, try_request(*place), {&place->file, 1}));
  resources_->on_device = reply.size() == 1 && reply[0] == 1;
  resources_->processes.give_back(std::move(process));
  return ok();
}

bool PythonModel::takes_places() const {
  return resources_->on_device;
}

void PythonModel::begin_with(const Batch& first, std::uint32_t local_steps) {
  resources_->data.begin_with(first.sequences);
  resources_->processes.begin_with(first, local_steps);
}

void PythonModel::read_rest(const std::function<bool()>& go_on) const {
  resources_->data.read_rest(resources_->processes, go_on);
}

Processes& PythonModel::processes() const {
  return resources_->processes;
}

const DataReader& PythonModel::data() const {
  return resources_->data;
}

PythonModel::Times PythonModel::times() const {
  const MutexLock lock(resources_->mutex);
  return resources_->times;
}

std::uint64_t PythonModel::copied() const {
  return resources_->copied;
}

Result<std::unique_ptr<PythonModel>> make_python_model(const PythonSpec& spec,
                                                       const std::string& isa) {
  STARLING_TRY(kernels, kernels::kernel_table(isa));
  STARLING_TRY(tensors, kernels::tensors_of(spec.tensors));
  if (tensors.empty() || spec.samples == 0)
    return Error(Code::kBadInput, "a script's model needs tensors and samples; [model]");
  return std::make_unique<PythonModel>(spec, kernels->isa, std::move(tensors));
}

}  // namespace starling::actors::script
