#include "kernels/models/host_maker.h"

#include <algorithm>

namespace starling::kernels {

HostMaker::HostMaker(const Model& model, const Layout& layout, Device& device,
                     std::uint32_t sequences)
    : model_(model),
      here_(device.host_memory()),
      queue_(device.make_queue()),
      workspace_(model.make_workspace(sequences)),
      gradient_(layout.elements()) {
  if (here_) return;
  parameters_.resize(layout.elements());
  there_ = Array<float>(device, layout.elements());
}

Result<MicroBatchResult> HostMaker::make(const Working& working, const Batch& batch) {
  std::span<const float> parameters(working.parameters, gradient_.size());
  if (!here_) {
    queue_->copy_out(writable_bytes(std::span(parameters_)), working.parameters);
    queue_->wait();
    parameters = parameters_;
  }
  STARLING_TRY(result, model_.forward_backward(parameters, batch, *workspace_, gradient_));
  if (!here_) {
    there_.copy_in(*queue_, 0, gradient_);
    queue_->wait();
  }
  return result;
}

const float* HostMaker::gradient() const {
  return here_ ? gradient_.data() : there_.data();
}

void HostMaker::drop_gradient() {
  std::ranges::fill(gradient_, 0.0f);
  if (here_) return;
  there_.copy_in(*queue_, 0, gradient_);
  queue_->wait();
}

}  // namespace starling::kernels
