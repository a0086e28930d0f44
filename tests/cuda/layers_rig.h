#pragma once
// What tests of the layers' kernels have in common: arrays on the device between canaries, and the promise
// that bits depend neither on the order in which threads run nor on where arrays lie.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/layers.h"
#include "tests/cuda/orders.h"
#include "tests/cuda/types.h"

namespace starling::kernels::cuda {

using Floats = std::vector<float>;

inline Floats normal(std::size_t n, unsigned seed, float scale = 1, float mean = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(mean, scale);
  Floats values(n);
  for (float& v : values) v = draw(random);
  return values;
}
// What remains of values in an array of the type.
inline Floats kept(Precision type, Floats values) {
  for (float& v : values) v = kept(type, v);
  return values;
}

// An array as it was read from the device.
struct Output {
  std::vector<std::uint8_t> bytes;

  template <class T>
  std::vector<T> as() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  Floats as(Precision type) const {
    if (type == Precision::kFp32) return as<float>();
    Floats values;
    for (const std::uint16_t half : as<std::uint16_t>()) values.push_back(value_of(type, half));
    return values;
  }
  bool operator==(const Output&) const = default;
};

// A stream, and the arrays of the calls that a test makes on it. Each begins `shift` elements after a
// 128-byte boundary; with `tight`, memory ends with the array, and a sanitizer sees what is read behind
// it.
class Calls {
 public:
  Calls(std::size_t shift, bool tight) : shift_(shift), tight_(tight) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  }
  ~Calls() {
    for (const Array& array : arrays_) check(cudaFree(array.memory), "memory");
    check(cudaStreamDestroy(stream), "a stream");
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  template <class T>
  T* in(const std::vector<T>& values) {
    return static_cast<T*>(take(values.data(), sizeof(T), values.size(), false));
  }
  void* in(Precision type, const Floats& values) { return typed(type, values, false); }
  // Arrays that outputs() gives back, in this order.
  template <class T>
  T* out(std::size_t n) {
    return static_cast<T*>(take(nullptr, sizeof(T), n, true));
  }
  void* out(Precision type, std::size_t n) { return take(nullptr, bytes_of(type), n, true); }
  void* in_out(Precision type, const Floats& values) { return typed(type, values, true); }
  // Nobody looks at what is in it afterwards.
  float* scratch(std::size_t n) { return static_cast<float*>(take(nullptr, 4, n, false)); }

  // Waits for the calls; nothing around the arrays may have been written.
  std::vector<Output> outputs() {
    std::vector<Output> outputs;
    for (const Array& array : arrays_) {
      std::vector<std::uint8_t> all(array.all);
      check(cudaMemcpyAsync(all.data(), array.memory, all.size(), cudaMemcpyDeviceToHost, stream),
            "a copy");
      check(cudaStreamSynchronize(stream), "a copy");
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(array.begin);
      const auto end = begin + static_cast<std::ptrdiff_t>(array.bytes);
      const auto canary = [](std::uint8_t byte) { return byte == kCanary; };
      REQUIRE(std::all_of(all.begin(), begin, canary));
      REQUIRE(std::all_of(end, all.end(), canary));
      if (array.out) outputs.push_back({{begin, end}});
    }
    return outputs;
  }

  cudaStream_t stream = nullptr;

 private:
  struct Array {
    std::uint8_t* memory;
    std::size_t begin, bytes, all;
    bool out;
  };
  static constexpr std::size_t kMargin = 128;
  static constexpr std::uint8_t kCanary = 0xA5;

  void* typed(Precision type, const Floats& values, bool out) {
    if (type == Precision::kFp32) return take(values.data(), 4, values.size(), out);
    std::vector<std::uint16_t> halves;
    for (const float value : values) halves.push_back(half_of(type, value));
    return take(halves.data(), 2, halves.size(), out);
  }
  void* take(const void* from, std::size_t element, std::size_t n, bool out) {
    Array array{nullptr, kMargin + shift_ * element, n * element, 0, out};
    array.all = array.begin + array.bytes + (tight_ ? 0 : kMargin);
    check(cudaMalloc(reinterpret_cast<void**>(&array.memory), array.all), "memory");
    check(cudaMemsetAsync(array.memory, kCanary, array.all, stream), "memory");
    std::uint8_t* const begin = array.memory + array.begin;
    if (from && n > 0)
      check(cudaMemcpyAsync(begin, from, array.bytes, cudaMemcpyHostToDevice, stream), "a copy");
    check(cudaStreamSynchronize(stream), "a copy");
    arrays_.push_back(array);
    return begin;
  }

  const std::size_t shift_;
  const bool tight_;
  std::vector<Array> arrays_;
};

// The outputs of `calls`, which are the same bits in each order of threads and at every address.
inline std::vector<Output> outputs_of(const std::function<void(Calls&)>& calls) {
  std::vector<Output> first;
  const auto run = [&](std::size_t shift, bool tight) {
    Calls made(shift, tight);
    calls(made);
    auto outputs = made.outputs();
    if (first.empty()) first = outputs;
    REQUIRE(outputs == first);
  };
  in_every_order([&] { run(0, false); });
  run(0, true);
  run(1, false);
  run(3, true);
  return first;
}

// How far values may be from those that double arithmetic gives: absolute + relative |want|, and what
// rounding to the type costs.
struct Tolerance {
  double absolute, relative = 0;

  Tolerance of(Precision type) const {
    if (type == Precision::kFp32) return *this;
    return {absolute + underflow(type), relative + rounding(type)};
  }
};
// The largest difference in units of what is allowed: at most 1.
template <class Want>
double off(const Floats& got, const std::vector<Want>& want, Tolerance allowed) {
  REQUIRE(got.size() == want.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double expected = static_cast<double>(want[i]);
    const double difference = std::fabs(static_cast<double>(got[i]) - expected) /
                              (allowed.absolute + allowed.relative * std::fabs(expected));
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

}  // namespace starling::kernels::cuda
