#pragma once
// A Layer is a link of a model's chain: rows of numbers in and out, parameters of its own.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/data/batch.h"
#include "core/job/layout.h"
#include "core/job/models/lora.h"
#include "kernels/cpu/table.h"
#include "kernels/layers/frozen.h"
#include "kernels/layers/parts.h"

namespace starling::kernels {

// Initial makes a tensor's first values: normal(0, deviation), or `constant` if deviation is 0.
struct Initial {
  double deviation = 0;
  float constant = 0;
};

// The number of a frozen tensor is its place in Parameters::frozen(), and this.
inline constexpr std::size_t kFrozen = std::size_t{1} << 62;
constexpr bool is_frozen(std::size_t tensor) {
  return (tensor & kFrozen) != 0;
}

// Parameters lists the model's tensors in the order in which
// layers declare them; a layer keeps the numbers that it gets.
class Parameters {
 public:
  // With adapters all other tensors are frozen.
  explicit Parameters(LoraSpec lora = {}) : lora_(std::move(lora)) {}
  // Tensors that are added from here on lie in another part than those before.
  void begin_part() { ++layer_; }
  std::size_t add(std::string name, std::vector<std::uint64_t> shape, Initial initial) {
    if (!lora_.on()) return add_trained(std::move(name), std::move(shape), initial);
    frozen_.push_back({.name = std::move(name), .shape = std::move(shape), .layer = layer_});
    return kFrozen | (frozen_.size() - 1);
  }
  std::size_t add_trained(std::string name, std::vector<std::uint64_t> shape, Initial initial) {
    specs_.push_back({.name = std::move(name), .shape = std::move(shape), .layer = layer_});
    initials_.push_back(initial);
    return specs_.size() - 1;
  }
  // Adds a matrix in a part of its own, or by rows in several: the table of a tied embedding.
  std::size_t add_table(std::string name, std::vector<std::uint64_t> shape, Initial initial,
                        std::uint32_t uses) {
    begin_part();
    const std::size_t tensor = add(std::move(name), std::move(shape), initial);
    TensorSpec& table = is_frozen(tensor) ? frozen_.back() : specs_.back();
    table.uses = uses;
    table.by_rows = true;
    begin_part();
    return tensor;
  }
  const std::vector<TensorSpec>& specs() const { return specs_; }
  const std::vector<Initial>& initials() const { return initials_; }
  const std::vector<TensorSpec>& frozen() const { return frozen_; }
  const LoraSpec& lora() const { return lora_; }

 private:
  LoraSpec lora_;
  std::vector<TensorSpec> specs_, frozen_;
  std::vector<Initial> initials_;
  std::uint32_t layer_ = 0;
};

// What a pass of a model with adapters has of its frozen tensors.
struct Frozen {
  const FrozenTensors* values = nullptr;  // null: the model has none
  const std::vector<TensorSpec>* specs = nullptr;
  // By number, the part of what is trained in the tensor's layer; none: nothing of it is.
  const std::vector<std::optional<PartId>>* parts = nullptr;
  // For one matrix at a time, gradients of frozen norms, which are dropped, and two of [rows, rank].
  float *room = nullptr, *unwanted = nullptr, *low = nullptr, *d_low = nullptr;
};

// All layers of one pass share a Pass. Threads: belongs to the pass.
struct Pass {
  const KernelTable& kernels;
  const Layout& layout;
  PartSource& source;
  GradientSink* sink;  // null: loss only
  const Batch& batch;
  std::size_t rows;  // sequences * positions
  std::size_t sequences;
  float* gemm_scratch;  // kGemmScratch
  float* scratch;       // the largest scratch() of any layer; nothing survives between layers
  Frozen frozen{};
  double loss = 0;  // set by the last layer: mean over targets

  // The open parts: OpenPart, OpenGradient.
  PartId part = 0, d_part = 0;
  const float* parameters = nullptr;
  float* gradient = nullptr;

  // Returns the place of a tensor in the open part, or the whole of a frozen one; the next call for another matrix may
  // write over a frozen matrix.
  const float* parameter(std::size_t tensor) const {
    if (!is_frozen(tensor)) return parameters + place(tensor, part);
    return frozen_rows(tensor, 0, (*frozen.specs)[tensor & ~kFrozen].elements());
  }
  // Elements [from, from + count) of a frozen tensor, as above.
  const float* frozen_rows(std::size_t tensor, std::uint64_t from, std::size_t count) const {
    return frozen.values->read(tensor & ~kFrozen, from, count, frozen.room);
  }
  float* d_parameter(std::size_t tensor) const { return gradient + place(tensor, d_part); }
  // The part of a tensor's layer; none: it is frozen, and so is all of its layer.
  std::optional<PartId> part_of(std::size_t tensor) const {
    if (is_frozen(tensor)) return (*frozen.parts)[tensor & ~kFrozen];
    return layout.tensors()[tensor].first_part;
  }
  std::size_t place(std::size_t tensor, PartId open) const {
    return layout.tensors()[tensor].first_block * std::size_t{kBlock} -
           layout.parts()[open].first();
  }
  void multiply(Gemm g) const {
    g.scratch = gemm_scratch;
    check(g);
    kernels.gemm(g);
  }
};

// OpenPart holds the parameters of a part, if there is one, as long as it lives; one at a time in a pass.
class OpenPart {
 public:
  OpenPart(Pass& pass, std::optional<PartId> part) : pass_(pass), open_(part.has_value()) {
    if (!open_) return;
    pass.part = *part;
    pass.parameters = pass.source.acquire(*part);
  }
  ~OpenPart() {
    if (!open_) return;
    pass_.source.release(pass_.part);
    pass_.parameters = nullptr;
  }
  OpenPart(const OpenPart&) = delete;
  OpenPart& operator=(const OpenPart&) = delete;

