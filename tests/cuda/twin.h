#pragma once
// The same job on the host and on the plugin's device, with the same arrays: what each of them wrote has
// to have the same bits.

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/job/layout.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/queue.h"
#include "kernels/device/array.h"
#include "kernels/grid/segment_list.h"
#include "tests/cuda/orders.h"

namespace starling::kernels::cuda {

enum class In : std::uint8_t { kDevice, kPinned };

// An array in both places, alike at first.
template <class T>
class Twin {
 public:
  Twin(CudaDevice& device, std::vector<T> values, In in = In::kDevice)
      : host_(std::move(values)),
        there_(in == In::kPinned ? Array<T>::pinned(device, host_.size())
                                 : Array<T>(device, host_.size())) {
    CudaQueue queue(device);
    there_.copy_in(queue, 0, host_);
    queue.wait();
  }
  T* host() { return host_.data(); }
  T* there() { return there_.data(); }
  const std::vector<T>& values() const { return host_; }
  std::vector<T> copy(CudaDevice& device) const {
    CudaQueue queue(device);
    std::vector<T> copy(host_.size());
    there_.copy_out(queue, 0, copy);
    queue.wait();
    return copy;
  }
  // The first place where they differ, or the size.
  std::size_t difference(CudaDevice& device) const {
    const auto there = copy(device);
    std::size_t i = 0;
    while (i < host_.size() && std::memcmp(&host_[i], &there[i], sizeof(T)) == 0) ++i;
    return i;
  }

 private:
  std::vector<T> host_;
  Array<T> there_;
};

// Bits alike, NaN and signs of zeros too.
#define STARLING_CHECK_TWIN(twin, device) CHECK((twin).difference(device) == (twin).values().size())

// A layout, and segments of it in an order of the job's.
struct Place {
  std::string name;
  Layout layout;
  std::vector<SegmentId> segments;

  bool small() const { return layout.elements() < 40'000; }
  std::size_t count() const { return segments.size(); }
  std::vector<std::uint16_t> used() const {
    std::vector<std::uint16_t> used;
    for (std::uint32_t b = 0; b < layout.blocks(); ++b)
      used.push_back(static_cast<std::uint16_t>(layout.used(b)));
    return used;
  }
};

inline std::vector<SegmentId> all_segments(const Layout& layout) {
  return segment_ids({0, layout.segments()});
}

// One tensor of so many elements.
inline Place place_of(std::uint64_t elements, std::uint32_t segment_blocks) {
  Layout layout({{"a", {elements}}}, segment_blocks);
  auto segments = all_segments(layout);
  return {std::to_string(elements) + " elements", std::move(layout), std::move(segments)};
}

// Tensors of these sizes; every other segment, from the back to the front.
inline Place mixed_place(const std::vector<std::uint64_t>& sizes, std::uint32_t segment_blocks) {
  std::vector<TensorSpec> tensors;
  for (const std::uint64_t n : sizes)
    tensors.push_back({std::to_string(tensors.size()) + ".weight", {n, 1}});
  Layout layout(tensors, segment_blocks);
  std::vector<SegmentId> segments;
  for (const SegmentId s : all_segments(layout))
    if (s % 2 == 0) segments.insert(segments.begin(), s);
  return {"mixed, segments of " + std::to_string(segment_blocks), std::move(layout),
          std::move(segments)};
}

inline std::vector<Place> small_places() {
  std::vector<Place> places;
  for (const std::uint64_t n : {1, 31, 256, 257, 10'007}) places.push_back(place_of(n, 7));
  places.push_back(mixed_place({1, 255, 256, 257, 511, 512, 3, 3, 3, 10'000, 1, 4097}, 5));
  places.push_back(mixed_place({300, 300, 300, 5'000}, 33));
  return places;
}
inline std::vector<Place> places() {
  std::vector<Place> places = small_places();
  places.push_back(place_of(65'537, 64));
  places.push_back(place_of(104'729, 3));  // a prime number
  places.push_back(place_of(1u << 20, 1500));
  return places;
}

// f(place) on every place, the small ones in every order of threads.
template <class F>
void on_places(F f) {
  for (const Place& place : places()) {
    CAPTURE(place.name);
    if (place.small())
      in_every_order([&] { f(place); });
    else
      f(place);
  }
}

// ---- Values ---------------------------------------------------------------------------------------

using Random = std::mt19937_64;

inline float random_bits(Random& random) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(random()));
}
inline float finite_bits(Random& random) {
  float x = random_bits(random);
  while (!(std::fabs(x) <= 0x1.fffffep127f)) x = random_bits(random);
  return x;
}
// Roughly normal, times 2^scale.
inline float normal(Random& random, int scale = 0) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
  return static_cast<float>(std::ldexp(sum * 1.7, scale));
}
template <class T, class F>
std::vector<T> made(std::size_t n, F f) {
  std::vector<T> values(n);
  for (T& value : values) value = f();
  return values;
}

}  // namespace starling::kernels::cuda
