// These are GPT-2's layers on a device (see kernels/layers/gpt.h). x is [rows, width].

#include <algorithm>
#include <string>

#include "kernels/cuda/net.h"
#include "kernels/layers/layer.h"

namespace starling::kernels::cuda {
namespace {

class DeviceEmbedding : public DeviceLayer {
 public:
  DeviceEmbedding(const GptSpec& spec, const Layout& layout)
      : spec_(spec),
        wte_(tensor_named(layout, "wte.weight")),
        wpe_(tensor_named(layout, "wpe.weight")),
        runs_(rows_by_part(layout, wte_)),
        positions_part_(layout.tensors()[wpe_].first_part) {}

  std::size_t width() const override { return spec_.width; }
  std::size_t saved(const Pass&) const override { return 0; }
  std::size_t scratch(const Pass&) const override { return 0; }
  std::vector<PartId> parts() const override {
    std::vector<PartId> parts;
    for (const kernels::Rows& run : runs_) parts.push_back(run.part);
    parts.push_back(positions_part_);
    return parts;
  }
  // Gives the second use of wte, whose first is the head's; then the positions.
  std::vector<Use> pieces() const override {
    std::vector<Use> uses;
    for (const kernels::Rows& run : runs_) uses.push_back({run.part, /*use=*/1});
    uses.push_back({positions_part_, /*use=*/0});
    return uses;
  }

  void forward(const Pass& pass, const void*, void* out, void*) const override {
    embed(pass.stream, pass.type, {pass.rows, spec_.width}, spec_.context, pass.tokens,
          pass.vector(wte_), pass.vector(wpe_), out);
  }
  void backward(const Pass& pass, std::size_t piece, const void*, void*, const void* d_out,
                void*) const override {
    if (piece == runs_.size())
      return position_gradient(pass.stream, pass.type, pass.sequences, spec_.context, spec_.width,
                               d_out, pass.d_parameter(wpe_));
    const kernels::Rows& run = runs_[piece];
    embed_backward(pass.stream, pass.type, spec_.width, pass.token_rows,
                   static_cast<std::uint32_t>(run.first), static_cast<std::uint32_t>(run.count),
                   d_out, pass.gradient);
  }

 private:
  const GptSpec spec_;
  const std::size_t wte_, wpe_;
  const std::vector<kernels::Rows> runs_;
  const PartId positions_part_;
};

// x + c_proj(attention(c_attn(ln_1(x))))
class DeviceAttention : public DeviceLayer {
 public:
  DeviceAttention(const GptSpec& spec, const Layout& layout, const std::string& prefix)
      : spec_(spec),
        norm_(DeviceNorm::named(layout, prefix + "ln_1", spec.width)),
        qkv_(DeviceLinear::named(layout, prefix + "attn.c_attn", spec.width, 3 * spec.width)),
        project_(DeviceLinear::named(layout, prefix + "attn.c_proj", spec.width, spec.width)),
        part_(layout.tensors()[norm_.gain].first_part) {}

  std::size_t width() const override { return spec_.width; }
  std::size_t saved(const Pass& pass) const override {
    Carver carver(nullptr);
    take_saved(pass, carver);
    return carver.used();
  }
  std::size_t scratch(const Pass& pass) const override {
    Carver carver(nullptr);
    take_scratch(pass, carver);
    return carver.used();
  }
  std::vector<PartId> parts() const override { return {part_}; }
  std::vector<Use> pieces() const override { return {{part_, /*use=*/0}}; }

  void forward(const Pass& pass, const void* in, void* out, void* saved) const override {
    const Saved s = saved_of(pass, saved);
    norm_.forward(pass, in, s.normed, s.norm);
    qkv_.forward(pass, s.normed, s.qkv);
    attention(pass.stream, pass.type, shape(pass), s.qkv, s.attended, s.log_sums);
    project_.forward(pass, s.attended, out, /*add=*/in);
  }
  void backward(const Pass& pass, std::size_t, const void* in, void* saved, const void* d_out,
                void* d_in) const override {
    const Saved s = saved_of(pass, saved);
    const Scratch t = scratch_of(pass);
    project_.backward_input(pass, d_out, t.d_attended);
    project_.backward_parameters(pass, s.attended, d_out);
    attention_backward(pass.stream, pass.type, shape(pass), s.qkv, s.attended, s.log_sums,
                       t.d_attended, t.d_qkv, t.dots);
    qkv_.backward_parameters(pass, s.normed, t.d_qkv);
    qkv_.backward_input(pass, t.d_qkv, t.d_normed);
    norm_.backward(pass, in, s.norm, t.d_normed, /*add=*/d_out, d_in);
  }

