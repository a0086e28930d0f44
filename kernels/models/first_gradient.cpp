#include "kernels/models/first_gradient.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "core/base/hash.h"
#include "core/base/philox.h"
#include "core/job/models/table.h"
#include "kernels/cpu/kernel_check.h"
#include "kernels/device/array.h"
#include "kernels/grid/quantise.h"
#include "kernels/models/flat.h"

namespace starling::kernels {
namespace {

// Returns a digest of the loss and the gradient, so that no second gradient is kept.
Digest bits_of(const FirstGradient& made) {
  ByteWriter loss;
  loss.put(std::bit_cast<std::uint64_t>(made.result.loss));
  return hash128(std::move(loss).take()) + hash128(as_bytes(std::span<const float>(made.gradient)));
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

// Computes into `made`, and keeps the shortest time of those so far.
Result<> compute_into(FirstGradient& made, WholeGradients& gradients,
                      std::span<const float> parameters, const Batch& batch,
                      const std::optional<SharedPlace>& place) {
  const auto began = std::chrono::steady_clock::now();
  STARLING_TRY(result, gradients.compute(parameters, batch, made.gradient, place));
  const auto took = static_cast<std::uint64_t>((std::chrono::steady_clock::now() - began).count());
  made.took_ns = made.took_ns == 0 ? took : std::min(made.took_ns, took);
  made.result = std::move(result);
  return ok();
}

// Computes `made` twice more. Errors: as first_gradient().
Result<> repeat(FirstGradient& made, WholeGradients& gradients, Device& device,
                std::span<const float> parameters, const Batch& batch,
                const std::optional<SharedPlace>& place) {
  const Digest first = bits_of(made);
  for (const bool busy : {true, false}) {
    std::optional<BusyQueue> beside;
    if (busy && device.has_arithmetic()) beside.emplace(device);
    STARLING_TRY(compute_into(made, gradients, parameters, batch, place));
    if (bits_of(made) == first) continue;
    if (!device.has_arithmetic())
      return Error(Code::kBadInput,
                   "this machine computes the same gradient with other bits the next time: its "
                   "memory or a processor is faulty, and it cannot train with others");
    return Error(Code::kBadInput,
                 device.name() + " computes the same gradient with other bits the next time" +
                     (busy ? ", beside other work" : "") + ": it cannot train with others");
  }
  return ok();
}

bool repeats_itself(const Job& job, const Device& device) {
  return device.has_arithmetic() || !kind_of(job.model).may_keep_state;
}

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
  FirstGradient made;
  made.gradient.resize(layout.elements());
  STARLING_TRY(compute_into(made, gradients, parameters, batch, place));
  if (repeats_itself(job, device)) {
    STARLING_TRY(repeat(made, gradients, device, parameters, batch, place));
  }
  return made;
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
  FirstGradient made;
  made.gradient.resize(layout.elements());
  {
    WholeGradients gradients(job, *checked, layout, device, batch.sequences);
    STARLING_TRY(compute_into(made, gradients, parameters, batch, {}));
  }
  STARLING_TRY(check.held());
  made.samples = check.samples();
  made.took_ns = 0;  // the samples have taken time, too
  WholeGradients gradients(job, model, layout, device, batch.sequences);
  STARLING_TRY(repeat(made, gradients, device, parameters, batch, {}));
  return made;
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
