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
#include "tests/cuda/device_array.h"
#include "tests/cuda/types.h"

namespace starling::kernels::cuda {

// How a matrix lies: `offset` elements after a 256-byte boundary, lines `ld` elements apart.
struct Lie {
  std::size_t rows, columns, ld, offset = 0;
  std::size_t size() const { return offset + (rows - 1) * ld + columns; }
};

// Memory ends with the last element. What lies before the matrix and between its lines is NaN, which
// shows in results if it is read, and must stay as it is.
class DeviceMatrix {
 public:
  DeviceMatrix(Precision type, Lie lie, std::vector<double> values)
      : type_(type), lie_(lie), values_(std::move(values)), memory_(lie.size() * bytes_of(type)) {
    REQUIRE(values_.size() == lie_.rows * lie_.columns);
    std::vector<std::uint8_t> bytes(memory_.size());
    for (std::size_t i = 0; i < lie_.size(); ++i) put(bytes, i, nothing());
    for (std::size_t r = 0; r < lie_.rows; ++r)
      for (std::size_t c = 0; c < lie_.columns; ++c) {
        const auto single = static_cast<float>(at(r, c));
        put(bytes, place(r, c), bits_of(single));
        at(r, c) = kept(type_, single);
      }
    check(cudaMemcpy(memory_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copy");
  }
  static DeviceMatrix normal(Precision type, Lie lie, std::mt19937& random) {
    std::normal_distribution<double> draw;
    std::vector<double> values(lie.rows * lie.columns);
    for (double& value : values) value = draw(random);
    return DeviceMatrix(type, lie, std::move(values));
  }
  // For a kernel to write: NaN.
  static DeviceMatrix empty(Precision type, Lie lie) {
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
        values[r * lie_.columns + c] = value_of_bits(get(bytes, place(r, c)));
      }
    std::size_t spoilt = 0;
    for (std::size_t i = 0; i < lie_.size(); ++i)
      spoilt += !inside[i] && get(bytes, i) != nothing();
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
  std::uint32_t nothing() const { return bits_of(std::bit_cast<float>(0x7fc1'2345)); }  // a NaN

  double& at(std::size_t row, std::size_t column) { return values_[row * lie_.columns + column]; }
  std::size_t place(std::size_t row, std::size_t column) const {
    return lie_.offset + row * lie_.ld + column;
  }
  // Bits of an element: the lower ones of the word.
  std::uint32_t bits_of(float value) const {
    return type_ == Precision::kFp32 ? std::bit_cast<std::uint32_t>(value) : half_of(type_, value);
  }
  float value_of_bits(std::uint32_t bits) const {
    if (type_ == Precision::kFp32) return std::bit_cast<float>(bits);
    return value_of(type_, static_cast<std::uint16_t>(bits));
  }
  void put(std::vector<std::uint8_t>& bytes, std::size_t i, std::uint32_t bits) const {
    std::memcpy(&bytes[i * bytes_of(type_)], &bits, bytes_of(type_));  // the lower bytes come first
  }
  std::uint32_t get(const std::vector<std::uint8_t>& bytes, std::size_t i) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &bytes[i * bytes_of(type_)], bytes_of(type_));
    return bits;
  }

  Precision type_;
  Lie lie_;
  std::vector<double> values_;
  DeviceArray<std::uint8_t> memory_;
};

}  // namespace starling::kernels::cuda
