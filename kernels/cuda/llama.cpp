// These are Llama's blocks on a device (see kernels/layers/llama.h). x is [rows, width].

#include "kernels/layers/llama.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/cuda/language.h"

namespace starling::kernels::cuda {
namespace {

DeviceLinear linear(const Tensors& tensors, const std::string& name, std::uint32_t in,
                    std::uint32_t out, bool bias = false) {
  return DeviceLinear::named(tensors, name, in, out, bias, Weights::kOutIn);
}

// The angles of all positions in a device's memory, [positions, pairs].
struct DeviceRotary {
  DeviceRotary(const LlamaSpec& spec, Device& device)
      : pairs(spec.head_width / 2),
        cosines(device, std::size_t{spec.context} * pairs),
        sines(device, cosines.size()) {
    const Rotary rotary(spec);
    std::vector<float> all_cosines, all_sines;
    for (std::uint32_t position = 0; position < spec.context; ++position) {
      const Rotary::Turn by = rotary.at(position);
      all_cosines.insert(all_cosines.end(), by.cosines.begin(), by.cosines.end());
      all_sines.insert(all_sines.end(), by.sines.begin(), by.sines.end());
    }
    const std::unique_ptr<Queue> queue = device.make_queue();
    cosines.copy_in(*queue, 0, all_cosines);
    sines.copy_in(*queue, 0, all_sines);
    queue->wait();
  }

  std::uint32_t pairs;
  Array<float> cosines, sines;
};

class DeviceLlamaAttention : public BlockLayer<DeviceLlamaAttention> {
  friend BlockLayer;

 public:
  DeviceLlamaAttention(const LlamaSpec& spec, const Tensors& tensors, const std::string& prefix,
                       std::shared_ptr<const DeviceRotary> rotary)
      : BlockLayer(spec.width,
                   part_of(tensors, {prefix + "self_attn.q_proj", prefix + "self_attn.k_proj",
                                     prefix + "self_attn.v_proj", prefix + "self_attn.o_proj"})),
        spec_(spec),
        rotary_(std::move(rotary)),
        norm_(DeviceNorm::rms(tensors, prefix + "input_layernorm", spec.width, spec.norm_epsilon)),
        queries_(linear(tensors, prefix + "self_attn.q_proj", spec.width, spec.query_width(),
                        spec.query_key_value_bias)),
        keys_(linear(tensors, prefix + "self_attn.k_proj", spec.width, spec.key_value_width(),
                     spec.query_key_value_bias)),
        values_(linear(tensors, prefix + "self_attn.v_proj", spec.width, spec.key_value_width(),
                       spec.query_key_value_bias)),
        project_(linear(tensors, prefix + "self_attn.o_proj", spec.query_width(), spec.width)) {
    if (!spec.query_key_norm) return;
    const auto head_norm = [&](const char* which) {
      return DeviceNorm::rms(tensors, prefix + "self_attn." + which, spec.head_width,
                             spec.norm_epsilon);
    };
    query_norm_ = head_norm("q_norm");
    key_norm_ = head_norm("k_norm");
  }

  void forward(const Pass& pass, const void* in, void* out, void* saved) const override {
    Carver kept(saved);
    const Saved s = take_saved(pass, kept);
    norm_.forward(pass, in, s.normed, s.norm);
    queries_.forward(pass, s.normed, s.plain_queries);
    keys_.forward(pass, s.normed, s.plain_keys);
    values_.forward(pass, s.normed, s.values);
    if (query_norm_) {
      query_norm_->forward(pass, s.plain_queries, s.queries, s.query_norm, spec_.heads);
      key_norm_->forward(pass, s.plain_keys, s.keys, s.key_norm, spec_.key_value_heads);
    }
    turn(pass, /*back=*/false, s.queries, s.keys);
    attention(pass.stream, pass.type, shape(pass), rows_of(s), s.attended, s.log_sums);
    project_.forward(pass, s.attended, out, /*add=*/in);
  }
  void backward(const Pass& pass, std::size_t, const void* in, void* saved, const void* d_out,
                void* d_in) const override {
    Carver kept(saved), scratch(pass.scratch);
    const Saved s = take_saved(pass, kept);
    const Scratch t = take_scratch(pass, scratch);
    project_.backward_input(pass, d_out, t.d_attended);
    project_.backward_parameters(pass, s.attended, d_out);
    attention_backward(
        pass.stream, pass.type, shape(pass), rows_of(s), s.attended, s.log_sums, t.d_attended,
        {t.d_queries, t.d_keys, t.d_values, spec_.query_width(), spec_.key_value_width()}, t.dots);
    turn(pass, /*back=*/true, t.d_queries, t.d_keys);
    const void *d_queries = t.d_queries, *d_keys = t.d_keys;
    if (query_norm_) {
      query_norm_->backward(pass, s.plain_queries, s.query_norm, t.d_queries, /*add=*/nullptr,
                            t.d_attended, spec_.heads);
      key_norm_->backward(pass, s.plain_keys, s.key_norm, t.d_keys, /*add=*/nullptr, t.d_plain_keys,
                          spec_.key_value_heads);
      d_queries = t.d_attended, d_keys = t.d_plain_keys;
    }
    queries_.backward_parameters(pass, s.normed, d_queries);
    keys_.backward_parameters(pass, s.normed, d_keys);
    values_.backward_parameters(pass, s.normed, t.d_values);
    queries_.backward_input(pass, d_queries, t.d_normed);
    add_backward_input(keys_, pass, d_keys, t.d_normed);
    add_backward_input(values_, pass, t.d_values, t.d_normed);
    norm_.backward(pass, in, s.norm, t.d_normed, /*add=*/d_out, d_in);
  }

