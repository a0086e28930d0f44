#include "kernels/layers/layer.h"

#include <algorithm>
#include <cmath>

namespace starling::kernels {

void OpenGradient::clear_padding() {
  const Part& part = pass_.layout.parts()[pass_.d_part];
  for (std::uint32_t b = part.first_block; b < part.first_block + part.blocks; ++b) {
    const std::uint32_t used = pass_.layout.used(b);
    float* const block = pass_.gradient + std::size_t{b - part.first_block} * kBlock;
    if (used < kBlock) std::fill(block + used, block + kBlock, 0.0f);
  }
}

void OpenGradient::end() {
  if (!open_) return;
  clear_padding();
  pass_.sink->end(pass_.d_part, use_);
  pass_.gradient = nullptr;
}

std::size_t frozen_rows_at_once(const TensorSpec& table) {
  const std::size_t row = table.shape[1] * sizeof(float);
  return std::clamp<std::size_t>(Layout::kPartBytesMax / row, 1, table.shape[0]);
}

std::vector<Rows> rows_of(const Pass& pass, std::size_t table) {
  if (!is_frozen(table)) return rows_by_part(pass.layout, table);
  const TensorSpec& spec = (*pass.frozen.specs)[table & ~kFrozen];
  const std::size_t all = spec.shape[0], each = frozen_rows_at_once(spec);
  std::vector<Rows> runs;
  for (std::size_t first = 0; first < all; first += each)
    runs.push_back({0, first, std::min(each, all - first), /*frozen=*/true});
  return runs;
}

std::vector<Rows> rows_by_part(const Layout& layout, std::size_t table) {
  const TensorPlace& place = layout.tensors()[table];
  const std::size_t all = place.spec.shape[0];
  const std::size_t each = place.parts > 1 ? place.part_rows : all;
  std::vector<Rows> runs;
  for (std::size_t first = 0; first < all; first += each)
    runs.push_back({place.first_part + runs.size(), first, std::min(each, all - first)});
  return runs;
}

Linear Linear::declare(Parameters& parameters, const std::string& name, std::size_t in,
                       std::size_t out, Initial weight, std::optional<Initial> bias,
                       Weights order) {
  Linear l{in, out, order};
  const bool by_out = order == Weights::kOutIn;
  l.weight = parameters.add(name + ".weight", {by_out ? out : in, by_out ? in : out}, weight);
  if (bias) l.bias = parameters.add(name + ".bias", {out}, *bias);
  const LoraSpec& lora = parameters.lora();
  if (!lora.on() || !lora.adapts(name)) return l;
  // B begins with zeros, so the model begins as it was; A with the variance that peft gives it.
  l.adapter = {.rank = lora.rank, .scale = static_cast<float>(lora.scale())};
  l.adapter->a = parameters.add_trained(
      lora_a(name), {lora.rank, in}, {.deviation = 1 / std::sqrt(3.0 * static_cast<double>(in))});
  l.adapter->b = parameters.add_trained(lora_b(name), {out, lora.rank}, {});
  return l;
}

void Linear::forward(const Pass& pass, const float* x, float* y, const float* add) const {
  Gemm g{.m = pass.rows, .n = out, .k = in};
  g.a = x, g.lda = in;
  g.b_transposed = order == Weights::kOutIn;
  g.b = pass.parameter(weight), g.ldb = g.b_transposed ? in : out;
  g.c = y, g.ldc = out;
  if (bias) g.bias = pass.parameter(*bias);
  g.add = add, g.ldadd = out;
  pass.multiply(g);
  if (!adapter) return;
  lower(pass, x);
  Gemm h{.m = pass.rows, .n = out, .k = adapter->rank};  // y += low B^T
  h.a = pass.frozen.low, h.lda = h.k;
  h.b = pass.parameter(adapter->b), h.ldb = h.k, h.b_transposed = true;
  h.c = y, h.ldc = out;
  h.add = y, h.ldadd = out;
  pass.multiply(h);
}

// low = scale x A^T
void Linear::lower(const Pass& pass, const float* x) const {
  Gemm g{.m = pass.rows, .n = adapter->rank, .k = in};
  g.a = x, g.lda = in;
  g.b = pass.parameter(adapter->a), g.ldb = in, g.b_transposed = true;
  g.c = pass.frozen.low, g.ldc = g.n;
  pass.multiply(g);
  for (std::size_t i = 0; i < g.m * g.n; ++i) pass.frozen.low[i] *= adapter->scale;
}

// d_low = scale dy B
void Linear::lower_gradient(const Pass& pass, const float* dy) const {
  Gemm g{.m = pass.rows, .n = adapter->rank, .k = out};
  g.a = dy, g.lda = out;
  g.b = pass.parameter(adapter->b), g.ldb = g.n;
  g.c = pass.frozen.d_low, g.ldc = g.n;
  pass.multiply(g);
  for (std::size_t i = 0; i < g.m * g.n; ++i) pass.frozen.d_low[i] *= adapter->scale;
}

void Linear::backward_parameters(const Pass& pass, const float* x, const float* dy) const {
  if (adapter) {
    lower(pass, x);
    Gemm b{.m = out, .n = adapter->rank, .k = pass.rows};  // dB = dy^T low
    b.a = dy, b.lda = out, b.a_transposed = true;
    b.b = pass.frozen.low, b.ldb = b.n;
    b.c = pass.d_parameter(adapter->b), b.ldc = b.n;
    pass.multiply(b);
    lower_gradient(pass, dy);
    Gemm a{.m = adapter->rank, .n = in, .k = pass.rows};  // dA = d_low^T x
    a.a = pass.frozen.d_low, a.lda = a.m, a.a_transposed = true;
    a.b = x, a.ldb = in;
    a.c = pass.d_parameter(adapter->a), a.ldc = in;
    pass.multiply(a);
  }
  if (is_frozen(weight)) return;
  Gemm g{.k = pass.rows};
  if (order == Weights::kInOut) {  // dW = x^T dy
    g.m = in, g.n = out;
    g.a = x, g.b = dy;
  } else {  // dW = dy^T x
    g.m = out, g.n = in;
    g.a = dy, g.b = x;
  }
  g.lda = g.m, g.a_transposed = true;
  g.ldb = g.n;
  g.c = pass.d_parameter(weight), g.ldc = g.n;
  pass.multiply(g);
  if (bias) pass.kernels.column_sums(pass.rows, out, dy, pass.d_parameter(*bias));
}

void Linear::backward_input(const Pass& pass, const float* dy, float* dx, const float* add) const {
  Gemm g{.m = pass.rows, .n = in, .k = out};
  g.a = dy, g.lda = out;
  g.b_transposed = order == Weights::kInOut;
  g.b = pass.parameter(weight), g.ldb = g.b_transposed ? out : in;
  g.c = dx, g.ldc = in;
  g.add = add, g.ldadd = in;
  pass.multiply(g);
  if (!adapter) return;
  lower_gradient(pass, dy);
  Gemm h{.m = pass.rows, .n = in, .k = adapter->rank};  // dx += d_low A
  h.a = pass.frozen.d_low, h.lda = h.k;
  h.b = pass.parameter(adapter->a), h.ldb = in;
  h.c = dx, h.ldc = in;
  h.add = dx, h.ldadd = in;
  pass.multiply(h);
}

Norm Norm::declare(Parameters& parameters, const std::string& name, std::size_t width) {
  Norm n{width};
  n.gain = parameters.add(name + ".weight", {width}, {.constant = 1});
  n.bias = parameters.add(name + ".bias", {width}, {});
  return n;
}

Norm Norm::declare_rms(Parameters& parameters, const std::string& name, std::size_t width,
                       double epsilon) {
  Norm n{width};
  n.gain = parameters.add(name + ".weight", {width}, {.constant = 1});
  n.epsilon = static_cast<float>(epsilon);
  return n;
}

void Norm::forward(const Pass& pass, const float* x, float* y, float* saved,
                   std::size_t pieces) const {
  const NormShape shape{pass.rows * pieces, width};
  if (bias)
    pass.kernels.layer_norm(shape, x, pass.parameter(gain), pass.parameter(*bias), y, saved,
                            saved + aligned_floats(shape.rows));
  else
    pass.kernels.rms_norm(shape, epsilon, x, pass.parameter(gain), y, saved);
}

void Norm::backward(const Pass& pass, const float* x, const float* saved, const float* dy,
                    const float* add, float* dx, std::size_t pieces) const {
  const NormShape shape{pass.rows * pieces, width};
  float* const d_gain = is_frozen(gain) ? pass.frozen.unwanted : pass.d_parameter(gain);
  if (!bias)
    return pass.kernels.rms_norm_backward(shape, x, pass.parameter(gain), saved, dy, add, dx,
                                          d_gain);
  float* const d_bias =
      is_frozen(*bias) ? pass.frozen.unwanted + aligned_floats(width) : pass.d_parameter(*bias);
  pass.kernels.layer_norm_backward(shape, x, pass.parameter(gain), saved,
                                   saved + aligned_floats(shape.rows), dy, add, dx, d_gain, d_bias);
}

}  // namespace starling::kernels
