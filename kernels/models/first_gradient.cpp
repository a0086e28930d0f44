#include "kernels/models/first_gradient.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "core/base/philox.h"
#include "kernels/cpu/kernel_check.h"
#include "kernels/device/array.h"
#include "kernels/grid/quantise.h"
#include "kernels/models/flat.h"

namespace starling::kernels {
namespace {

bool same_bits(const FirstGradient& a, const FirstGradient& b) {
  const auto bytes = [](const FirstGradient& f) {
    return as_bytes(std::span<const float>(f.gradient));
  };
  return std::bit_cast<std::uint64_t>(a.result.loss) ==
             std::bit_cast<std::uint64_t>(b.result.loss) &&
         std::memcmp(bytes(a).data(), bytes(b).data(), bytes(a).size()) == 0;
}

// BusyQueue keeps a queue of its own at work for as long as it lives.
class BusyQueue {
 public:
  explicit BusyQueue(Device& device)
      : thread_([this, &device] {
          const auto queue = device.make_queue();
          Array<float> somewhere(device, kFloats);
          while (!over_) {
            queue->zero(somewhere.data(), kFloats * sizeof(float));
            queue->wait();
            begun_ = true;
          }
        }) {
    while (!begun_) std::this_thread::yield();
  }
  ~BusyQueue() { over_ = true; }

 private:
  static constexpr std::size_t kFloats = 1u << 20;
  std::atomic<bool> begun_ = false, over_ = false;
  std::jthread thread_;
};

}  // namespace

WholeGradients::WholeGradients(const Job& job, const Model& model, const Layout& layout,
                               Device& device, std::uint32_t sequences)
    : layout_(layout),
      maker_(make_gradient_maker(job, model, layout, device, sequences)),
      here_(device.host_memory()),
      scale_(next_scale(loss_scale_rule(job), {}, false).log2) {
  if (!here_) there_ = Array<float>::exported(device, layout.elements());
}

Result<MicroBatchResult> WholeGradients::compute(std::span<const float> parameters,
                                                 const Batch& batch, std::span<float> gradient,
                                                 const std::optional<SharedPlace>& place) {
  Queue& queue = maker_->queue();
  Working working{parameters.data(), nullptr, scale_, place};
  if (!here_) {
    there_.copy_in(queue, 0, parameters);
    queue.wait();  // another process may read them
    working.parameters = there_.data();
    working.place = there_.place();
  }
  auto result = compute_once(working, batch, gradient);
  while (result && result.value().finite && maker_->scale() > 0 && !all_finite(gradient)) {
    working.scale = --scale_;
    result = compute_once(working, batch, gradient);
  }
  queue.wait();  // the caller may change the parameters now, also after an error
  return result;
}

Result<MicroBatchResult> WholeGradients::compute_once(const Working& working, const Batch& batch,
                                                      std::span<float> gradient) {
  Queue& queue = maker_->queue();
  FlatSink sink(layout_, gradient);
  PassHooks hooks;
  hooks.take = [&](PartId part, std::uint32_t use, const float* from) {
    const std::span to(sink.begin(part, use), layout_.parts()[part].elements());
    queue.copy_out(writable_bytes(to), from);
    queue.wait();
    for (float& value : to) value *= inverse_power_of_two(maker_->scale());
    sink.end(part, use);
  };
  return maker_->make(working, batch, hooks);
}

Result<FirstGradient> first_gradient(const Job& job, const Model& model, const Layout& layout,
                                     Device& device, std::span<const float> parameters,
                                     const Batch& batch, const std::optional<SharedPlace>& place) {
  WholeGradients gradients(job, model, layout, device, batch.sequences);
  const auto compute = [&]() -> Result<FirstGradient> {
    FirstGradient made;
    made.gradient.resize(layout.elements());
    STARLING_TRY(result, gradients.compute(parameters, batch, made.gradient, place));
    made.result = std::move(result);
    return made;
  };
  STARLING_TRY(first, compute());
  if (!device.has_arithmetic()) return std::move(first);
  for (const bool busy : {true, false}) {
    std::optional<BusyQueue> beside;
    if (busy) beside.emplace(device);
    STARLING_TRY(again, compute());
    if (!same_bits(first, again))
      return Error(Code::kBadInput,
                   device.name() + " computes the same gradient with other bits the next time" +
                       (busy ? ", beside other work" : "") + ": it cannot train with others");
  }
  return std::move(first);
}

Result<FirstGradient> checked_first_gradient(const Job& job, const Model& model,
                                             const Layout& layout, Device& device,
                                             std::span<const float> parameters,
                                             const Batch& batch) {
  if (!kind_of(job.model).computed_by_kernels || device.has_arithmetic())
    return first_gradient(job, model, layout, device, parameters, batch);
  STARLING_TRY(table, kernel_table(job.isa));
  const KernelCheck check(*table);
  STARLING_TRY(checked, make_model(job.model, KernelCheck::table(), job.recompute));
  if (auto frozen = model.frozen_values()) checked->set_frozen(std::move(frozen));
  STARLING_TRY(first, first_gradient(job, *checked, layout, device, parameters, batch));
  STARLING_TRY(check.held());
  first.samples = check.samples();
  return std::move(first);
}

std::vector<std::size_t> draw_zero_matrices(const Layout& layout, std::span<float> parameters) {
  std::vector<std::size_t> drawn;
  const auto is_zero = [](float x) { return std::bit_cast<std::uint32_t>(x) == 0; };
  for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
    const TensorPlace& place = layout.tensors()[t];
    const auto all =
        parameters.subspan(std::size_t{place.first_block} * kBlock, place.spec.elements());
    if (place.spec.shape.size() < 2 || !std::ranges::all_of(all, is_zero)) continue;
    drawn.push_back(t);
    for (std::size_t i = 0; i < all.size(); i += 4) {
      const auto bits = random4(/*seed=*/3, Purpose::kSyntheticData, 0, place.first_block, i);
      for (std::size_t j = 0; j < std::min<std::size_t>(4, all.size() - i); ++j)
        all[i + j] = std::ldexp(static_cast<float>(static_cast<std::int8_t>(bits[j] >> 24)), -12);
    }
  }
  return drawn;
}

}  // namespace starling::kernels