 private:
  struct Saved {
    DeviceNorm::Statistics norm;
    void *normed = nullptr, *attended = nullptr;  // [rows, width]
    void* qkv = nullptr;                          // [rows, 3 width]
    float* log_sums = nullptr;                    // [sequences, heads, positions]
  };
  struct Scratch {
    void *d_attended = nullptr, *d_normed = nullptr;  // [rows, width]
    void* d_qkv = nullptr;                            // [rows, 3 width]
    float* dots = nullptr;                            // [sequences, heads, positions]
  };
  Saved take_saved(const Pass& pass, Carver& carver) const {
    Saved s;
    s.norm = DeviceNorm::take(carver, pass.rows);
    s.normed = carver.take(row_bytes(pass));
    s.qkv = carver.take(row_bytes(pass) * 3);
    s.attended = carver.take(row_bytes(pass));
    s.log_sums = carver.take_array<float>(std::size_t{pass.rows} * spec_.heads);
    return s;
  }
  Saved saved_of(const Pass& pass, void* saved) const {
    Carver carver(saved);
    return take_saved(pass, carver);
  }
  Scratch take_scratch(const Pass& pass, Carver& carver) const {
    Scratch t;
    t.d_attended = carver.take(row_bytes(pass));
    t.d_normed = carver.take(row_bytes(pass));
    t.d_qkv = carver.take(row_bytes(pass) * 3);
    t.dots = carver.take_array<float>(std::size_t{pass.rows} * spec_.heads);
    return t;
  }
  Scratch scratch_of(const Pass& pass) const {
    Carver carver(pass.scratch);
    return take_scratch(pass, carver);
  }
  std::size_t row_bytes(const Pass& pass) const {  // of all rows of `width`
    return std::size_t{pass.rows} * spec_.width * bytes_of(pass.type);
  }
  AttentionShape shape(const Pass& pass) const {
    return {pass.sequences, spec_.context, spec_.heads, spec_.width / spec_.heads};
  }

  const GptSpec spec_;
  const DeviceNorm norm_;
  const DeviceLinear qkv_, project_;
  const PartId part_;
};

// x + c_proj(gelu(c_fc(ln_2(x))))
class DeviceFeedForward : public DeviceLayer {
 public:
  DeviceFeedForward(const GptSpec& spec, const Layout& layout, const std::string& prefix)
      : width_(spec.width),
        norm_(DeviceNorm::named(layout, prefix + "ln_2", spec.width)),
        widen_(DeviceLinear::named(layout, prefix + "mlp.c_fc", spec.width, 4 * spec.width)),
        project_(DeviceLinear::named(layout, prefix + "mlp.c_proj", 4 * spec.width, spec.width)),
        part_(layout.tensors()[norm_.gain].first_part) {}

  std::size_t width() const override { return width_; }
  std::size_t saved(const Pass& pass) const override {
    Carver carver(nullptr);
    take_saved(pass, carver);
    return carver.used();
  }
  std::size_t scratch(const Pass& pass) const override {
    Carver carver(nullptr);
    take_scratch(pass, carver);
    return carver.used();
  }
  std::vector<PartId> parts() const override { return {part_}; }
  std::vector<Use> pieces() const override { return {{part_, /*use=*/0}}; }

