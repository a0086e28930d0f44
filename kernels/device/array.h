#pragma once
// An Array is memory of a device as plain values.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "kernels/device/device.h"

namespace starling::kernels {

// Returns the bytes of values, to be written.
template <class T>
std::span<std::uint8_t> writable_bytes(std::span<T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<std::uint8_t*>(values.data()), values.size_bytes()};
}

// An Array starts as zeros. Threads: none; different threads may use different elements.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  Array(Device& device, std::size_t size)
      : memory_(device.allocate(size * sizeof(T))), size_(size) {}
  // Makes an array in memory that both the host and the device read and write.
  static Array pinned(Device& device, std::size_t size) {
    Array array;
    array.memory_ = device.pinned(size * sizeof(T));
    array.size_ = size;
    return array;
  }

  // Makes one whose elements are there only where they are backed (Device::sparse()).
  static Array sparse(Device& device, std::size_t size) {
    Array array;
    array.memory_ = device.sparse(size * sizeof(T));
    array.size_ = size;
    return array;
  }

  // Makes a pinned one that other processes can map, where the device shares memory.
  static Array shared(Device& device, std::size_t size) {
    Array array;
    array.memory_ = device.shared(size * sizeof(T));
    array.size_ = size;
    return array;
  }

  // Makes one in the device's own memory that other processes can map, where the device can.
  static Array exported(Device& device, std::size_t size) {
    Array array;
    array.memory_ = device.exported(size * sizeof(T));
    array.size_ = size;
    return array;
  }

  std::size_t size() const { return size_; }
  // Jobs and copies take this address; the host may follow it only if host().
  T* data() { return reinterpret_cast<T*>(memory_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data()); }
  bool host() const { return memory_.host(); }
  // See Memory::place().
  std::optional<SharedPlace> place() const { return memory_.place(); }

  // Requires host().
  std::span<T> all() { return part(0, size_); }
  std::span<const T> all() const { return part(0, size_); }
  std::span<T> part(std::size_t first, std::size_t n) {
    STARLING_CHECK(host() || size_ == 0);
    return std::span(data(), size_).subspan(first, n);
  }
  std::span<const T> part(std::size_t first, std::size_t n) const {
    STARLING_CHECK(host() || size_ == 0);
    return std::span(data(), size_).subspan(first, n);
  }

  void copy_in(Queue& queue, std::size_t first, std::span<const T> from) {
    STARLING_CHECK(first + from.size() <= size_);
    queue.copy_in(data() + first, as_bytes(from));
  }
  void copy_out(Queue& queue, std::size_t first, std::span<T> to) const {
    STARLING_CHECK(first + to.size() <= size_);
    queue.copy_out(writable_bytes(to), data() + first);
  }

  // See Memory::expect().
  void expect(std::size_t first, std::size_t n, bool used) {
    memory_.expect(first * sizeof(T), n * sizeof(T), used);
  }
  void prepare(std::size_t first, std::size_t n, const std::stop_token& stop) const {
    memory_.prepare(first * sizeof(T), n * sizeof(T), stop);
  }
  void back(std::size_t first, std::size_t n) { memory_.back(first * sizeof(T), n * sizeof(T)); }
  void release(std::size_t first, std::size_t n) {
    memory_.release(first * sizeof(T), n * sizeof(T));
  }

 private:
  Memory memory_;
  std::size_t size_ = 0;
};

}  // namespace starling::kernels
