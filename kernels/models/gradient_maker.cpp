#include "kernels/models/gradient_maker.h"

#include <algorithm>
#include <utility>

#include "kernels/models/host_maker.h"
#include "kernels/models/local_maker.h"

namespace starling::kernels {

GradientMaker::GradientMaker(const Layout& layout, Device& device)
    : layout_(layout), own_queue_(device.make_queue()), queue_(*own_queue_) {
  count_elements();
}

GradientMaker::GradientMaker(const Layout& layout, Queue& queue) : layout_(layout), queue_(queue) {
  count_elements();
}

void GradientMaker::count_elements() {
  for (const Part& part : layout_.parts()) elements_ += part.elements() * part.uses;
}

Result<MicroBatchResult> GradientMaker::make(const Working& working, const Batch& batch,
                                             const PassHooks& hooks) {
  working_ = working;
  hooks_ = &hooks;
  elements_given_ = 0;
  taking_took_ = {};
  lacking_ = false;
  auto result = pass(batch);
  drop_ = false;
  if (result && lacking_) return Error(Code::kUnavailable, "the parameters did not come");
  return result;
}

Result<MicroBatchResult> GradientMaker::make(const Working& working, const Batch& batch,
                                             Accumulators::Adding& adding, PassHooks hooks) {
  if (gives_ahead()) adding.ask_ahead();
  hooks.take = [this, &adding, before = std::move(hooks.take)](PartId part, std::uint32_t use,
                                                               const float* gradient) {
    if (before) before(part, use, gradient);
    adding.set_scale(scale());
    adding.add(part, use, gradient);
  };
  return make(working, batch, hooks);
}

Result<MicroBatchResult> GradientMaker::evaluate(const Working& working, const Batch& batch) {
  PassHooks hooks;
  hooks.take = [](PartId, std::uint32_t, const float*) {};
  auto result = make(working, batch, hooks);
  queue_.wait();
  return result;
}

bool GradientMaker::await(PartId part) {
  lacking_ = lacking_ || !hooks_->before_reading(part);
  return !lacking_;
}

void GradientMaker::give(PartId p, std::uint32_t use, float* gradient) {
  if (lacking_) return;
  const std::uint64_t elements = layout_.parts()[p].elements();
  if (drop_) queue_.zero(gradient, elements * sizeof(float));
  elements_given_ += elements;
  hooks_->before_taking(
      (1 + 2 * static_cast<double>(elements_given_) / static_cast<double>(elements_)) / 3);
  const auto begun = std::chrono::steady_clock::now();
  hooks_->take(p, use, gradient);
  taking_took_ += std::chrono::steady_clock::now() - begun;
}

std::unique_ptr<GradientMaker> make_gradient_maker(const Job& job, const Model& model,
                                                   const Layout& layout, Device& device,
                                                   std::uint32_t sequences) {
  // A number that is no multiple is an error of the pass.
  const std::uint32_t of_pass =
      job.local.on() ? std::max(sequences / job.local.steps, 1u) : sequences;
  auto maker = device.make_maker({job.model, layout, job.precision, job.recompute, of_pass,
                                  &model.frozen(), model.frozen_values()});
  if (!maker) maker = std::make_unique<HostMaker>(model, layout, device, of_pass);
  if (!job.local.on()) return maker;
  return std::make_unique<LocalMaker>(std::move(maker), job, layout, device);
}

}  // namespace starling::kernels
