#pragma once
// PythonModel is a model of a Python script: processes compute passes, and map the worker's own
// parameters and gradient (kernels/device/shared_pages.h), in the host's memory or on the GPU where
// both compute, so pass() copies nothing that grows with the model between the two; forward_backward()
// does, as a span names no file.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/script/data_reader.h"
#include "actors/script/processes.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "kernels/device/array.h"
#include "kernels/models/model.h"

namespace starling::actors::script {

// Errors of passes and of initialise(): those of Processes::ask().
class PythonModel : public kernels::Model {
 public:
  PythonModel(const PythonSpec& spec, std::string isa, std::vector<TensorSpec> tensors);
  ~PythonModel() override;

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  const std::string& isa() const override;  // "python"
  std::unique_ptr<kernels::Workspace> make_workspace(std::uint32_t sequences) const override;
  Result<> initialise(std::uint64_t seed, const Layout& layout,
                      std::span<float> parameters) const override;
  // Copies nothing where other processes can map `parameters`.
  Result<> initialise(std::uint64_t seed, const Layout& layout,
                      kernels::Array<float>& parameters) const;
  Result<kernels::MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                     const Batch& batch,
                                                     kernels::Workspace& workspace,
                                                     std::span<float> gradient) const override;
  Result<kernels::MicroBatchResult> pass(const Layout& layout, kernels::PartSource& parameters,
                                         const Batch& batch, kernels::Workspace& workspace,
                                         kernels::GradientSink& gradient) const override;

  // Has processes see this device and no other GPU. Call it before processes start.
  void compute_beside(const kernels::Device& device);
  // Finds out whether processes compute on this device: then passes find parameters and leave
  // gradients in its memory (takes_places()). Errors: those of Processes::ask().
  Result<> meet(kernels::Device& device);
  bool takes_places() const override;
  // Sets micro-batch 0 of step 0: every process makes its net from its seed, and
  // computes it before anything else. A process that comes to other bits than the first
  // one, or has other data or another text, is refused. Call it before processes start.
  // local_steps: of a micro-batch, of which `first` is the first pass then; 0: it is a pass.
  void begin_with(const Batch& first, std::uint32_t local_steps = 0);
  // See DataReader::read_rest(). Threads: any.
  void read_rest(const std::function<bool()>& go_on) const;
  Processes& processes() const;
  const DataReader& data() const;

  // Times counts all passes, how long they took, and how much of that the
  // script's batches, losses and gradients took. The rest is the bridge's.
  struct Times {
    std::uint64_t passes = 0;
    std::chrono::nanoseconds all{}, script{};
  };
  Times times() const;  // threads: any
  // Counts bytes of parameters and gradients that were copied,
  // as they lay in memory that no other process can map. Threads: any.
  std::uint64_t copied() const;

 private:
  struct Resources;

  const std::vector<TensorSpec> tensors_;
  const std::unique_ptr<Resources> resources_;
};

// Makes the model; starts no process yet. isa: as for kernels::make_model(). Errors: kBadInput
// the script has no tensors or samples, or the CPU lacks the instruction set.
Result<std::unique_ptr<PythonModel>> make_python_model(const PythonSpec& spec,
                                                       const std::string& isa);

}  // namespace starling::actors::script
