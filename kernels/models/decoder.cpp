#include "kernels/models/decoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/check.h"
#include "kernels/layers/causal_heads.h"
#include "kernels/layers/gpt.h"
#include "kernels/layers/llama.h"

namespace starling::kernels {
namespace {

// One row times a matrix is as fast as its weights come from memory; a Gemm would copy them first. Each element is a
// sum over rising k.

// y[n] += x[k] b[k,n]
void row_times(std::size_t k, std::size_t n, const float* x, const float* b, float* y) {
  std::size_t i = 0;
  for (; i + 4 <= k; i += 4) {
    const float* const b0 = b + i * n;
    const float *const b1 = b0 + n, *const b2 = b1 + n, *const b3 = b2 + n;
    const float x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
    for (std::size_t j = 0; j < n; ++j)
      y[j] = (((y[j] + x0 * b0[j]) + x1 * b1[j]) + x2 * b2[j]) + x3 * b3[j];
  }
  for (; i < k; ++i)
    for (std::size_t j = 0; j < n; ++j) y[j] += x[i] * b[i * n + j];
}

// y[n] = x[k] b[n,k]^T, each element in kLanes sums that are added up then.
void row_times_transposed(std::size_t k, std::size_t n, const float* x, const float* b, float* y) {
  constexpr std::size_t kLanes = 16;
  for (std::size_t j = 0; j < n; ++j) {
    const float* const row = b + j * k;
    float lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= k; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * row[i + lane];
    float sum = 0;
    for (const float lane : lanes) sum += lane;
    for (; i < k; ++i) sum += x[i] * row[i];
    y[j] = sum;
  }
}

// What a decoder's passes share.
struct Product {
  const float* weight = nullptr;
  const float* bias = nullptr;  // null: none
  std::size_t in = 0, out = 0;
  Weights order = Weights::kInOut;
};
struct NormWeights {
  const float* gain = nullptr;
  const float* bias = nullptr;  // null: RMSNorm
  float epsilon = 0;            // RMSNorm's
};

struct Block {
  NormWeights first;
  std::vector<Product> rows;  // one after the other they make queries, keys and values of all heads
  NormWeights query_norm, key_norm;  // of each head, before it is turned; without gains: none
  Product project;
  NormWeights second;
  Product gate, widen, narrow;      // gate without weights: GELU, else SwiGLU
  std::vector<float> keys, values;  // [tokens, key_value_width]
};

struct Transformer {
  std::uint32_t context = 0, vocabulary = 0;
  std::size_t width = 0, feed_forward = 0;
  CausalHeads heads;
  // Floats of a row that has queries of all heads, then keys, then values.
  std::size_t row() const { return heads.query_width() + 2 * heads.key_value_width(); }
  const float* tokens = nullptr;     // [vocabulary, width]
  const float* positions = nullptr;  // [context, width]; null: rotary
  std::unique_ptr<const Rotary> rotary;
  std::vector<Block> blocks;
  NormWeights last;
  const float* head = nullptr;  // [vocabulary, width]
};

class Tensors {
 public:
  Tensors(const Layout& layout, std::span<const float> parameters)
      : layout_(layout), parameters_(parameters) {
    STARLING_CHECK(parameters.size() == layout.elements());
  }
  const float* operator()(const std::string& name) const {
    const auto place = std::ranges::find(layout_.tensors(), name,
                                         [](const TensorPlace& t) { return t.spec.name; });
    STARLING_CHECK_MSG(place != layout_.tensors().end(), name);
    return parameters_.data() + std::size_t{place->first_block} * kBlock;
  }