  void forward(const Pass& pass, const void* in, void* out, void* saved) const override {
    Carver kept(saved);
    const Saved s = take_saved(pass, kept);
    norm_.forward(pass, in, s.normed, s.norm);
    widen_.forward(pass, s.normed, s.active, /*add=*/nullptr, Epilogue::kGelu, s.u);
    project_.forward(pass, s.active, out, /*add=*/in);
  }
  void backward(const Pass& pass, std::size_t, const void* in, void* saved, const void* d_out,
                void* d_in) const override {
    Carver kept(saved), scratch(pass.scratch);
    const Saved s = take_saved(pass, kept);
    const Scratch t = take_scratch(pass, scratch);
    project_.backward_input(pass, d_out, t.d_u, Epilogue::kGeluBackward, s.u);
    project_.backward_parameters(pass, s.active, d_out);
    widen_.backward_parameters(pass, s.normed, t.d_u);
    widen_.backward_input(pass, t.d_u, t.d_normed);
    norm_.backward(pass, in, s.norm, t.d_normed, /*add=*/d_out, d_in);
  }

 private:
  struct Saved {
    DeviceNorm::Statistics norm;
    void* normed = nullptr;                // [rows, width]
    void *u = nullptr, *active = nullptr;  // [rows, 4 width], before and after GELU
  };
  struct Scratch {
    void* d_normed = nullptr;  // [rows, width]
    void* d_u = nullptr;       // [rows, 4 width]
  };
  Saved take_saved(const Pass& pass, Carver& carver) const {
    Saved s;
    s.norm = DeviceNorm::take(carver, pass.rows);
    s.normed = carver.take(row_bytes(pass, width_));
    s.u = carver.take(row_bytes(pass, widen_.out));
    s.active = carver.take(row_bytes(pass, widen_.out));
    return s;
  }
  Scratch take_scratch(const Pass& pass, Carver& carver) const {
    Scratch t;
    t.d_normed = carver.take(row_bytes(pass, width_));
    t.d_u = carver.take(row_bytes(pass, widen_.out));
    return t;
  }
  static std::size_t row_bytes(const Pass& pass, std::size_t width) {
    return std::size_t{pass.rows} * width * bytes_of(pass.type);
  }

  const std::uint32_t width_;
  const DeviceNorm norm_;
  const DeviceLinear widen_, project_;
  const PartId part_;
};

// Computes the mean cross entropy of ln_f(x) wte^T. The table's rows lie one after the other
// in any cut into parts, so all logits are one product; its gradient is given part by part.
//
// Products take whole 128 bytes of a row of logits: the rows behind the table, which are other
// parameters, serve as columns of logits that nothing reads and whose gradients are zeros.
class DeviceHead : public DeviceLayer {
 public:
  DeviceHead(const GptSpec& spec, const Layout& layout)
      : spec_(spec),
        norm_(DeviceNorm::named(layout, "ln_f", spec.width)),
        wte_(tensor_named(layout, "wte.weight")),
        columns_(columns(spec, layout, wte_)),
        rows_max_(static_cast<std::uint32_t>(layout.largest_part() / spec.width)),
        runs_(rows_by_part(layout, wte_)),
        norm_part_(layout.tensors()[norm_.gain].first_part) {}

  std::size_t width() const override { return 0; }
  std::size_t saved(const Pass& pass) const override {
    Carver carver(nullptr);
    take_saved(pass, carver);
    return carver.used();
  }
  std::size_t scratch(const Pass& pass) const override { return row_bytes(pass, spec_.width); }
  std::vector<PartId> parts() const override { return {norm_part_}; }  // wte was read before
  std::vector<Use> pieces() const override {
    std::vector<Use> uses;
    for (const kernels::Rows& run : runs_) uses.push_back({run.part, /*use=*/0});
    uses.push_back({norm_part_, /*use=*/0});
    return uses;
  }

