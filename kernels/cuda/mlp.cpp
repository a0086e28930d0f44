// The layers of the classifier on a device; kernels/layers/dense.h says what each computes.

#include <string>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/net.h"

namespace starling::kernels::cuda {
namespace {

// y = x W + b, then ReLU if asked for. Keeps y, which says where the ReLU let something through.
class DeviceDense : public DeviceLayer {
 public:
  DeviceDense(const Tensors& tensors, std::uint32_t index, std::uint32_t in, std::uint32_t out,
              bool relu)
      : linear_(DeviceLinear::named(tensors, "fc" + std::to_string(index), in, out)),
        relu_(relu),
        part_(tensors.layout.tensors()[linear_.weight].first_part) {}

  std::size_t width() const override { return linear_.out; }
  std::size_t saved(const Pass& pass) const override {
    return relu_ ? pass.row_bytes(linear_.out) : 0;
  }
  std::size_t scratch(const Pass& pass) const override { return pass.row_bytes(linear_.out); }
  std::vector<PartId> parts() const override { return {part_}; }
  std::vector<Use> pieces() const override { return {{part_, /*use=*/0}}; }

  void forward(const Pass& pass, const void* in, void* out, void* saved) const override {
    linear_.forward(pass, in, out, /*add=*/nullptr, relu_ ? Epilogue::kRelu : Epilogue::kNone);
    if (relu_)
      check(cudaMemcpyAsync(saved, out, pass.row_bytes(linear_.out), cudaMemcpyDeviceToDevice,
                            pass.stream),
            "a copy");
  }
  void backward(const Pass& pass, std::size_t, const void* in, void* saved, const void* d_out,
                void* d_in) const override {
    const void* dy = d_out;
    if (relu_) {
      relu_backward(pass.stream, pass.type, std::size_t{pass.rows} * linear_.out, saved, d_out,
                    pass.scratch);
      dy = pass.scratch;
    }
    linear_.backward_parameters(pass, in, dy);
    if (d_in != nullptr) linear_.backward_input(pass, dy, d_in);
  }

 private:
  const DeviceLinear linear_;
  const bool relu_;
  const PartId part_;
};

// Computes the mean cross entropy of x as logits. Its own gradient is made with the loss.
class DeviceClassifierLoss : public DeviceLayer {
 public:
  explicit DeviceClassifierLoss(std::uint32_t classes) : classes_(classes) {}

  std::size_t width() const override { return 0; }
  std::size_t saved(const Pass& pass) const override { return pass.row_bytes(classes_); }
  std::size_t scratch(const Pass&) const override { return 0; }
  std::vector<PartId> parts() const override { return {}; }
  std::vector<Use> pieces() const override { return {}; }

  void forward(const Pass& pass, const void* in, void*, void* saved) const override {
    check(
        cudaMemcpyAsync(saved, in, pass.row_bytes(classes_), cudaMemcpyDeviceToDevice, pass.stream),
        "a copy");
    cross_entropy(pass.stream, pass.type, pass.rows, classes_, classes_, saved, pass.targets,
                  pass.scale, pass.losses);
    sum_losses(pass.stream, pass.rows, pass.losses, pass.loss);
  }
  void backward(const Pass& pass, std::size_t, const void*, void* saved, const void*,
                void* d_in) const override {
    check(cudaMemcpyAsync(d_in, saved, pass.row_bytes(classes_), cudaMemcpyDeviceToDevice,
                          pass.stream),
          "a copy");
  }

 private:
  const std::uint32_t classes_;
};

}  // namespace

DeviceLayers make_layers(const MlpSpec& spec, const Tensors& tensors, Device&) {
  DeviceLayers layers;
  const auto dense = static_cast<std::uint32_t>(spec.sizes.size() - 1);
  for (std::uint32_t i = 0; i < dense; ++i)
    layers.push_back(std::make_unique<DeviceDense>(tensors, i, spec.sizes[i], spec.sizes[i + 1],
                                                   /*relu=*/i + 1 < dense));
  layers.push_back(std::make_unique<DeviceClassifierLoss>(spec.sizes.back()));
  return layers;
}

}  // namespace starling::kernels::cuda
