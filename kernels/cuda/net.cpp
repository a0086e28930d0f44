#include "kernels/cuda/net.h"

#include <algorithm>
#include <type_traits>

#include "core/base/check.h"

namespace starling::kernels::cuda {

namespace {

template <class Tensor>
std::optional<std::size_t> number_of(const std::vector<Tensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find_if(tensors, [&](const Tensor& tensor) {
    if constexpr (std::is_same_v<Tensor, TensorPlace>)
      return tensor.spec.name == name;
    else
      return tensor.name == name;
  });
  if (found == tensors.end()) return std::nullopt;
  return static_cast<std::size_t>(found - tensors.begin());
}

}  // namespace

std::size_t Tensors::named(const std::string& name) const {
  if (const auto trained = number_of(layout.tensors(), name)) return *trained;
  const auto kept = number_of(frozen, name);
  STARLING_CHECK_MSG(kept, name);
  return *kept | kFrozen;
}

std::optional<PartId> Tensors::part_of(const std::vector<std::size_t>& numbers) const {
  for (const std::size_t tensor : numbers)
    if (!is_frozen(tensor)) return layout.tensors()[tensor].first_part;
  return std::nullopt;
}

std::vector<kernels::Rows> trained_rows(const Tensors& tensors, std::size_t table) {
  return is_frozen(table) ? std::vector<kernels::Rows>() : rows_by_part(tensors.layout, table);
}

// ---- Linear -----------------------------------------------------------------------------------

DeviceLinear DeviceLinear::named(const Tensors& tensors, const std::string& name, std::uint32_t in,
                                 std::uint32_t out, bool bias, Weights weights) {
  DeviceLinear linear{in,           out,     tensors.named(name + ".weight"),
                      std::nullopt, weights, std::nullopt};
  if (bias) linear.bias = tensors.named(name + ".bias");
  if (tensors.lora.on() && tensors.lora.adapts(name))
    linear.adapter = {tensors.named(lora_a(name)), tensors.named(lora_b(name)), tensors.lora.rank,
                      static_cast<float>(tensors.lora.scale())};
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
  if (!adapter) p.epilogue = epilogue, p.aux = aux;
  pass.products.multiply(pass.stream, p);
  if (!adapter) return;
  lower(pass, x);
  Product q{.m = pass.rows, .n = out, .k = adapter->rank, .in = pass.type};  // low B^T + y
  q.a = pass.low, q.lda = q.k;
  q.b = pass.matrix(adapter->b), q.ldb = q.k, q.b_transposed = true;
  q.out = pass.type, q.c = y, q.ldc = out;
  q.add = y, q.ldadd = out;
  q.epilogue = epilogue, q.aux = aux;
  pass.products.multiply(pass.stream, q);
}

void DeviceLinear::lower(const Pass& pass, const void* x) const {
  Product p{.m = pass.rows, .n = adapter->rank, .k = in, .in = pass.type};
  p.a = x, p.lda = in;
  p.b = pass.matrix(adapter->a), p.ldb = in, p.b_transposed = true;
  p.out = pass.type, p.c = pass.low, p.ldc = p.n;
  pass.products.multiply(pass.stream, p);
  multiply_by(pass.stream, pass.type, std::size_t{p.m} * p.n, adapter->scale, pass.low);
}

void DeviceLinear::lower_gradient(const Pass& pass, const void* dy) const {
  Product p{.m = pass.rows, .n = adapter->rank, .k = out, .in = pass.type};
  p.a = dy, p.lda = out;
  p.b = pass.matrix(adapter->b), p.ldb = p.n;
  p.out = pass.type, p.c = pass.d_low, p.ldc = p.n;
  pass.products.multiply(pass.stream, p);
  multiply_by(pass.stream, pass.type, std::size_t{p.m} * p.n, adapter->scale, pass.d_low);
}

void DeviceLinear::backward_parameters(const Pass& pass, const void* x, const void* dy) const {
  // gradient [m, n] = left^T right, left [rows, m], right [rows, n]
  const auto multiply = [&](std::size_t tensor, std::uint32_t m, const void* left, std::uint32_t n,
                            const void* right) {
    Product p{.m = m, .n = n, .k = pass.rows, .in = pass.type};
    p.a = left, p.lda = m, p.a_transposed = true;
    p.b = right, p.ldb = n;
    p.out = Precision::kFp32, p.c = pass.d_parameter(tensor), p.ldc = n;
    pass.products.multiply(pass.stream, p);
  };
  if (adapter) {
    lower(pass, x);
    multiply(adapter->b, out, dy, adapter->rank, pass.low);
    lower_gradient(pass, dy);
    multiply(adapter->a, adapter->rank, pass.d_low, in, x);
  }
  if (is_frozen(weight)) return;
  if (weights == Weights::kInOut)
    multiply(weight, in, x, out, dy);
  else
    multiply(weight, out, dy, in, x);
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
  if (!adapter) p.epilogue = epilogue, p.aux = aux;
  pass.products.multiply(pass.stream, p);
  if (!adapter) return;
  lower_gradient(pass, dy);
  Product q{.m = pass.rows, .n = in, .k = adapter->rank, .in = pass.type};  // d_low A + dx
  q.a = pass.d_low, q.lda = q.k;
  q.b = pass.matrix(adapter->a), q.ldb = in;
  q.out = pass.type, q.c = dx, q.ldc = in;
  q.add = dx, q.ldadd = in;
  q.epilogue = epilogue, q.aux = aux;
  pass.products.multiply(pass.stream, q);
}

std::optional<PartId> part_of(const Tensors& tensors, const std::vector<std::string>& modules) {
  std::vector<std::size_t> numbers;
  for (const std::string& module : modules)
    numbers.push_back(tensors.named(
        tensors.lora.on() && tensors.lora.adapts(module) ? lora_a(module) : module + ".weight"));
  return tensors.part_of(numbers);
}

// ---- Norm -------------------------------------------------------------------------------------

DeviceNorm DeviceNorm::named(const Tensors& tensors, const std::string& name, std::uint32_t width) {
  return {width, tensors.named(name + ".weight"), tensors.named(name + ".bias")};
}

DeviceNorm DeviceNorm::rms(const Tensors& tensors, const std::string& name, std::uint32_t width,
                           double epsilon) {
  return {width, tensors.named(name + ".weight"), std::nullopt, static_cast<float>(epsilon)};
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
  float* const d_gain = is_frozen(gain) ? pass.unwanted : pass.d_parameter(gain);
  if (!bias)
    return rms_norm_backward(pass.stream, pass.type, shape, x, pass.vector(gain), s.rstd, dy, add,
                             dx, d_gain, pass.partials);
  float* const d_bias = is_frozen(*bias) ? pass.unwanted + width : pass.d_parameter(*bias);
  layer_norm_backward(pass.stream, pass.type, shape, x, pass.vector(gain), s.mean, s.rstd, dy, add,
                      dx, d_gain, d_bias, pass.partials);
}

}  // namespace starling::kernels::cuda