  void forward(const Pass& pass, const void* in, void*, void* saved) const override {
    Carver kept(saved);
    const Saved s = take_saved(pass, kept);
    norm_.forward(pass, in, s.normed, s.norm);
    Product p{.m = pass.rows, .n = columns_, .k = spec_.width, .in = pass.type};
    p.a = s.normed, p.lda = spec_.width;
    p.b = pass.matrix(wte_), p.ldb = spec_.width, p.b_transposed = true;
    p.out = pass.type, p.c = s.logits, p.ldc = stride();
    pass.products.multiply(pass.stream, p);
    cross_entropy(pass.stream, pass.type, pass.rows, spec_.vocabulary, stride(), s.logits,
                  pass.targets, pass.scale, pass.losses);
    sum_losses(pass.stream, pass.rows, pass.losses, pass.loss);
  }
  void backward(const Pass& pass, std::size_t piece, const void* in, void* saved, const void*,
                void* d_in) const override {
    Carver kept(saved);
    const Saved s = take_saved(pass, kept);
    if (piece < runs_.size()) {
      const kernels::Rows& run = runs_[piece];  // d_wte = d_logits^T normed
      const auto first = static_cast<std::uint32_t>(run.first);
      const auto count = static_cast<std::uint32_t>(run.count);
      // Behind the last run's rows, zeros go to where no gradient is read.
      Product p{.m = std::max(count, std::min({whole(count), columns_ - first, rows_max_})),
                .n = spec_.width,
                .k = pass.rows,
                .in = pass.type};
      p.a = static_cast<const std::byte*>(s.logits) + first * bytes_of(pass.type);
      p.lda = stride(), p.a_transposed = true;
      p.b = s.normed, p.ldb = spec_.width;
      p.out = Type::kF32, p.c = pass.gradient, p.ldc = spec_.width;
      return pass.products.multiply(pass.stream, p);
    }
    Product p{.m = pass.rows, .n = spec_.width, .k = columns_, .in = pass.type};
    p.a = s.logits, p.lda = stride();
    p.b = pass.matrix(wte_), p.ldb = spec_.width;
    p.out = pass.type, p.c = pass.scratch, p.ldc = spec_.width;
    pass.products.multiply(pass.stream, p);
    norm_.backward(pass, in, s.norm, pass.scratch, /*add=*/nullptr, d_in);
  }

 private:
  struct Saved {
    DeviceNorm::Statistics norm;
    void *logits = nullptr, *normed = nullptr;  // [rows, stride()], [rows, width]
  };
  Saved take_saved(const Pass& pass, Carver& carver) const {
    Saved s;
    s.norm = DeviceNorm::take(carver, pass.rows);
    s.logits = carver.take(row_bytes(pass, stride()));
    s.normed = carver.take(row_bytes(pass, spec_.width));
    return s;
  }
  static constexpr std::uint32_t whole(std::uint32_t columns) { return (columns + 63) / 64 * 64; }
  // Rows of logits begin where products read fastest.
  std::uint32_t stride() const { return whole(spec_.vocabulary); }
  // Returns how many columns products have: all, where so many rows follow the table's begin.
  static std::uint32_t columns(const GptSpec& spec, const Layout& layout, std::size_t wte) {
    const std::uint64_t begin = std::uint64_t{layout.tensors()[wte].first_block} * kBlock;
    const std::uint64_t end = begin + std::uint64_t{whole(spec.vocabulary)} * spec.width;
    return end <= layout.elements() ? whole(spec.vocabulary) : spec.vocabulary;
  }
  static std::size_t row_bytes(const Pass& pass, std::size_t width) {
    return std::size_t{pass.rows} * width * bytes_of(pass.type);
  }

  const GptSpec spec_;
  const DeviceNorm norm_;
  const std::size_t wte_;
  const std::uint32_t columns_;   // of logits, in products
  const std::uint32_t rows_max_;  // of a part's gradient
  const std::vector<kernels::Rows> runs_;
  const PartId norm_part_;
};

}  // namespace

DeviceLayers make_layers(const GptSpec& spec, const Layout& layout) {
  DeviceLayers layers;
  if (spec.width / spec.heads > kHeadWidthMax) return layers;
  layers.push_back(std::make_unique<DeviceEmbedding>(spec, layout));
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    const std::string prefix = "h." + std::to_string(i) + ".";
    layers.push_back(std::make_unique<DeviceAttention>(spec, layout, prefix));
    layers.push_back(std::make_unique<DeviceFeedForward>(spec, layout, prefix));
  }
  layers.push_back(std::make_unique<DeviceHead>(spec, layout));
  return layers;
}

}  // namespace starling::kernels::cuda
