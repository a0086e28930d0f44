#include "kernels/cuda/gpu.h"

#include <utility>
#include <variant>

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
                                   std::unique_ptr<Products> products) {
  const auto net = [&](const auto& model) {
    return std::make_unique<NetMaker>(spec, device, std::move(products), input_of(model),
                                      make_layers(model, spec.layout));
  };
  if (const auto* gpt = std::get_if<GptSpec>(&spec.model);
      gpt && gpt->width / gpt->heads <= kHeadWidthMax)
    return net(*gpt);
  if (const auto* mlp = std::get_if<MlpSpec>(&spec.model)) return net(*mlp);
  return nullptr;
}

// Makes a batch of the right size, of zeros.
Batch empty_batch(const MakerSpec& spec, const Input& input) {
  Batch batch;
  batch.sequences = spec.sequences;
  const std::size_t rows = spec.sequences * input.positions;
  batch.targets.resize(rows);
  batch.tokens.resize(input.features == 0 ? rows : 0);
  batch.x.resize(rows * input.features);
  return batch;
}

}  // namespace

Result<std::shared_ptr<Device>> Gpu::open(const DeviceChoice& choice) {
  STARLING_TRY(index, usable_gpu(choice.gpu));
  if (choice.on_lost) when_lost(choice.on_lost);
  std::shared_ptr<Gpu> device(new Gpu(index));
  device->use();
  // A damaged table of plans is an error here, before training. A missing library
  // is no error: our own products serve then, and the device's name says so.
  auto products = cublas_lt_products(device->CudaDevice::name());
  if (!products && products.error().code() == Code::kBadInput) return std::move(products).error();
  device->name_ = device->CudaDevice::name() + ", " +
                  (products ? products.value()->describe() : own_products()->describe());
  return std::shared_ptr<Device>(std::move(device));
}

Gpu::Gpu(int index) : CudaDevice(index) {}

std::unique_ptr<GradientMaker> Gpu::make_maker(const MakerSpec& spec) {
  use();
  return make_net(spec, *this, products_of(CudaDevice::name()));
}

Result<> Gpu::tune(const MakerSpec& spec, const std::string& file) {
  use();
  std::vector<Product> products;
  const auto maker = make_net(spec, *this, std::make_unique<NotedProducts>(products));
  if (maker == nullptr) return CudaDevice::tune(spec, file);
  const Array<float> parameters(*this, spec.layout.elements());
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) {};
  STARLING_TRY(maker->make({parameters.data(), nullptr}, empty_batch(spec, maker->input()), hooks));
  return cuda::tune(static_cast<CudaQueue&>(maker->queue()).stream(), CudaDevice::name(), products,
                    file);
}

}  // namespace starling::kernels::cuda
