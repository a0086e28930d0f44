#include "kernels/cuda/net.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace starling::kernels::cuda {

std::size_t tensor_named(const Layout& layout, const std::string& name) {
  const auto& tensors = layout.tensors();
  const auto found =
      std::ranges::find(tensors, name, [](const TensorPlace& place) { return place.spec.name; });
  STARLING_CHECK(found != tensors.end());
  return static_cast<std::size_t>(found - tensors.begin());
}

// ---- Linear -----------------------------------------------------------------------------------

DeviceLinear DeviceLinear::named(const Layout& layout, const std::string& name, std::uint32_t in,
                                 std::uint32_t out, bool bias, Weights weights) {
  DeviceLinear linear{in, out, tensor_named(layout, name + ".weight"), std::nullopt, weights};
  if (bias) linear.bias = tensor_named(layout, name + ".bias");
  return linear;
}

void DeviceLinear::forward(const Pass& pass, const void* x, void* y, const void* add,
                           Epilogue epilogue, void* aux) const {
  Product p{.m = pass.rows, .n = out, .k = in, .in = pass.type};
  p.a = x, p.lda = in;
  p.b = pass.matrix(weight), p.b_transposed = weights == Weights::kOutIn;
  p.ldb = p.b_transposed ? in : out;
  p.out = pass.type, p.c = y, p.ldc = out;
  p.bias = bias ? pass.vector(*bias) : nullptr;
  p.add = add, p.ldadd = out;
  p.epilogue = epilogue, p.aux = aux;
  pass.products.multiply(pass.stream, p);
}

void DeviceLinear::backward_parameters(const Pass& pass, const void* x, const void* dy) const {
  Product p{.m = in, .n = out, .k = pass.rows, .in = pass.type};  // dW = x^T dy
  p.a = x, p.lda = in, p.a_transposed = true;
  p.b = dy, p.ldb = out;
  if (weights == Weights::kOutIn) std::swap(p.m, p.n), std::swap(p.a, p.b), std::swap(p.lda, p.ldb);
  p.out = Type::kF32, p.c = pass.d_parameter(weight), p.ldc = p.n;
  pass.products.multiply(pass.stream, p);
  if (bias)
    column_sums(pass.stream, pass.type, {pass.rows, out}, dy, pass.d_parameter(*bias),
                pass.partials);
}

void DeviceLinear::backward_input(const Pass& pass, const void* dy, void* dx, Epilogue epilogue,
                                  void* aux, const void* add) const {
  Product p{.m = pass.rows, .n = in, .k = out, .in = pass.type};
  p.a = dy, p.lda = out;
  p.b = pass.matrix(weight), p.b_transposed = weights == Weights::kInOut;
  p.ldb = p.b_transposed ? out : in;
  p.out = pass.type, p.c = dx, p.ldc = in;
  p.add = add, p.ldadd = in;
  p.epilogue = epilogue, p.aux = aux;
  pass.products.multiply(pass.stream, p);
}

// ---- Norm -------------------------------------------------------------------------------------

DeviceNorm DeviceNorm::named(const Layout& layout, const std::string& name, std::uint32_t width) {
  return {width, tensor_named(layout, name + ".weight"), tensor_named(layout, name + ".bias")};
}

DeviceNorm DeviceNorm::rms(const Layout& layout, const std::string& name, std::uint32_t width,
                           double epsilon) {
  return {width, tensor_named(layout, name + ".weight"), std::nullopt, static_cast<float>(epsilon)};
}

DeviceNorm::Statistics DeviceNorm::take(Carver& saved, std::size_t rows) const {
  Statistics s;
  if (bias) s.mean = saved.take_array<float>(rows);
  s.rstd = saved.take_array<float>(rows);
  return s;
}

void DeviceNorm::forward(const Pass& pass, const void* x, void* y, const Statistics& s,
                         std::uint32_t heads) const {
  const cuda::Rows shape{pass.rows * heads, width};
  if (bias)
    return layer_norm(pass.stream, pass.type, shape, x, pass.vector(gain), pass.vector(*bias), y,
                      s.mean, s.rstd);
  rms_norm(pass.stream, pass.type, shape, epsilon, x, pass.vector(gain), y, s.rstd);
}

void DeviceNorm::backward(const Pass& pass, const void* x, const Statistics& s, const void* dy,
                          const void* add, void* dx, std::uint32_t heads) const {
  const cuda::Rows shape{pass.rows * heads, width};
  if (bias)
    return layer_norm_backward(pass.stream, pass.type, shape, x, pass.vector(gain), s.mean, s.rstd,
                               dy, add, dx, pass.d_parameter(gain), pass.d_parameter(*bias),
                               pass.partials);
  rms_norm_backward(pass.stream, pass.type, shape, x, pass.vector(gain), s.rstd, dy, add, dx,
                    pass.d_parameter(gain), pass.partials);
}

}  // namespace starling::kernels::cuda