 private:
  const Layout& layout_;
  const std::span<const float> parameters_;
};

// GPT-2, as kernels/layers/gpt.h computes it.
Transformer describe(const GptSpec& spec, const Tensors& tensor) {
  const std::size_t c = spec.width;
  Transformer made{.context = spec.context, .vocabulary = spec.vocabulary, .width = c};
  made.feed_forward = 4 * c;
  made.heads = {spec.context, spec.heads, spec.heads, c / spec.heads};
  made.tokens = made.head = tensor(embedding_shape(spec).tokens);
  made.positions = tensor("wpe.weight");
  const auto norm = [&](const std::string& name) {
    return NormWeights{tensor(name + ".weight"), tensor(name + ".bias")};
  };
  const auto product = [&](const std::string& name, std::size_t in, std::size_t out) {
    return Product{tensor(name + ".weight"), tensor(name + ".bias"), in, out};
  };
  made.last = norm("ln_f");
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    const std::string h = "h." + std::to_string(i) + ".";
    Block block{.first = norm(h + "ln_1"), .rows = {product(h + "attn.c_attn", c, 3 * c)}};
    block.project = product(h + "attn.c_proj", c, c);
    block.second = norm(h + "ln_2");
    block.widen = product(h + "mlp.c_fc", c, 4 * c);
    block.narrow = product(h + "mlp.c_proj", 4 * c, c);
    made.blocks.push_back(std::move(block));
  }
  return made;
}

// Llama, as kernels/layers/llama.h computes it.
Transformer describe(const LlamaSpec& spec, const Tensors& tensor) {
  const std::size_t c = spec.width, f = spec.feed_forward;
  Transformer made{.context = spec.context, .vocabulary = spec.vocabulary, .width = c};
  made.feed_forward = f;
  made.heads = {spec.context, spec.heads, spec.key_value_heads, spec.head_width, spec.window};
  made.tokens = tensor(embedding_shape(spec).tokens);
  made.head = spec.tied_embeddings ? made.tokens : tensor("lm_head.weight");
  made.rotary = std::make_unique<const Rotary>(spec);
  const auto norm = [&](const std::string& name) {
    return NormWeights{tensor(name + ".weight"), nullptr, static_cast<float>(spec.norm_epsilon)};
  };
  const auto product = [&](const std::string& name, std::size_t in, std::size_t out) {
    return Product{tensor(name + ".weight"), nullptr, in, out, Weights::kOutIn};
  };
  const auto biased = [&](const std::string& name, std::size_t in, std::size_t out) {
    Product made_of = product(name, in, out);
    if (spec.query_key_value_bias) made_of.bias = tensor(name + ".bias");
    return made_of;
  };
  made.last = norm("norm");
  for (std::uint32_t i = 0; i < spec.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    const std::size_t queries = spec.query_width(), keys = spec.key_value_width();
    Block block{
        .first = norm(layer + "input_layernorm"),
        .rows = {biased(attention + "q_proj", c, queries), biased(attention + "k_proj", c, keys),
                 biased(attention + "v_proj", c, keys)}};
    block.project = product(attention + "o_proj", queries, c);
    if (spec.query_key_norm) {
      block.query_norm = norm(attention + "q_norm");
      block.key_norm = norm(attention + "k_norm");
    }
    block.second = norm(layer + "post_attention_layernorm");
    block.gate = product(mlp + "gate_proj", c, f);
    block.widen = product(mlp + "up_proj", c, f);
    block.narrow = product(mlp + "down_proj", f, c);
    made.blocks.push_back(std::move(block));
  }
  return made;
}

// Rows of a long text that are computed together: their scores are as many times the text.
constexpr std::size_t kRowsAtOnce = 256;

class TransformerDecoder : public Decoder {
 public:
  TransformerDecoder(Transformer model, const KernelTable& kernels)
      : model_(std::move(model)), kernels_(kernels) {
    logits_.resize(model_.vocabulary);
    gemm_scratch_.resize(kGemmScratch + 16);
  }

  std::uint32_t vocabulary() const override { return model_.vocabulary; }
  std::uint32_t context() const override { return model_.context; }
  std::uint32_t size() const override { return size_; }
  void clear() override { size_ = 0; }

  std::span<const float> append(std::span<const std::uint32_t> tokens) override {
    STARLING_CHECK(!tokens.empty() && tokens.size() <= model_.context - size_);
    const std::size_t c = model_.width;
    std::size_t rows = 0;
    for (; !tokens.empty(); tokens = tokens.subspan(rows)) {
      rows = std::min(tokens.size(), kRowsAtOnce);
      pass(tokens.first(rows));
    }
    norm(model_.last, 1, x_.data() + (rows - 1) * c);
    row_times_transposed(c, model_.vocabulary, normed_.data(), model_.head, logits_.data());
    return logits_;
  }

