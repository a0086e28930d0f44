#include "kernels/models/first_gradient.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <thread>

#include "kernels/device/array.h"
#include "kernels/models/flat.h"

namespace starling::kernels {
namespace {

Result<FirstGradient> compute(GradientMaker& maker, const Layout& layout, const float* parameters,
                              const Batch& batch) {
  FirstGradient first;
  first.gradient.resize(layout.elements());
  FlatSink sink(layout, first.gradient);
  PassHooks hooks;
  hooks.take = [&](PartId part, std::uint32_t use, const float* gradient) {
    float* const to = sink.begin(part, use);
    maker.queue().copy_out(writable_bytes(std::span(to, layout.parts()[part].elements())),
                           gradient);
    maker.queue().wait();
    sink.end(part, use);
  };
  STARLING_TRY(result, maker.make({parameters, nullptr}, batch, hooks));
  first.result = std::move(result);
  return first;
}

bool same_bits(const FirstGradient& a, const FirstGradient& b) {
  const auto bytes = [](const FirstGradient& f) {
    return as_bytes(std::span<const float>(f.gradient));
  };
  return std::bit_cast<std::uint64_t>(a.result.loss) ==
             std::bit_cast<std::uint64_t>(b.result.loss) &&
         std::memcmp(bytes(a).data(), bytes(b).data(), bytes(a).size()) == 0;
}

// Work on a queue of its own, for as long as this lives.
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

Result<FirstGradient> first_gradient(const Job& job, const Model& model, const Layout& layout,
                                     Device& device, std::span<const float> here,
                                     const Batch& batch) {
  const auto maker = make_gradient_maker(job, model, layout, device, batch.sequences);
  Array<float> there;
  const float* parameters = here.data();
  if (!device.host_memory()) {
    there = Array<float>(device, here.size());
    there.copy_in(maker->queue(), 0, here);
    maker->queue().wait();
    parameters = there.data();
  }
  STARLING_TRY(first, compute(*maker, layout, parameters, batch));
  if (!device.has_arithmetic()) return std::move(first);
  for (const bool busy : {true, false}) {
    std::optional<BusyQueue> beside;
    if (busy) beside.emplace(device);
    STARLING_TRY(again, compute(*maker, layout, parameters, batch));
    if (!same_bits(first, again))
      return Error(Code::kBadInput,
                   device.name() + " computes the same gradient with other bits the next time" +
                       (busy ? ", beside other work" : "") + ": it cannot train with others");
  }
  return std::move(first);
}

}  // namespace starling::kernels
