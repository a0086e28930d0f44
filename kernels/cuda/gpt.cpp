// These are GPT-2's blocks on a device (see kernels/layers/gpt.h). x is [rows, width].

#include "kernels/layers/gpt.h"

#include <string>

#include "kernels/cuda/language.h"

namespace starling::kernels::cuda {
namespace {

// x + c_proj(attention(c_attn(ln_1(x))))
class DeviceAttention : public BlockLayer<DeviceAttention> {
  friend BlockLayer;

 public:
  DeviceAttention(const GptSpec& spec, const Tensors& tensors, const std::string& prefix)
      : BlockLayer(spec.width, part_of(tensors, {prefix + "attn.c_attn", prefix + "attn.c_proj"})),
        spec_(spec),
        norm_(DeviceNorm::named(tensors, prefix + "ln_1", spec.width)),
        qkv_(DeviceLinear::named(tensors, prefix + "attn.c_attn", spec.width, 3 * spec.width)),
        project_(DeviceLinear::named(tensors, prefix + "attn.c_proj", spec.width, spec.width)) {}

  void forward(const Pass& pass, const void* in, void* out, void* saved) const override {
    const Saved s = saved_of(pass, saved);
    norm_.forward(pass, in, s.normed, s.norm);
    qkv_.forward(pass, s.normed, s.qkv);
    attention(pass.stream, pass.type, shape(pass), heads_of<const void>(pass, s.qkv), s.attended,
              s.log_sums);
    project_.forward(pass, s.attended, out, /*add=*/in);
  }
  void backward(const Pass& pass, std::size_t, const void* in, void* saved, const void* d_out,
                void* d_in) const override {
    const Saved s = saved_of(pass, saved);
    const Scratch t = scratch_of(pass);
    project_.backward_input(pass, d_out, t.d_attended);
    project_.backward_parameters(pass, s.attended, d_out);
    attention_backward(pass.stream, pass.type, shape(pass), heads_of<const void>(pass, s.qkv),
                       s.attended, s.log_sums, t.d_attended, heads_of<void>(pass, t.d_qkv), t.dots);
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
    s.norm = norm_.take(carver, pass.rows);
    s.normed = carver.take(pass.row_bytes(spec_.width));
    s.qkv = carver.take(pass.row_bytes(3 * spec_.width));
    s.attended = carver.take(pass.row_bytes(spec_.width));
    s.log_sums = carver.take_array<float>(std::size_t{pass.rows} * spec_.heads);
    return s;
  }
  Saved saved_of(const Pass& pass, void* saved) const {
    Carver carver(saved);
    return take_saved(pass, carver);
  }
  Scratch take_scratch(const Pass& pass, Carver& carver) const {
    Scratch t;
    t.d_attended = carver.take(pass.row_bytes(spec_.width));
    t.d_normed = carver.take(pass.row_bytes(spec_.width));
    t.d_qkv = carver.take(pass.row_bytes(3 * spec_.width));
    t.dots = carver.take_array<float>(std::size_t{pass.rows} * spec_.heads);
    return t;
  }
  Scratch scratch_of(const Pass& pass) const {
    Carver carver(pass.scratch);
    return take_scratch(pass, carver);
  }
  // Rows of qkv are queries, keys and values one behind the other.
  template <class Void>
  HeadRows<Void> heads_of(const Pass& pass, void* qkv) const {
    const std::size_t bytes = spec_.width * bytes_of(pass.type), stride = 3 * spec_.width;
    std::byte* const at = static_cast<std::byte*>(qkv);
    return {at, at + bytes, at + 2 * bytes, stride, stride};
  }
  AttentionShape shape(const Pass& pass) const {
    return {pass.sequences, spec_.context, spec_.heads, spec_.width / spec_.heads};
  }

  const GptSpec spec_;
  const DeviceNorm norm_;
  const DeviceLinear qkv_, project_;
};

// x + c_proj(gelu(c_fc(ln_2(x))))
class DeviceFeedForward : public BlockLayer<DeviceFeedForward> {
  friend BlockLayer;

 public:
  DeviceFeedForward(const GptSpec& spec, const Tensors& tensors, const std::string& prefix)
      : BlockLayer(spec.width, part_of(tensors, {prefix + "mlp.c_fc", prefix + "mlp.c_proj"})),
        width_(spec.width),
        norm_(DeviceNorm::named(tensors, prefix + "ln_2", spec.width)),
        widen_(DeviceLinear::named(tensors, prefix + "mlp.c_fc", spec.width, 4 * spec.width)),
        project_(DeviceLinear::named(tensors, prefix + "mlp.c_proj", 4 * spec.width, spec.width)) {}

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
    s.norm = norm_.take(carver, pass.rows);
    s.normed = carver.take(pass.row_bytes(width_));
    s.u = carver.take(pass.row_bytes(widen_.out));
    s.active = carver.take(pass.row_bytes(widen_.out));
    return s;
  }
  Scratch take_scratch(const Pass& pass, Carver& carver) const {
    Scratch t;
    t.d_normed = carver.take(pass.row_bytes(width_));
    t.d_u = carver.take(pass.row_bytes(widen_.out));
    return t;
  }
  const std::uint32_t width_;
  const DeviceNorm norm_;
  const DeviceLinear widen_, project_;
};

}  // namespace

DeviceLayers make_layers(const GptSpec& spec, const Tensors& tensors, Device&) {
  DeviceLayers layers;
  if (spec.width / spec.heads > kHeadWidthMax) return layers;
  layers.push_back(make_embedding(embedding_shape(spec), tensors));
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    const std::string prefix = "h." + std::to_string(i) + ".";
    layers.push_back(std::make_unique<DeviceAttention>(spec, tensors, prefix));
    layers.push_back(std::make_unique<DeviceFeedForward>(spec, tensors, prefix));
  }
  layers.push_back(make_head({.vocabulary = spec.vocabulary,
                              .norm = DeviceNorm::named(tensors, "ln_f", spec.width),
                              .table = embedding_shape(spec).tokens,
                              .tied = true},
                             tensors));
  return layers;
}

}  // namespace starling::kernels::cuda
