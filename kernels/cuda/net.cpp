#include "kernels/cuda/net.h"

#include <algorithm>

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
                                 std::uint32_t out) {
  return {in, out, tensor_named(layout, name + ".weight"), tensor_named(layout, name + ".bias")};
}

void DeviceLinear::forward(const Pass& pass, const void* x, void* y, const void* add,
                           Epilogue epilogue, void* aux) const {
  Product p{.m = pass.rows, .n = out, .k = in, .in = pass.type};
  p.a = x, p.lda = in;
  p.b = pass.matrix(weight), p.ldb = out;
  p.out = pass.type, p.c = y, p.ldc = out;
  p.bias = pass.vector(bias);
  p.add = add, p.ldadd = out;
  p.epilogue = epilogue, p.aux = aux;
  pass.products.multiply(pass.stream, p);
}

void DeviceLinear::backward_parameters(const Pass& pass, const void* x, const void* dy) const {
  Product p{.m = in, .n = out, .k = pass.rows, .in = pass.type};  // dW = x^T dy
  p.a = x, p.lda = in, p.a_transposed = true;
  p.b = dy, p.ldb = out;
  p.out = Type::kF32, p.c = pass.d_parameter(weight), p.ldc = out;
  pass.products.multiply(pass.stream, p);
  column_sums(pass.stream, pass.type, {pass.rows, out}, dy, pass.d_parameter(bias), pass.partials);
}

void DeviceLinear::backward_input(const Pass& pass, const void* dy, void* dx, Epilogue epilogue,
                                  void* aux) const {
  Product p{.m = pass.rows, .n = in, .k = out, .in = pass.type};
  p.a = dy, p.lda = out;
  p.b = pass.matrix(weight), p.ldb = out, p.b_transposed = true;
  p.out = pass.type, p.c = dx, p.ldc = in;
  p.epilogue = epilogue, p.aux = aux;
  pass.products.multiply(pass.stream, p);
}

// ---- Norm -------------------------------------------------------------------------------------

DeviceNorm DeviceNorm::named(const Layout& layout, const std::string& name, std::uint32_t width) {
  return {width, tensor_named(layout, name + ".weight"), tensor_named(layout, name + ".bias")};
}

DeviceNorm::Statistics DeviceNorm::take(Carver& saved, std::uint32_t rows) {
  Statistics s;
  s.mean = saved.take_array<float>(rows);
  s.rstd = saved.take_array<float>(rows);
  return s;
}

void DeviceNorm::forward(const Pass& pass, const void* x, void* y, const Statistics& s) const {
  layer_norm(pass.stream, pass.type, {pass.rows, width}, x, pass.vector(gain), pass.vector(bias), y,
             s.mean, s.rstd);
}

void DeviceNorm::backward(const Pass& pass, const void* x, const Statistics& s, const void* dy,
                          const void* add, void* dx) const {
  layer_norm_backward(pass.stream, pass.type, {pass.rows, width}, x, pass.vector(gain), s.mean,
                      s.rstd, dy, add, dx, pass.d_parameter(gain), pass.d_parameter(bias),
                      pass.partials);
}

}  // namespace starling::kernels::cuda
