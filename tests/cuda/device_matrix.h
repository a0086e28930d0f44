#pragma once
// A matrix on the device for tests, with its values in double beside it.

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/layers.h"
#include "kernels/device/element.h"
#include "tests/cuda/device_array.h"

namespace starling::kernels::cuda {

// Largest relative error of a value that is rounded to the type.
constexpr double rounding(Type type) {
  return type == Type::kF32 ? 0x1p-24 : 0x1p-8;
}

// How a matrix lies: `offset` elements after a 256-byte boundary, lines `ld` elements apart.
struct Lie {
  std::size_t rows, columns, ld, offset = 0;
  std::size_t size() const { return offset + (rows - 1) * ld + columns; }
};

// Memory ends with the last element. What lies before the matrix and between its lines is NaN, which
// shows in results if it is read, and must stay as it is.
class DeviceMatrix {
 public:
  DeviceMatrix(Type type, Lie lie, std::vector<double> values)
      : type_(type), lie_(lie), values_(std::move(values)), memory_(lie.size() * bytes_of(type)) {
    REQUIRE(values_.size() == lie_.rows * lie_.columns);
    std::vector<std::uint8_t> bytes(memory_.size());
    for (std::size_t i = 0; i < lie_.size(); ++i) put(bytes, i, kNothing);
    for (std::size_t r = 0; r < lie_.rows; ++r)
      for (std::size_t c = 0; c < lie_.columns; ++c) {
        const auto single = static_cast<float>(at(r, c));
        put(bytes, place(r, c), std::bit_cast<std::uint32_t>(single));
        at(r, c) = type_ == Type::kF32 ? single : rounded_to_bf16(single);
      }
    check(cudaMemcpy(memory_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copy");
  }
  static DeviceMatrix normal(Type type, Lie lie, std::mt19937& random) {
    std::normal_distribution<double> draw;
    std::vector<double> values(lie.rows * lie.columns);
    for (double& value : values) value = draw(random);
    return DeviceMatrix(type, lie, std::move(values));
  }
  // For a kernel to write: NaN.
  static DeviceMatrix empty(Type type, Lie lie) {
    return DeviceMatrix(type, lie, std::vector<double>(lie.rows * lie.columns, std::nan("")));
  }

  void* data() const { return memory_.data() + lie_.offset * bytes_of(type_); }
  std::uint32_t ld() const { return static_cast<std::uint32_t>(lie_.ld); }
  // As it was put there, rounded to the type.
  double operator()(std::size_t row, std::size_t column) const {
    return values_[row * lie_.columns + column];
  }

  // As it is on the device now. Nothing but the matrix was written.
  std::vector<double> read() const {
    const std::vector<std::uint8_t> bytes = memory_.host();
    std::vector<double> values(lie_.rows * lie_.columns);
    std::vector<bool> inside(lie_.size());
    for (std::size_t r = 0; r < lie_.rows; ++r)
      for (std::size_t c = 0; c < lie_.columns; ++c) {
        inside[place(r, c)] = true;
        values[r * lie_.columns + c] = std::bit_cast<float>(get(bytes, place(r, c)));
      }
    std::size_t spoilt = 0;
    for (std::size_t i = 0; i < lie_.size(); ++i)
      spoilt +=
          !inside[i] && get(bytes, i) != (type_ == Type::kF32 ? kNothing : kNothing >> 16 << 16);
    CHECK(spoilt == 0);
    return values;
  }
  // Bits of the matrix alone, line by line.
  std::vector<std::uint32_t> bits() const {
    const std::vector<std::uint8_t> bytes = memory_.host();
    std::vector<std::uint32_t> bits;
    for (std::size_t r = 0; r < lie_.rows; ++r)
      for (std::size_t c = 0; c < lie_.columns; ++c) bits.push_back(get(bytes, place(r, c)));
    return bits;
  }

 private:
  static constexpr std::uint32_t kNothing = 0x7fc1'2345;  // a NaN in both types

  double& at(std::size_t row, std::size_t column) { return values_[row * lie_.columns + column]; }
  std::size_t place(std::size_t row, std::size_t column) const {
    return lie_.offset + row * lie_.ld + column;
  }
  // Elements as the bits of a float.
  void put(std::vector<std::uint8_t>& bytes, std::size_t i, std::uint32_t bits) const {
    const std::uint16_t half = kernels::to_bf16(std::bit_cast<float>(bits));
    const void* const from = type_ == Type::kF32 ? static_cast<const void*>(&bits) : &half;
    std::memcpy(&bytes[i * bytes_of(type_)], from, bytes_of(type_));
  }
  std::uint32_t get(const std::vector<std::uint8_t>& bytes, std::size_t i) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &bytes[i * bytes_of(type_)], bytes_of(type_));
    return type_ == Type::kF32 ? bits : bits << 16;
  }

  Type type_;
  Lie lie_;
  std::vector<double> values_;
  DeviceArray<std::uint8_t> memory_;
};

}  // namespace starling::kernels::cuda
