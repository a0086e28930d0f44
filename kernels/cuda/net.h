#pragma once
// A network on a device has the layers of the host (kernels/layers/), each
// asked for as a few kernels in the order of a stream. The host's model decides
// which tensors there are and how they lie; the layers find theirs by name.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/layout.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/frozen.h"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/token_order.h"
#include "kernels/device/array.h"
#include "kernels/layers/layer.h"

namespace starling::kernels::cuda {

// A Pass has what a maker keeps from one micro-batch to the next; pointers are the device's.
struct Pass {
  const Layout& layout;
  cudaStream_t stream = nullptr;
  Products& products;
  Precision type = Precision::kFp32;
  std::uint32_t sequences = 0, rows = 0;  // rows: sequences * positions

  // These are the batch.
  const std::int32_t* tokens = nullptr;   // [rows]
  const std::int32_t* targets = nullptr;  // [rows], of a language model also kNotATarget
  const void* x = nullptr;                // [rows, features], of `type`
  TokenRows token_rows{};
  const float* scale = nullptr;  // of the gradients of rows' losses: 2^Working::scale / targets

  const float* parameters = nullptr;       // the working ones, [layout.elements()]
  const std::uint16_t* rounded = nullptr;  // the same in `type`; null for fp32
  float* gradient = nullptr;               // of one part, [layout.largest_part()]
  double* losses = nullptr;                // [rows]
  double* loss = nullptr;                  // pinned: their sum
  void* scratch = nullptr;                 // the largest scratch() of any layer
  float* partials = nullptr;               // 2 * partial_floats() of the widest row

  const DeviceFrozen* frozen = nullptr;   // null: all is trained
  void *low = nullptr, *d_low = nullptr;  // of adapters, [rows, rank]
  float* unwanted = nullptr;              // gradients of a frozen norm, two of the widest row

  // vector() gives a vector as it is, matrix() a matrix in the type of the activations.
  const float* vector(std::size_t tensor) const {
    if (is_frozen(tensor)) return static_cast<const float*>(frozen->at(tensor & ~kFrozen));
    return parameters + element(tensor);
  }
  const void* matrix(std::size_t tensor) const {
    if (is_frozen(tensor)) return frozen->at(tensor & ~kFrozen);
    return rounded != nullptr ? static_cast<const void*>(rounded + element(tensor))
                              : static_cast<const void*>(parameters + element(tensor));
  }
  // Returns where a tensor's gradient goes in that of its part.
  float* d_parameter(std::size_t tensor) const {
    const PartId part = layout.tensors()[tensor].first_part;
    return gradient + (element(tensor) - layout.parts()[part].first());
  }
  std::uint64_t element(std::size_t tensor) const {
    return std::uint64_t{layout.tensors()[tensor].first_block} * kBlock;
  }
  PartId part_of(std::size_t tensor) const { return layout.tensors()[tensor].first_part; }
  // Returns the bytes of all rows of `width` activations.
  std::size_t row_bytes(std::size_t width) const {
    return std::size_t{rows} * width * bytes_of(type);
  }
};

// A Carver cuts memory into pieces at 256-byte boundaries; base null: only counts.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<std::byte*>(base)) {}
  void* take(std::size_t bytes) {
    void* const at = base_ != nullptr ? base_ + used_ : nullptr;
    used_ += (bytes + 255) / 256 * 256;
    return at;
  }
  template <class T>
  T* take_array(std::size_t n) {
    return static_cast<T*>(take(n * sizeof(T)));
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* const base_;
  std::size_t used_ = 0;
};

// A Use is what a piece of a backward pass gives.
struct Use {
  PartId part = 0;
  std::uint32_t use = 0;
};

// A DeviceLayer is a link of the chain. Const after construction. All
// functions but those that describe only ask the stream of the pass.
class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;

  virtual std::size_t width() const = 0;  // of a row of `out`; 0 for the last layer
  // Bytes that live from forward to backward, and bytes that only one call needs.
  virtual std::size_t saved(const Pass& pass) const = 0;
  virtual std::size_t scratch(const Pass& pass) const = 0;
  // Returns the parts that forward() reads.
  virtual std::vector<PartId> parts() const = 0;
  // Lists the backward pass in pieces, in this order; each writes the gradient
  // of one use. A layer without parameters has one piece that gives nothing.
  virtual std::vector<Use> pieces() const = 0;

  virtual void forward(const Pass& pass, const void* in, void* out, void* saved) const = 0;
  // Runs piece i. The last piece writes d_in, which is null for the first layer.
  virtual void backward(const Pass& pass, std::size_t piece, const void* in, void* saved,
                        const void* d_out, void* d_in) const = 0;
};

