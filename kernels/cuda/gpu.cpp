#include "kernels/cuda/gpu.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/philox.h"
#include "kernels/cuda/cublas_lt.h"
#include "kernels/cuda/facts.h"
#include "kernels/cuda/net_maker.h"
#include "kernels/cuda/queue.h"

namespace starling::kernels::cuda {
namespace {

// Returns the products of this device, for one stream.
std::unique_ptr<Products> products_of(const std::string& device) {
  auto library = cublas_lt_products(device);
  return library ? std::move(library).value() : own_products();
}

// NotedProducts notes which products are asked for.
class NotedProducts : public Products {
 public:
  explicit NotedProducts(std::vector<Product>& noted) : noted_(noted) {}
  void multiply(cudaStream_t stream, const Product& product) override {
    noted_.push_back(product);
    cuda::multiply(stream, product);
  }
  PlanTable plans() const override { return own_products()->plans(); }
  std::string describe() const override { return own_products()->describe(); }

 private:
  std::vector<Product>& noted_;
};

std::unique_ptr<NetMaker> make_net(const MakerSpec& spec, CudaDevice& device,
                                   std::unique_ptr<Products> products,
                                   std::shared_ptr<const DeviceFrozen> frozen) {
  const LoraSpec lora = lora_of(spec.model);
  static const std::vector<TensorSpec> kNone;
  const Tensors tensors{spec.layout, spec.frozen ? *spec.frozen : kNone, lora};
  if (lora.on() && !frozen) return nullptr;  // the host says that values are missing
  DeviceLayers layers = std::visit(
      [&](const auto& model) {
        if constexpr (requires { make_layers(model, tensors, device); })
          return make_layers(model, tensors, device);
        else
          return DeviceLayers();
      },
      spec.model);
  if (layers.empty()) return nullptr;
  return std::make_unique<NetMaker>(spec, device, std::move(products), *input_of(spec.model),
                                    std::move(layers), std::move(frozen));
}

// Draws floats between -most and most.
std::vector<float> drawn_floats(std::size_t count, float most) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; i += 4) {
    const auto bits = random4(/*seed=*/2, Purpose::kSyntheticData, 0, 0, i);
    for (std::size_t j = 0; j < std::min<std::size_t>(4, count - i); ++j)
      values[i + j] = most * static_cast<float>(static_cast<std::int32_t>(bits[j])) * 0x1p-31f;
  }
  return values;
}

// Makes a batch of the right size, drawn: on zeros products run faster, and others are the fastest.
Batch drawn_batch(const MakerSpec& spec, const Input& input) {
  Batch batch;
  batch.sequences = spec.sequences;
  const std::size_t rows = spec.sequences * input.positions;
  const auto vocabulary = static_cast<std::uint32_t>(input.vocabulary);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto bits = random4(/*seed=*/1, Purpose::kSyntheticData, 0, 0, i);
    batch.targets.push_back(static_cast<std::int32_t>(bits[0] % vocabulary));
    if (input.features == 0)
      batch.tokens.push_back(static_cast<std::int32_t>(bits[1] % vocabulary));
  }
  batch.x = drawn_floats(rows * input.features, 1);
  return batch;
}

}  // namespace

Result<std::shared_ptr<Device>> Gpu::open(const DeviceChoice& choice) {
  STARLING_TRY(index, usable_gpu(choice.gpu));
  if (choice.on_lost) when_lost(choice.on_lost);
  std::shared_ptr<Gpu> device(new Gpu(index, choice.shares));
  device->use();
  // A damaged table of plans is an error here, before training. A missing library
  // is no error: our own products serve then, and the device's name says so.
  auto products = cublas_lt_products(device->CudaDevice::name());
  if (!products && products.error().code() == Code::kBadInput) return std::move(products).error();
  device->name_ = device->CudaDevice::name() + ", " +
                  (products ? products.value()->describe() : own_products()->describe());
  return std::shared_ptr<Device>(std::move(device));
}

Gpu::Gpu(int index, bool exports) : CudaDevice(index, exports) {}

std::unique_ptr<GradientMaker> Gpu::make_maker(const MakerSpec& spec) {
  use();
  return make_net(spec, *this, products_of(CudaDevice::name()), frozen_of(spec));
}

std::shared_ptr<const DeviceFrozen> Gpu::frozen_of(const MakerSpec& spec) {
  if (!spec.frozen_values) return nullptr;
  const Precision type = spec.precision;
  const MutexLock lock(mutex_);
  if (frozen_ && frozen_->is_of(spec.frozen_values.get(), type)) return frozen_;
  frozen_ = nullptr;  // gives its memory back before other tensors take some, if no maker has it
  frozen_ = std::make_shared<const DeviceFrozen>(*this, type, *spec.frozen, spec.frozen_values);
  return frozen_;
}

Result<> Gpu::tune(const MakerSpec& spec, const std::string& file) {
  use();
  std::vector<Product> products;
  const auto maker =
      make_net(spec, *this, std::make_unique<NotedProducts>(products), frozen_of(spec));
  if (maker == nullptr) return CudaDevice::tune(spec, file);
  Array<float> parameters(*this, spec.layout.elements());
  const std::vector<float> drawn = drawn_floats(parameters.size(), 0.05f);
  parameters.copy_in(maker->queue(), 0, drawn);
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) {};
  STARLING_TRY(maker->make({parameters.data(), nullptr}, drawn_batch(spec, maker->input()), hooks));
  return cuda::tune(static_cast<CudaQueue&>(maker->queue()).stream(), CudaDevice::name(), products,
                    file);
}

}  // namespace starling::kernels::cuda