 private:
  Pass& pass_;
  const bool open_;
};

// OpenGradient is the gradient of a use of a part, if there is one, to be written
// before end(), but for its padding; one at a time in a pass.
class OpenGradient {
 public:
  OpenGradient(Pass& pass, std::optional<PartId> part, std::uint32_t use)
      : pass_(pass), use_(use), open_(part.has_value()) {
    if (!open_) return;
    pass.d_part = *part;
    pass.gradient = pass.sink->begin(*part, use);
  }
  // Gives it to the sink. A pass that ends with an exception gives nothing half-written.
  void end();
  OpenGradient(const OpenGradient&) = delete;
  OpenGradient& operator=(const OpenGradient&) = delete;

 private:
  void clear_padding();

  Pass& pass_;
  const std::uint32_t use_;
  const bool open_;
};

// Rows is a run of rows of a table that may lie in several parts, or is frozen.
struct Rows {
  PartId part = 0;
  std::size_t first = 0, count = 0;
  bool frozen = false;
  std::optional<PartId> to_open() const { return frozen ? std::nullopt : std::optional(part); }
};
std::vector<Rows> rows_by_part(const Layout& layout, std::size_t table);
// The same, or runs of a frozen table.
std::vector<Rows> rows_of(const Pass& pass, std::size_t table);
// As many rows of a frozen table as are read at once.
std::size_t frozen_rows_at_once(const TensorSpec& table);

// Threads: const after construction. Sizes are in floats; every buffer starts at a 64-byte boundary
// and is a multiple of 16 floats long (aligned_floats()).
class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::size_t width() const = 0;  // floats per row of `out`; 0 for the last layer
  // Floats that live from forward to backward, and floats that only one call needs.
  virtual std::size_t saved(std::size_t sequences, std::size_t rows) const = 0;
  virtual std::size_t scratch(std::size_t rows) const = 0;

  virtual void forward(Pass& pass, const float* in, float* out, float* saved) const = 0;
  // Writes its use of the gradients of its parts, and d_in, which
  // is null for the first layer. The buffers do not overlap.
  virtual void backward(Pass& pass, const float* in, const float* out, float* saved,
                        const float* d_out, float* d_in) const = 0;
};

constexpr std::size_t aligned_floats(std::size_t n) {
  return (n + 15) / 16 * 16;
}

// A Carver cuts one buffer into aligned parts.
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

// How a matrix product's weights lie.
enum class Weights : std::uint8_t {
  kInOut,  // [in, out], as GPT-2's
  kOutIn,  // [out, in], as torch's Linear
};

// Linear computes y = x W (+ b), with an adapter (+ scale (x A^T) B^T); several layers have one.
struct Linear {
  std::size_t in = 0, out = 0;
  Weights order = Weights::kInOut;
  std::size_t weight = 0;           // tensor numbers
  std::optional<std::size_t> bias;  // none: no bias
  struct Adapter {
    std::size_t a = 0, b = 0;  // tensor numbers
    std::size_t rank = 0;
    float scale = 0;
  };
  std::optional<Adapter> adapter;

  // bias: none, or its first values.
  static Linear declare(Parameters& parameters, const std::string& name, std::size_t in,
                        std::size_t out, Initial weight, std::optional<Initial> bias,
                        Weights order = Weights::kInOut);
  // y = x W + b (+ add)
  void forward(const Pass& pass, const float* x, float* y, const float* add = nullptr) const;
  void backward_parameters(const Pass& pass, const float* x, const float* dy) const;
  // dx = dy W^T (+ add); add may be dx
  void backward_input(const Pass& pass, const float* dy, float* dx,
                      const float* add = nullptr) const;

 private:
  void lower(const Pass& pass, const float* x) const;
  void lower_gradient(const Pass& pass, const float* dy) const;
};

// Norm has the tensors of LayerNorm or RMSNorm and up to two numbers per row.
struct Norm {
  std::size_t width = 0;
  std::size_t gain = 0;             // tensor numbers
  std::optional<std::size_t> bias;  // LayerNorm's; none: RMSNorm
  float epsilon = 0;                // RMSNorm's

  static Norm declare(Parameters& parameters, const std::string& name, std::size_t width);
  static Norm declare_rms(Parameters& parameters, const std::string& name, std::size_t width,
                          double epsilon);
  static std::size_t saved(std::size_t rows) { return 2 * aligned_floats(rows); }
  // x: pieces of `width` one after the other, so many in each row of the pass.
  // The backward pass runs forward() again: that is cheap enough not to keep y.
  void forward(const Pass& pass, const float* x, float* y, float* saved,
               std::size_t pieces = 1) const;
  // dx = gradient (+ add); an RMSNorm's dx may be dy
  void backward(const Pass& pass, const float* x, const float* saved, const float* dy,
                const float* add, float* dx, std::size_t pieces = 1) const;
};

}  // namespace starling::kernels