// A BlockLayer is one whose trained tensors lie in one part, if it has any. Its memory is what Self carves: take_saved(pass,
// carver) and take_scratch(pass, carver).
template <class Self>
class BlockLayer : public DeviceLayer {
 public:
  std::size_t width() const override { return width_; }
  std::size_t saved(const Pass& pass) const override {
    Carver carver(nullptr);
    self().take_saved(pass, carver);
    return carver.used();
  }
  std::size_t scratch(const Pass& pass) const override {
    Carver carver(nullptr);
    self().take_scratch(pass, carver);
    return carver.used();
  }
  std::vector<PartId> parts() const override {
    return part_ ? std::vector{*part_} : std::vector<PartId>();
  }
  std::vector<Use> pieces() const override {
    return part_ ? std::vector{Use{*part_, /*use=*/0}} : std::vector<Use>();
  }

 protected:
  BlockLayer(std::uint32_t width, std::optional<PartId> part) : width_(width), part_(part) {}

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }

  const std::uint32_t width_;
  const std::optional<PartId> part_;
};

// The tensors of a model: those that are trained, those that are not, and what of these has adapters.
struct Tensors {
  const Layout& layout;
  const std::vector<TensorSpec>& frozen;
  const LoraSpec& lora;

  // Returns the number of the tensor of that name, which must be there; of a frozen one with kFrozen.
  std::size_t named(const std::string& name) const;
  // Returns the part of the first that is trained.
  std::optional<PartId> part_of(const std::vector<std::size_t>& numbers) const;
};
// Runs of a table in parts; none of a frozen one.
std::vector<kernels::Rows> trained_rows(const Tensors& tensors, std::size_t table);

using DeviceLayers = std::vector<std::unique_ptr<DeviceLayer>>;
// The kinds of models that a GPU computes, a line each; the host computes all others, and those of
// which this returns none. Layers may keep memory of the device.
DeviceLayers make_layers(const GptSpec& spec, const Tensors& tensors, Device& device);
DeviceLayers make_layers(const LlamaSpec& spec, const Tensors& tensors, Device& device);
DeviceLayers make_layers(const MlpSpec& spec, const Tensors& tensors, Device& device);

// ---- Parts of several layers --------------------------------------------------------------------

// DeviceLinear computes y = x W + b, with an adapter (+ scale (x A^T) B^T).
struct DeviceLinear {
  std::uint32_t in = 0, out = 0;
  std::size_t weight = 0;           // tensors
  std::optional<std::size_t> bias;  // none: 0
  Weights weights = Weights::kInOut;
  struct Adapter {
    std::size_t a = 0, b = 0;  // tensors
    std::uint32_t rank = 0;
    float scale = 0;
  };
  std::optional<Adapter> adapter;

  static DeviceLinear named(const Tensors& tensors, const std::string& name, std::uint32_t in,
                            std::uint32_t out, bool bias = true, Weights weights = Weights::kInOut);
  // y = epilogue(x W + b (+ add)).
  void forward(const Pass& pass, const void* x, void* y, const void* add = nullptr,
               Epilogue epilogue = Epilogue::kNone, void* aux = nullptr) const;
  void backward_parameters(const Pass& pass, const void* x, const void* dy) const;
  // dx = epilogue(dy W^T (+ add)); add may be dx.
  void backward_input(const Pass& pass, const void* dy, void* dx,
                      Epilogue epilogue = Epilogue::kNone, void* aux = nullptr,
                      const void* add = nullptr) const;

 private:
  // low = scale x A^T; d_low = scale dy B
  void lower(const Pass& pass, const void* x) const;
  void lower_gradient(const Pass& pass, const void* dy) const;
};

// Returns the part of what is trained of a layer with these modules, which lies in one.
std::optional<PartId> part_of(const Tensors& tensors, const std::vector<std::string>& modules);

// DeviceNorm is a LayerNorm, or an RMSNorm.
struct DeviceNorm {
  std::uint32_t width = 0;
  std::size_t gain = 0;             // tensors
  std::optional<std::size_t> bias;  // none: of RMSNorm
  float epsilon = 0;                // of RMSNorm

  struct Statistics {       // [rows] each
    float* mean = nullptr;  // none of RMSNorm
    float* rstd = nullptr;
  };
  static DeviceNorm named(const Tensors& tensors, const std::string& name, std::uint32_t width);
  static DeviceNorm rms(const Tensors& tensors, const std::string& name, std::uint32_t width,
                        double epsilon);
  Statistics take(Carver& saved, std::size_t rows) const;
  // Each row of the pass has `heads` rows of `width` numbers.
  void forward(const Pass& pass, const void* x, void* y, const Statistics& statistics,
               std::uint32_t heads = 1) const;
  // dx = gradient (+ add); writes the gradients of the norm's parameters. dx may be add, but not dy.
  void backward(const Pass& pass, const void* x, const Statistics& statistics, const void* dy,
                const void* add, void* dx, std::uint32_t heads = 1) const;
};

}  // namespace starling::kernels::cuda
