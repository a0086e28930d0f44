#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "kernels/models/decoder.h"

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

// GPT-2, as kernels/layers/gpt.h computes it.
class GptDecoder : public Decoder {
 public:
  GptDecoder(const GptSpec& spec, const KernelTable& kernels, const Layout& layout,
             std::span<const float> parameters)
      : spec_(spec), kernels_(kernels), layout_(layout), parameters_(parameters) {
    STARLING_CHECK(parameters.size() == layout.elements());
    wte_ = tensor("wte.weight");
    wpe_ = tensor("wpe.weight");
    final_gain_ = tensor("ln_f.weight");
    final_bias_ = tensor("ln_f.bias");
    const std::size_t kept = std::size_t{spec.context} * spec.width;
    for (std::uint32_t i = 0; i < spec.layers; ++i) {
      const std::string h = "h." + std::to_string(i) + ".";
      blocks_.push_back({tensor(h + "ln_1.weight"), tensor(h + "ln_1.bias"),
                         linear(h + "attn.c_attn", spec.width, 3 * spec.width),
                         linear(h + "attn.c_proj", spec.width, spec.width),
                         tensor(h + "ln_2.weight"), tensor(h + "ln_2.bias"),
                         linear(h + "mlp.c_fc", spec.width, 4 * spec.width),
                         linear(h + "mlp.c_proj", 4 * spec.width, spec.width),
                         std::vector<float>(kept), std::vector<float>(kept)});
    }
    logits_.resize(spec.vocabulary);
    gemm_scratch_.resize(kGemmScratch + 16);
  }

  std::uint32_t vocabulary() const override { return spec_.vocabulary; }
  std::uint32_t context() const override { return spec_.context; }
  std::uint32_t size() const override { return size_; }
  void clear() override { size_ = 0; }

  std::span<const float> append(std::span<const std::uint32_t> tokens) override {
    STARLING_CHECK(!tokens.empty() && tokens.size() <= spec_.context - size_);
    const std::size_t n = tokens.size(), c = spec_.width;
    make_room(n);
    for (std::size_t i = 0; i < n; ++i) {
      STARLING_CHECK(tokens[i] < spec_.vocabulary);
      kernels_.sum(c, wte_ + tokens[i] * c, wpe_ + (size_ + i) * c, x_.data() + i * c);
    }
    for (Block& block : blocks_) pass(block, n);
    size_ += static_cast<std::uint32_t>(n);
    norm(1, x_.data() + (n - 1) * c, final_gain_, final_bias_);
    row_times_transposed(c, spec_.vocabulary, normed_.data(), wte_, logits_.data());
    return logits_;
  }

 private:
  struct Linear {
    const float *weight, *bias;
    std::size_t in, out;
  };
  struct Block {
    const float *gain_1, *bias_1;
    Linear qkv, project;
    const float *gain_2, *bias_2;
    Linear widen, narrow;
    std::vector<float> keys, values;  // [context, width]
  };

  const float* tensor(const std::string& name) const {
    const auto place = std::ranges::find(layout_.tensors(), name,
                                         [](const TensorPlace& t) { return t.spec.name; });
    STARLING_CHECK_MSG(place != layout_.tensors().end(), name);
    return parameters_.data() + std::size_t{place->first_block} * kBlock;
  }
  Linear linear(const std::string& name, std::size_t in, std::size_t out) const {
    return {tensor(name + ".weight"), tensor(name + ".bias"), in, out};
  }

  void make_room(std::size_t rows) {
    const std::size_t c = spec_.width;
    if (x_.size() >= rows * c) return;
    x_.resize(rows * c);
    normed_.resize(rows * c);
    qkv_.resize(rows * 3 * c);
    attended_.resize(rows * c);
    wide_.resize(rows * 4 * c);
    active_.resize(rows * 4 * c);
    mean_.resize(rows);
    rstd_.resize(rows);
    scores_.resize(rows * spec_.context);
  }

