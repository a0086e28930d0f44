#include "actors/worker/setup.h"

#include <utility>

#include "core/base/hash.h"
#include "core/data/dataset.h"
#include "kernels/grid/quantise.h"

namespace starling::actors {

Result<std::shared_ptr<const TrainingSetup>> set_up(const Job& job,
                                                    std::shared_ptr<const kernels::Model> model,
                                                    BatchSource batches,
                                                    const Digest& data_identity) {
  auto setup = std::make_shared<TrainingSetup>();
  setup->job = job;
  setup->layout = std::make_shared<const Layout>(model->tensors());
  const Layout& layout = *setup->layout;
  setup->parameters.resize(layout.elements());
  model->initialise(job.seed, layout, setup->parameters);

  STARLING_TRY(batch, batches(0, 0));
  const auto workspace = model->make_workspace(batch.sequences);
  std::vector<float> gradient(layout.elements());
  STARLING_TRY(result, model->forward_backward(setup->parameters, batch, *workspace, gradient));
  setup->exponents.resize(layout.blocks());
  kernels::initial_exponents(kernels::Grid(job.micro_batches), layout, gradient, setup->exponents);

  ByteWriter probe;
  probe.put(hash128(as_bytes(std::span<const float>(gradient))));
  probe.put(hash128(as_bytes(std::span<const float>(setup->parameters))));
  probe.put(result.loss);
  probe.put(data_identity);
  const Bytes bytes = std::move(probe).take();
  setup->fingerprint = hash128(bytes);
  setup->fingerprint_text = "isa " + model->isa() + ", data " +
                            to_string(data_identity).substr(0, 8) + ", first gradient " +
                            to_string(setup->fingerprint).substr(0, 8);
  setup->model = std::move(model);
  setup->batches = std::move(batches);
  return std::shared_ptr<const TrainingSetup>(std::move(setup));
}

Result<std::shared_ptr<const TrainingSetup>> set_up(const Job& job) {
  STARLING_TRY(model, kernels::make_model(job.model, job.isa));
  STARLING_TRY(opened, Dataset::open(job));
  std::shared_ptr<const Dataset> data = std::move(opened);
  return set_up(
      job, std::move(model),
      [data](std::uint64_t step, MicroBatch m) { return data->micro_batch(step, m); },
      data->identity());
}

}  // namespace starling::actors
