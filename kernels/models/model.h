#pragma once
// A Model has named tensors, and computes forward and backward over one micro-batch: a
// chain of layers (kernels/layers/) over the kernels of one instruction set (kernels/cpu/).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/layers/frozen.h"
#include "kernels/layers/parts.h"

namespace starling::kernels {

using starling::Batch;

struct KernelTable;

struct MicroBatchResult {
  double loss = 0;           // mean cross entropy, nats
  std::uint64_t tokens = 0;  // predictions made: tokens or samples
  bool finite = true;        // the loss
  // Other measured values, as many as the job names and in its order; their means
  // over the micro-batches of a step stand in its record (`step` event, `metrics`).
  std::vector<double> metrics{};
  std::uint32_t skipped = 0;  // local steps that were not made, as their gradients were not finite
};

// A Workspace is memory for one pass at a time: activations and scratch. It is
// taken once, from huge pages where the kernel gives them (a killed process frees
// these fifty times faster). Threads: one thread at a time; one per compute thread.
class Workspace {
 public:
  // Throws std::bad_alloc as the standard containers do.
  explicit Workspace(std::size_t floats, std::uint32_t sequences);
  virtual ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::span<float> floats() const { return {data_, floats_}; }  // starts at a 64-byte boundary
  std::uint32_t sequences() const { return sequences_; }

 private:
  float* data_ = nullptr;
  std::size_t floats_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::uint32_t sequences_ = 0;
};

// Threads: const and safe from any number of threads with distinct workspaces. A pass runs in the
// calling thread alone, and its bits depend on parameters, batch, model and instruction set only.
class Model {
 public:
  virtual ~Model() = default;
  virtual const std::vector<TensorSpec>& tensors() const = 0;
  // Tensors that a pass reads and training leaves as they are, which are none of tensors(). Default: none.
  virtual const std::vector<TensorSpec>& frozen() const;
  // Gives their values, before the first pass. Default, and where there are none: a check fails.
  virtual void set_frozen(std::shared_ptr<const FrozenTensors> values);
  // Returns these; null: none were given.
  virtual std::shared_ptr<const FrozenTensors> frozen_values() const { return nullptr; }
  // Returns the resolved instruction set, never "auto"; a part of the fingerprint.
  virtual const std::string& isa() const;  // default: "portable"

  // Makes it for batches of exactly `sequences` sequences or samples. Default: an empty one.
  virtual std::unique_ptr<Workspace> make_workspace(std::uint32_t sequences) const;

  // Sets all elements of `parameters`, padding included, from Philox: the same bits on every
  // machine. `layout` is a Layout of tensors(); parameters.size() == layout.elements().
  // Errors: as the model's own source of values has them; the built-in models have none.
  virtual Result<> initialise(std::uint64_t seed, const Layout& layout,
                              std::span<float> parameters) const = 0;
  // Sets the elements of one part, [elements of the part].
  // Default: initialise(), for a model whose tensors are one part.
  virtual Result<> initialise_part(std::uint64_t seed, const Layout& layout, PartId part,
                                   std::span<float> parameters) const;

  // Overwrites all of `gradient` (padding with zeros) with the gradient of the batch's mean loss.
  // Both spans are flat in the layout of tensors(), of any alignment.
  // Errors: kBadInput  the batch does not fit the model or the workspace, or values of frozen() were
  // not given or have changed.
  virtual Result<MicroBatchResult> forward_backward(std::span<const float> parameters,
                                                    const Batch& batch, Workspace& workspace,
                                                    std::span<float> gradient) const = 0;

  // Computes the same, part by part: takes every part from `parameters` and gives each use of
  // its gradient to `gradient`. `layout` is a Layout of tensors(). Default: forward_backward(),
  // for a model whose tensors are one part. Nothing is given if there is an error, but where values of frozen() have
  // changed in the pass, which ends the worker. Errors: as
  // forward_backward(); kBadInput  several parts, and this was not overridden.
  virtual Result<MicroBatchResult> pass(const Layout& layout, PartSource& parameters,
                                        const Batch& batch, Workspace& workspace,
                                        GradientSink& gradient) const;

  // Computes the loss alone; same bits as forward_backward's. Default: that, gradient and all.
  virtual Result<MicroBatchResult> evaluate(std::span<const float> parameters, const Batch& batch,
                                            Workspace& workspace) const;
  // Whether evaluate() is cheaper than a pass, and the same.
  virtual bool evaluates() const { return false; }
  // Whether passes go by places alone where there are some (PartSource::parameters_at(),
  // GradientSink::gradient_at()), and follow no address: it may be one of a device.
  virtual bool takes_places() const { return false; }
};

// Makes a model. isa: "reference", "avx2", "avx512", or "auto" for the best of this
// CPU. recompute: a workspace keeps only the inputs of layers, and the backward pass
// computes again what else it needs of each layer: the same bits, with one forward pass
// more (Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost", section 4).
// Errors: kBadInput  the specification makes no model, or the CPU lacks the instruction set;
// kInternal  a PythonSpec: processes compute a script's model (actors/make_model.h).
Result<std::unique_ptr<Model>> make_model(const ModelSpec& spec, const std::string& isa,
                                          bool recompute = false);
// Makes it over these kernels, which must outlive it.
Result<std::unique_ptr<Model>> make_model(const ModelSpec& spec, const KernelTable& kernels,
                                          bool recompute);

}  // namespace starling::kernels