  void multiply(Gemm g) {
    const auto at = reinterpret_cast<std::uintptr_t>(gemm_scratch_.data());
    g.scratch = gemm_scratch_.data() + (64 - at % 64) % 64 / sizeof(float);
    check(g);
    kernels_.gemm(g);
  }
  void norm(std::size_t rows, const float* x, const float* gain, const float* bias) {
    kernels_.layer_norm({rows, spec_.width}, x, gain, bias, normed_.data(), mean_.data(),
                        rstd_.data());
  }
  // y = x W + b (+ add)
  void apply(const Linear& linear, std::size_t rows, const float* x, float* y,
             const float* add = nullptr) {
    if (rows == 1) {
      for (std::size_t j = 0; j < linear.out; ++j)
        y[j] = add ? add[j] + linear.bias[j] : linear.bias[j];
      return row_times(linear.in, linear.out, x, linear.weight, y);
    }
    Gemm g{.m = rows, .n = linear.out, .k = linear.in};
    g.a = x, g.lda = linear.in;
    g.b = linear.weight, g.ldb = linear.out;
    g.c = y, g.ldc = linear.out;
    g.bias = linear.bias;
    g.add = add, g.ldadd = add ? linear.out : 0;
    multiply(g);
  }

  // The rows of x_ go through a block; their keys and values are kept behind those before.
  void pass(Block& block, std::size_t n) {
    const std::size_t c = spec_.width;
    norm(n, x_.data(), block.gain_1, block.bias_1);
    apply(block.qkv, n, normed_.data(), qkv_.data());
    for (std::size_t i = 0; i < n; ++i) {
      const float* const row = qkv_.data() + i * 3 * c;
      std::copy_n(row + c, c, block.keys.data() + (size_ + i) * c);
      std::copy_n(row + 2 * c, c, block.values.data() + (size_ + i) * c);
    }
    for (std::size_t head = 0; head < spec_.heads; ++head) attend(block, n, head);
    apply(block.project, n, attended_.data(), x_.data(), x_.data());
    norm(n, x_.data(), block.gain_2, block.bias_2);
    apply(block.widen, n, normed_.data(), wide_.data());
    kernels_.gelu(n * 4 * c, wide_.data(), active_.data());
    apply(block.narrow, n, active_.data(), x_.data(), x_.data());
  }

  void attend(const Block& block, std::size_t n, std::size_t head) {
    const std::size_t c = spec_.width, d = c / spec_.heads, all = size_ + n;
    Gemm scores{.m = n, .n = all, .k = d};
    scores.a = qkv_.data() + head * d, scores.lda = 3 * c;
    scores.b = block.keys.data() + head * d, scores.ldb = c, scores.b_transposed = true;
    scores.c = scores_.data(), scores.ldc = all;
    multiply(scores);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    for (std::size_t i = 0; i < n; ++i) soften(scores_.data() + i * all, size_ + i + 1, all, scale);
    Gemm mix{.m = n, .n = d, .k = all};
    mix.a = scores_.data(), mix.lda = all;
    mix.b = block.values.data() + head * d, mix.ldb = c;
    mix.c = attended_.data() + head * d, mix.ldc = c;
    multiply(mix);
  }

  // The first `seen` of a row of scores become weights, the rest zeros: a token sees none behind it.
  static void soften(float* row, std::size_t seen, std::size_t all, float scale) {
    const float most = *std::max_element(row, row + seen);
    float sum = 0;
    for (std::size_t j = 0; j < seen; ++j) sum += row[j] = std::exp(scale * (row[j] - most));
    for (std::size_t j = 0; j < seen; ++j) row[j] /= sum;
    std::fill(row + seen, row + all, 0.0f);
  }

  const GptSpec spec_;
  const KernelTable& kernels_;
  const Layout& layout_;
  const std::span<const float> parameters_;
  const float *wte_, *wpe_, *final_gain_, *final_bias_;
  std::vector<Block> blocks_;
  std::uint32_t size_ = 0;
  std::vector<float> x_, normed_, qkv_, attended_, wide_, active_, mean_, rstd_, scores_, logits_,
      gemm_scratch_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const GptSpec& spec, const KernelTable& kernels,
                                      const Layout& layout, std::span<const float> parameters) {
  return std::make_unique<GptDecoder>(spec, kernels, layout, parameters);
}

}  // namespace starling::kernels
