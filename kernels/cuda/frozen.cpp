#include "kernels/cuda/frozen.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cuda/queue.h"

namespace starling::kernels::cuda {
namespace {

constexpr float kF16Max = 65504;
constexpr std::size_t kChunk = std::size_t{1} << 22;  // elements that are copied at once

bool is_matrix(const TensorSpec& spec) {
  return spec.shape.size() > 1;
}

std::size_t room_of(const TensorSpec& spec, Precision type) {
  if (!is_matrix(spec)) return spec.elements() * sizeof(float);
  const std::size_t rows = (spec.shape[0] + 63) / 64 * 64;
  return rows * (spec.elements() / spec.shape[0]) * bytes_of(type);
}

}  // namespace

DeviceFrozen::DeviceFrozen(Device& device, Precision type, const std::vector<TensorSpec>& specs,
                           std::shared_ptr<const FrozenTensors> values)
    : type_(type), values_(std::move(values)) {
  std::size_t bytes = 0;
  for (const TensorSpec& spec : specs) {
    begins_.push_back(bytes);
    bytes += (room_of(spec, type) + 255) / 256 * 256;
  }
  memory_ = Array<std::byte>(device, bytes);
  const std::unique_ptr<Queue> queue = device.make_queue();
  const cudaStream_t stream = static_cast<CudaQueue&>(*queue).stream();
  std::vector<float> room(kChunk);
  Array<float> floats(device, type == Precision::kFp32 ? 0 : kChunk);
  for (std::size_t t = 0; t < specs.size(); ++t)
    for (std::size_t from = 0; from < specs[t].elements(); from += kChunk) {
      const std::size_t count = std::min<std::size_t>(kChunk, specs[t].elements() - from);
      const std::span read(values_->read(t, from, count, room.data()), count);
      std::byte* const to = memory_.data() + begins_[t];
      if (!is_matrix(specs[t]) || type == Precision::kFp32) {
        queue->copy_in(to + from * sizeof(float), as_bytes(read));
      } else {
        const auto large =
            std::ranges::find_if(read, [](float x) { return std::abs(x) > kF16Max; });
        if (type == Precision::kFp16 && large != read.end() && beyond_.empty())
          beyond_ = specs[t].name + " has " + std::to_string(*large) +
                    ", which precision = \"fp16\" cannot hold; \"bf16\" can; [job]";
        floats.copy_in(*queue, 0, read);
        to_halves(stream, type, count, floats.data(), reinterpret_cast<std::uint16_t*>(to) + from);
      }
      queue->wait();
    }
}

Result<> DeviceFrozen::intact() const {
  if (!beyond_.empty()) return bad_input(beyond_);
  return values_->intact();
}

}  // namespace starling::kernels::cuda