 private:
  static void at_least(std::vector<float>& buffer, std::size_t size) {
    if (buffer.size() < size) buffer.resize(size);
  }
  // For so many further rows. Buffers grow with the text: a context may be far longer than any.
  void make_room(std::size_t rows) {
    const std::size_t c = model_.width, f = model_.feed_forward;
    const CausalHeads& heads = model_.heads;
    at_least(x_, rows * c);
    at_least(normed_, rows * c);
    at_least(rows_, rows * model_.row());
    at_least(attended_, rows * heads.query_width());
    at_least(gate_, rows * f);
    at_least(wide_, rows * f);
    at_least(active_, rows * f);
    at_least(mean_, rows);
    at_least(rstd_, rows);
    at_least(scores_, rows * (size_ + rows));
    for (Block& block : model_.blocks) {
      at_least(block.keys, (size_ + rows) * heads.key_value_width());
      at_least(block.values, (size_ + rows) * heads.key_value_width());
    }
  }

  void multiply(Gemm g) {
    const auto at = reinterpret_cast<std::uintptr_t>(gemm_scratch_.data());
    g.scratch = gemm_scratch_.data() + (64 - at % 64) % 64 / sizeof(float);
    check(g);
    kernels_.gemm(g);
  }
  void norm_heads(const NormWeights& weights, std::size_t heads, float* x) {
    if (weights.gain == nullptr) return;
    at_least(rstd_, heads);
    at_least(head_, heads * model_.heads.head_width);
    kernels_.rms_norm({heads, model_.heads.head_width}, weights.epsilon, x, weights.gain,
                      head_.data(), rstd_.data());
    std::copy_n(head_.data(), heads * model_.heads.head_width, x);
  }
  void norm(const NormWeights& weights, std::size_t rows, const float* x) {
    const NormShape shape{rows, model_.width};
    if (weights.bias != nullptr)
      kernels_.layer_norm(shape, x, weights.gain, weights.bias, normed_.data(), mean_.data(),
                          rstd_.data());
    else
      kernels_.rms_norm(shape, weights.epsilon, x, weights.gain, normed_.data(), rstd_.data());
  }
  // y = x W (+ b) (+ add). Rows of y lie `stride` floats apart; 0: its width. add lies as y.
  void apply(const Product& product, std::size_t rows, const float* x, float* y,
             std::size_t stride = 0, const float* add = nullptr) {
    const bool by_out = product.order == Weights::kOutIn;
    if (rows == 1) {
      const auto begin = [&](std::size_t j) {
        return (add ? add[j] : 0.0f) + (product.bias ? product.bias[j] : 0.0f);
      };
      if (by_out) {
        sums_.resize(product.out);
        row_times_transposed(product.in, product.out, x, product.weight, sums_.data());
        for (std::size_t j = 0; j < product.out; ++j) y[j] = begin(j) + sums_[j];
        return;
      }
      for (std::size_t j = 0; j < product.out; ++j) y[j] = begin(j);
      return row_times(product.in, product.out, x, product.weight, y);
    }
    Gemm g{.m = rows, .n = product.out, .k = product.in};
    g.a = x, g.lda = product.in;
    g.b = product.weight, g.ldb = by_out ? product.in : product.out, g.b_transposed = by_out;
    g.c = y, g.ldc = stride ? stride : product.out;
    g.bias = product.bias;
    g.add = add, g.ldadd = add ? g.ldc : 0;
    multiply(g);
  }

  // The tokens' rows go through all blocks, and stay in x_.
  void pass(std::span<const std::uint32_t> tokens) {
    const std::size_t n = tokens.size(), c = model_.width;
    make_room(n);
    for (std::size_t i = 0; i < n; ++i) {
      STARLING_CHECK(tokens[i] < model_.vocabulary);
      const float* const token = model_.tokens + tokens[i] * c;
      if (model_.positions != nullptr)
        kernels_.sum(c, token, model_.positions + (size_ + i) * c, x_.data() + i * c);
      else
        std::copy_n(token, c, x_.data() + i * c);
    }
    for (Block& block : model_.blocks) pass(block, n);
    size_ += static_cast<std::uint32_t>(n);
  }

