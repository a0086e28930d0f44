#include "kernels/layers/layer.h"

#include <algorithm>

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
  clear_padding();
  pass_.sink->end(pass_.d_part, use_);
  pass_.gradient = nullptr;
}

std::vector<Rows> rows_by_part(const Layout& layout, std::size_t tensor) {
  const TensorPlace& place = layout.tensors()[tensor];
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
}

void Linear::backward_parameters(const Pass& pass, const float* x, const float* dy) const {
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
  if (bias)
    pass.kernels.layer_norm_backward(shape, x, pass.parameter(gain), saved,
                                     saved + aligned_floats(shape.rows), dy, add, dx,
                                     pass.d_parameter(gain), pass.d_parameter(*bias));
  else
    pass.kernels.rms_norm_backward(shape, x, pass.parameter(gain), saved, dy, add, dx,
                                   pass.d_parameter(gain));
}

}  // namespace starling::kernels