 private:
  struct Saved {
    DeviceNorm::Statistics norm, query_norm, key_norm;
    void* normed = nullptr;                                       // [rows, width]
    void *queries = nullptr, *keys = nullptr, *values = nullptr;  // of all heads, normed and turned
    void *plain_queries = nullptr, *plain_keys = nullptr;         // before their norms
    void* attended = nullptr;                                     // as queries
    float* log_sums = nullptr;                                    // [sequences, heads, positions]
  };
  struct Scratch {
    void* d_normed = nullptr;
    void *d_attended = nullptr,
         *d_queries = nullptr;  // the first, once it is read, also of queries before their norm
    void *d_keys = nullptr, *d_plain_keys = nullptr, *d_values = nullptr;
    float* dots = nullptr;  // [sequences, heads, positions]
  };
  Saved take_saved(const Pass& pass, Carver& carver) const {
    const std::size_t queries = pass.row_bytes(spec_.query_width());
    const std::size_t keys = pass.row_bytes(spec_.key_value_width());
    Saved s;
    s.norm = norm_.take(carver, pass.rows);
    s.normed = carver.take(pass.row_bytes(spec_.width));
    s.queries = s.plain_queries = carver.take(queries);
    s.keys = s.plain_keys = carver.take(keys);
    s.values = carver.take(keys);
    s.attended = carver.take(queries);
    s.log_sums = carver.take_array<float>(std::size_t{pass.rows} * spec_.heads);
    if (!query_norm_) return s;
    s.plain_queries = carver.take(queries);
    s.plain_keys = carver.take(keys);
    s.query_norm = query_norm_->take(carver, std::size_t{pass.rows} * spec_.heads);
    s.key_norm = key_norm_->take(carver, std::size_t{pass.rows} * spec_.key_value_heads);
    return s;
  }
  Scratch take_scratch(const Pass& pass, Carver& carver) const {
    const std::size_t queries = pass.row_bytes(spec_.query_width());
    const std::size_t keys = pass.row_bytes(spec_.key_value_width());
    Scratch t;
    t.d_normed = carver.take(pass.row_bytes(spec_.width));
    t.d_attended = carver.take(queries);
    t.d_queries = carver.take(queries);
    t.d_keys = carver.take(keys);
    t.d_values = carver.take(keys);
    if (query_norm_) t.d_plain_keys = carver.take(keys);
    t.dots = carver.take_array<float>(std::size_t{pass.rows} * spec_.heads);
    return t;
  }
  AttentionShape shape(const Pass& pass) const {
    return {.sequences = pass.sequences,
            .positions = spec_.context,
            .heads = spec_.heads,
            .head_width = spec_.head_width,
            .group = spec_.heads / spec_.key_value_heads,
            .window = spec_.window};
  }
  HeadRows<const void> rows_of(const Saved& s) const {
    return {s.queries, s.keys, s.values, spec_.query_width(), spec_.key_value_width()};
  }
  void turn(const Pass& pass, bool back, void* queries, void* keys) const {
    const auto turn_heads = [&](std::uint32_t heads, void* x) {
      rotate(pass.stream, pass.type, {pass.rows, spec_.context, heads, rotary_->pairs},
             rotary_->cosines.data(), rotary_->sines.data(), back, x);
    };
    turn_heads(spec_.heads, queries);
    turn_heads(spec_.key_value_heads, keys);
  }
  static void add_backward_input(const DeviceLinear& of, const Pass& pass, const void* dy,
                                 void* dx) {
    of.backward_input(pass, dy, dx, Epilogue::kNone, /*aux=*/nullptr, /*add=*/dx);
  }

  const LlamaSpec spec_;
  const std::shared_ptr<const DeviceRotary> rotary_;
  const DeviceNorm norm_;
  std::optional<DeviceNorm> query_norm_, key_norm_;
  const DeviceLinear queries_, keys_, values_, project_;
};

class DeviceLlamaFeedForward : public BlockLayer<DeviceLlamaFeedForward> {
  friend BlockLayer;

