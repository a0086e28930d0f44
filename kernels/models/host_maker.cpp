#include "kernels/models/host_maker.h"

#include <algorithm>

namespace starling::kernels {

HostMaker::HostMaker(const Model& model, const Layout& layout, Device& device,
                     std::uint32_t sequences)
    : model_(model),
      layout_(layout),
      here_(device.host_memory()),
      queue_(device.make_queue()),
      workspace_(model.make_workspace(sequences)),
      gradient_(Array<float>::shared(device, layout.largest_part())) {
  for (const Part& part : layout.parts()) elements_ += part.elements() * part.uses;
  if (here_) return;
  parameters_ = Array<float>::shared(device, layout.largest_part());
  there_ = Array<float>(device, layout.largest_part());
}

Result<MicroBatchResult> HostMaker::make(const Working& working, const Batch& batch,
                                         Accumulators::Adding& adding, const PassHooks& hooks) {
  working_ = working;
  adding_ = &adding;
  hooks_ = &hooks;
  elements_made_ = 0;
  adding_took_ = {};
  lacking_ = false;
  auto result = model_.pass(layout_, *this, batch, *workspace_, *this);
  drop_ = false;
  if (result && lacking_) return Error(Code::kUnavailable, "the parameters did not come");
  return result;
}

const float* HostMaker::acquire(PartId p) {
  const Part& part = layout_.parts()[p];
  if (lacking_ || !hooks_->before_reading(p)) {
    lacking_ = true;
    zeros_.resize(layout_.largest_part());
    return zeros_.data();
  }
  const float* const at = working_.parameters + part.first();
  if (here_) return at;
  queue_->copy_out(writable_bytes(parameters_.part(0, part.elements())), at);
  queue_->wait();
  return parameters_.data();
}

float* HostMaker::begin(PartId, std::uint32_t) {
  return gradient_.data();
}

void HostMaker::end(PartId p, std::uint32_t use) {
  if (lacking_) return;
  const std::span<float> gradient = gradient_.part(0, layout_.parts()[p].elements());
  if (drop_) std::ranges::fill(gradient, 0.0f);
  elements_made_ += gradient.size();
  hooks_->before_adding(
      (1 + 2 * static_cast<double>(elements_made_) / static_cast<double>(elements_)) / 3);
  const auto begun = std::chrono::steady_clock::now();
  if (!here_) {
    there_.copy_in(*queue_, 0, gradient);
    queue_->wait();
  }
  adding_->add(p, use, here_ ? gradient.data() : there_.data());
  adding_took_ += std::chrono::steady_clock::now() - begun;
}

}  // namespace starling::kernels
