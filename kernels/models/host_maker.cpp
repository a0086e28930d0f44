#include "kernels/models/host_maker.h"

namespace starling::kernels {

namespace {

Array<float> gradient_of(const Model& model, const Layout& layout, Device& device) {
  if (!device.host_memory() && model.takes_places()) {
    auto exported = Array<float>::exported(device, layout.largest_part());
    if (exported.place()) return exported;
  }
  return Array<float>::shared(device, layout.largest_part());
}

}  // namespace

HostMaker::HostMaker(const Model& model, const Layout& layout, Device& device,
                     std::uint32_t sequences)
    : GradientMaker(layout, device),
      model_(model),
      device_(device),
      here_(device.host_memory()),
      workspace_(model.make_workspace(sequences)),
      gradient_(gradient_of(model, layout, device)),
      exported_(!gradient_.host()) {
  if (here_ || exported_) return;
  there_ = Array<float>(device, layout.largest_part());
}

Result<MicroBatchResult> HostMaker::evaluate(const Working& working, const Batch& batch) {
  if (!here_ || !model_.evaluates()) return GradientMaker::evaluate(working, batch);
  return model_.evaluate({working.parameters, layout().elements()}, batch, *workspace_);
}

Result<MicroBatchResult> HostMaker::pass(const Batch& batch) {
  return model_.pass(layout(), *this, batch, *workspace_, *this);
}

const float* HostMaker::acquire(PartId p) {
  const Part& part = layout().parts()[p];
  if (!await(p)) {
    zeros_.resize(layout().largest_part());
    return zeros_.data();
  }
  const float* const at = working().parameters + part.first();
  if (at_hand()) return at;
  if (parameters_.size() == 0) parameters_ = Array<float>::shared(device_, layout().largest_part());
  queue().copy_out(writable_bytes(parameters_.part(0, part.elements())), at);
  queue().wait();
  return parameters_.data();
}

std::optional<SharedPlace> HostMaker::parameters_at(PartId p) const {
  if (lacking()) return std::nullopt;  // zeros
  if (!at_hand()) return parameters_.place();
  const auto& all = working().place;
  return all ? std::optional(all->after(layout().parts()[p].first() * sizeof(float))) : all;
}

std::optional<SharedPlace> HostMaker::gradient_at(PartId, std::uint32_t) const {
  return gradient_.place();
}

float* HostMaker::begin(PartId, std::uint32_t) {
  return gradient_.data();
}

void HostMaker::end(PartId p, std::uint32_t use) {
  if (lacking()) return;
  if (here_ || exported_) return give(p, use, gradient_.data());
  there_.copy_in(queue(), 0, gradient_.part(0, layout().parts()[p].elements()));
  give(p, use, there_.data());
}

}  // namespace starling::kernels