 public:
  DeviceLlamaFeedForward(const LlamaSpec& spec, const Tensors& tensors, const std::string& prefix)
      : BlockLayer(spec.width, part_of(tensors, {prefix + "mlp.gate_proj", prefix + "mlp.up_proj",
                                                 prefix + "mlp.down_proj"})),
        norm_(DeviceNorm::rms(tensors, prefix + "post_attention_layernorm", spec.width,
                              spec.norm_epsilon)),
        gate_(linear(tensors, prefix + "mlp.gate_proj", spec.width, spec.feed_forward)),
        up_(linear(tensors, prefix + "mlp.up_proj", spec.width, spec.feed_forward)),
        down_(linear(tensors, prefix + "mlp.down_proj", spec.feed_forward, spec.width)) {}

  void forward(const Pass& pass, const void* in, void* out, void* saved) const override {
    Carver kept(saved), scratch(pass.scratch);
    const Saved s = take_saved(pass, kept);
    void* const active = take_scratch(pass, scratch).active;
    norm_.forward(pass, in, s.normed, s.norm);
    gate_.forward(pass, s.normed, s.gate);
    up_.forward(pass, s.normed, s.up);
    swiglu(pass.stream, pass.type, numbers(pass), s.gate, s.up, active);
    down_.forward(pass, active, out, /*add=*/in);
  }
  void backward(const Pass& pass, std::size_t, const void* in, void* saved, const void* d_out,
                void* d_in) const override {
    Carver kept(saved), scratch(pass.scratch);
    const Saved s = take_saved(pass, kept);
    const Scratch t = take_scratch(pass, scratch);
    down_.backward_input(pass, d_out, t.d_up);
    swiglu_backward(pass.stream, pass.type, numbers(pass), s.gate, s.up, t.d_up, t.d_gate, t.d_up,
                    t.active);
    down_.backward_parameters(pass, t.active, d_out);
    gate_.backward_parameters(pass, s.normed, t.d_gate);
    up_.backward_parameters(pass, s.normed, t.d_up);
    gate_.backward_input(pass, t.d_gate, t.d_normed);
    up_.backward_input(pass, t.d_up, t.d_normed, Epilogue::kNone, /*aux=*/nullptr,
                       /*add=*/t.d_normed);
    norm_.backward(pass, in, s.norm, t.d_normed, /*add=*/d_out, d_in);
  }

 private:
  struct Saved {
    DeviceNorm::Statistics norm;
    void* normed = nullptr;               // [rows, width]
    void *gate = nullptr, *up = nullptr;  // [rows, feed_forward]
  };
  struct Scratch {
    void* d_normed = nullptr;                                    // [rows, width]
    void *active = nullptr, *d_gate = nullptr, *d_up = nullptr;  // [rows, feed_forward]
  };
  Saved take_saved(const Pass& pass, Carver& carver) const {
    Saved s;
    s.norm = norm_.take(carver, pass.rows);
    s.normed = carver.take(pass.row_bytes(norm_.width));
    s.gate = carver.take(pass.row_bytes(gate_.out));
    s.up = carver.take(pass.row_bytes(gate_.out));
    return s;
  }
  Scratch take_scratch(const Pass& pass, Carver& carver) const {
    Scratch t;
    t.d_normed = carver.take(pass.row_bytes(norm_.width));
    t.active = carver.take(pass.row_bytes(gate_.out));
    t.d_gate = carver.take(pass.row_bytes(gate_.out));
    t.d_up = carver.take(pass.row_bytes(gate_.out));
    return t;
  }
  std::size_t numbers(const Pass& pass) const { return std::size_t{pass.rows} * gate_.out; }

  const DeviceNorm norm_;
  const DeviceLinear gate_, up_, down_;
};

}  // namespace

DeviceLayers make_layers(const LlamaSpec& spec, const Tensors& tensors, Device& device) {
  DeviceLayers layers;
  if (spec.head_width > kHeadWidthMax) return layers;
  const auto rotary = std::make_shared<const DeviceRotary>(spec, device);
  layers.push_back(make_embedding(embedding_shape(spec), tensors));
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    layers.push_back(std::make_unique<DeviceLlamaAttention>(spec, tensors, prefix, rotary));
    layers.push_back(std::make_unique<DeviceLlamaFeedForward>(spec, tensors, prefix));
  }
  const std::string embedding = embedding_shape(spec).tokens;
  layers.push_back(
      make_head({.vocabulary = spec.vocabulary,
                 .norm = DeviceNorm::rms(tensors, "norm", spec.width, spec.norm_epsilon),
                 .table = spec.tied_embeddings ? embedding : "lm_head.weight",
                 .tied = spec.tied_embeddings},
                tensors));
  return layers;
}

}  // namespace starling::kernels::cuda
