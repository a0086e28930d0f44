#include "kernels/cuda/gpu.h"

#include <utility>
#include <variant>

#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/facts.h"
#include "kernels/cuda/net_maker.h"

namespace starling::kernels::cuda {
namespace {

// Products of this device, for one stream.
std::unique_ptr<Products> products_of(const std::string& device) {
  auto library = cublas_lt_products(device);
  return library ? std::move(library).value() : own_products();
}

}  // namespace

Result<std::shared_ptr<Device>> Gpu::open(std::uint32_t gpu) {
  STARLING_TRY(index, usable_gpu(gpu));
  std::shared_ptr<Gpu> device(new Gpu(index));
  device->use();
  // A damaged table of plans is said now; a missing library is no error, as the name says what serves.
  auto products = cublas_lt_products(device->CudaDevice::name());
  if (!products && products.error().code() == Code::kBadInput) return std::move(products).error();
  device->name_ = device->CudaDevice::name() + ", " +
                  (products ? products.value()->describe() : own_products()->describe());
  return std::shared_ptr<Device>(std::move(device));
}

Gpu::Gpu(int index) : CudaDevice(index) {}

std::unique_ptr<GradientMaker> Gpu::make_maker(const MakerSpec& spec) {
  use();
  const auto net = [&](const auto& model) -> std::unique_ptr<GradientMaker> {
    return std::make_unique<NetMaker>(spec, *this, products_of(CudaDevice::name()), input_of(model),
                                      make_layers(model, spec.layout));
  };
  if (const auto* gpt = std::get_if<GptSpec>(&spec.model); gpt && gpt->width / gpt->heads <= 128)
    return net(*gpt);
  if (const auto* mlp = std::get_if<MlpSpec>(&spec.model)) return net(*mlp);
  return nullptr;
}

}  // namespace starling::kernels::cuda