  // The rows of x_ go through a block; their keys and values are kept behind those before.
  void pass(Block& block, std::size_t n) {
    const CausalHeads& heads = model_.heads;
    norm(block.first, n, x_.data());
    std::size_t at = 0;
    for (const Product& product : block.rows) {
      apply(product, n, normed_.data(), rows_.data() + at, model_.row());
      at += product.out;
    }
    const std::size_t kept = heads.key_value_width();
    for (std::size_t i = 0; i < n; ++i) {
      float* const row = rows_.data() + i * model_.row();
      norm_heads(block.query_norm, heads.heads, row);
      norm_heads(block.key_norm, heads.key_value_heads, row + heads.query_width());
      if (model_.rotary)
        model_.rotary->turn(kernels_, size_ + i, heads.heads + heads.key_value_heads,
                            /*back=*/false, row);
      std::copy_n(row + heads.query_width(), kept, block.keys.data() + (size_ + i) * kept);
      std::copy_n(row + heads.query_width() + kept, kept, block.values.data() + (size_ + i) * kept);
    }
    for (std::size_t head = 0; head < heads.heads; ++head) attend(block, n, head);
    apply(block.project, n, attended_.data(), x_.data(), 0, x_.data());
    norm(block.second, n, x_.data());
    const std::size_t wide = n * model_.feed_forward;
    apply(block.widen, n, normed_.data(), wide_.data());
    if (block.gate.weight != nullptr) {
      apply(block.gate, n, normed_.data(), gate_.data());
      kernels_.swiglu(wide, gate_.data(), wide_.data(), active_.data());
    } else {
      kernels_.gelu(wide, wide_.data(), active_.data());
    }
    apply(block.narrow, n, active_.data(), x_.data(), 0, x_.data());
  }

  void attend(const Block& block, std::size_t n, std::size_t head) {
    const CausalHeads& heads = model_.heads;
    const std::size_t d = heads.head_width, all = size_ + n, kept = heads.key_value_width();
    const std::size_t shared = head / (heads.heads / heads.key_value_heads) * d;
    Gemm scores{.m = n, .n = all, .k = d};
    scores.a = rows_.data() + head * d, scores.lda = model_.row();
    scores.b = block.keys.data() + shared, scores.ldb = kept, scores.b_transposed = true;
    scores.c = scores_.data(), scores.ldc = all;
    multiply(scores);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    const CausalShape seen{n, all, size_, heads.window};
    for (std::size_t i = 0; i < n; ++i)
      soften(scores_.data() + i * all, seen.first(i), seen.end(i), all, scale);
    Gemm mix{.m = n, .n = d, .k = all};
    mix.a = scores_.data(), mix.lda = all;
    mix.b = block.values.data() + shared, mix.ldb = kept;
    mix.c = attended_.data() + head * d, mix.ldc = heads.query_width();
    multiply(mix);
  }

  // The scores from `first` to `end` of a row become weights, the others zeros: a token sees none behind it.
  static void soften(float* row, std::size_t first, std::size_t end, std::size_t all, float scale) {
    const float most = *std::max_element(row + first, row + end);
    float sum = 0;
    for (std::size_t j = first; j < end; ++j) sum += row[j] = std::exp(scale * (row[j] - most));
    for (std::size_t j = first; j < end; ++j) row[j] /= sum;
    std::fill(row, row + first, 0.0f);
    std::fill(row + end, row + all, 0.0f);
  }

  Transformer model_;
  const KernelTable& kernels_;
  std::uint32_t size_ = 0;
  std::vector<float> x_, head_, normed_, rows_, attended_, gate_, wide_, active_, mean_, rstd_,
      scores_, sums_, logits_, gemm_scratch_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const ModelSpec& spec, const KernelTable& kernels,
                                      const Layout& layout, std::span<const float> parameters) {
  return std::visit(
      [&](const auto& kind) -> std::unique_ptr<Decoder> {
        if constexpr (requires(const Tensors& tensors) { describe(kind, tensors); })
          return std::make_unique<TransformerDecoder>(describe(kind, Tensors(layout, parameters)),
                                                      kernels);
        else
          return nullptr;
      },
      spec);
}

}  // namespace starling::kernels
