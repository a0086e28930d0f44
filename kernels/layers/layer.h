#pragma once
// A link of a model's chain: rows of numbers in, rows of numbers out, parameters of its own.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/data/batch.h"
#include "core/job/layout.h"
#include "kernels/cpu/table.h"

namespace starling::kernels {

// Where a tensor's first values come from: normal(0, deviation), or `constant` if deviation is 0.
struct Initial {
  double deviation = 0;
  float constant = 0;
};

// The model's tensors in the order in which layers declare them; a layer keeps the numbers it is
// given.
class Parameters {
 public:
  std::size_t add(std::string name, std::vector<std::uint64_t> shape, Initial initial) {
    specs_.push_back({std::move(name), std::move(shape)});
    initials_.push_back(initial);
    return specs_.size() - 1;
  }
  const std::vector<TensorSpec>& specs() const { return specs_; }
  const std::vector<Initial>& initials() const { return initials_; }

 private:
  std::vector<TensorSpec> specs_;
  std::vector<Initial> initials_;
};

// What all layers of one pass have in common. Threads: belongs to the pass.
struct Pass {
  const KernelTable& kernels;
  const std::vector<std::size_t>& offsets;  // of tensors, in floats
  const float* parameters;
  float* gradient;  // null: loss only
  const Batch& batch;
  std::size_t rows;  // sequences * positions
  std::size_t sequences;
  float* gemm_scratch;  // kGemmScratch
  float* scratch;       // the largest scratch() of any layer; nothing survives between layers
  double loss = 0;      // set by the last layer: mean over rows

  const float* parameter(std::size_t tensor) const { return parameters + offsets[tensor]; }
  float* d_parameter(std::size_t tensor) const { return gradient + offsets[tensor]; }
  void multiply(Gemm g) const {
    g.scratch = gemm_scratch;
    kernels.gemm(g);
  }
};

// Threads: const after construction. Sizes are in floats; every buffer starts at a 64-byte boundary
// and is a multiple of 16 floats long (aligned_floats()).
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::size_t width() const = 0;  // floats per row of `out`; 0 for the last layer
  // What lives from forward to backward, and what only one call needs.
  virtual std::size_t saved(std::size_t sequences, std::size_t rows) const = 0;
  virtual std::size_t scratch(std::size_t rows) const = 0;

  virtual void forward(Pass& pass, const float* in, float* out, float* saved) const = 0;
  // Overwrites the gradients of its parameters (the embedding adds to a tied one's, which the head
  // has written) and d_in. d_in is null for the first layer. Not aliased.
  virtual void backward(Pass& pass, const float* in, const float* out, float* saved,
                        const float* d_out, float* d_in) const = 0;
};

constexpr std::size_t aligned_floats(std::size_t n) {
  return (n + 15) / 16 * 16;
}

// Cuts one buffer into aligned parts.
class Carver {
 public:
  explicit Carver(float* base) : at_(base) {}
  float* take(std::size_t floats) {
    float* const p = at_;
    at_ += aligned_floats(floats);
    return p;
  }

 private:
  float* at_;
};

// y = x W + b with W [in, out]: shared by the layers.
struct Linear {
  std::size_t in = 0, out = 0;
  std::size_t weight = 0, bias = 0;  // tensor numbers

  static Linear declare(Parameters& parameters, const std::string& name, std::size_t in,
                        std::size_t out, Initial weight, Initial bias);
  // y = x W + b (+ add)
  void forward(const Pass& pass, const float* x, float* y, const float* add = nullptr) const;
  void backward_parameters(const Pass& pass, const float* x, const float* dy) const;
  void backward_input(const Pass& pass, const float* dy, float* dx) const;  // dx = dy W^T
};

// LayerNorm's tensors and its two numbers per row.
struct Norm {
  std::size_t width = 0;
  std::size_t gain = 0, bias = 0;  // tensor numbers

  static Norm declare(Parameters& parameters, const std::string& name, std::size_t width);
  static std::size_t saved(std::size_t rows) { return 2 * aligned_floats(rows); }
  // Cheap enough to be run again in the backward pass instead of keeping y.
  void forward(const Pass& pass, const float* x, float* y, float* saved) const;
  // dx = gradient (+ add)
  void backward(const Pass& pass, const float* x, const float* saved, const float* dy,
                const float* add, float* dx) const;
};

}  // namespace starling::kernels
