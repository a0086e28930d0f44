#pragma once
// Little-endian bytes: a writer that grows and a reader that never runs past its end.

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/result.h"

namespace starling {

static_assert(std::endian::native == std::endian::little, "formats are written in place");

using Bytes = std::vector<std::uint8_t>;
using ByteView = std::span<const std::uint8_t>;
// Immutable and shared: what actors, queues and threads pass to each other.
using SharedBytes = std::shared_ptr<const Bytes>;

inline SharedBytes share(Bytes bytes) {
  return std::make_shared<const Bytes>(std::move(bytes));
}

template <class T>
ByteView as_bytes(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

class ByteWriter {
 public:
  ByteWriter() = default;
  // Reserves so many bytes, so that a large result is not copied as it grows.
  explicit ByteWriter(std::size_t bytes) { bytes_.reserve(bytes); }
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void put_bytes(ByteView view) { bytes_.insert(bytes_.end(), view.begin(), view.end()); }
  // A length (u32) and the bytes.
  void put_sized(ByteView view) {
    put(static_cast<std::uint32_t>(view.size()));
    put_bytes(view);
  }
  void put_text(const std::string& text) {
    put_sized({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  }
  std::size_t size() const { return bytes_.size(); }
  Bytes take() && { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

// Reads what ByteWriter wrote. After the first read past the end every read gives zero and
// `good()` is false: check it once at the end.
class ByteReader {
 public:
  explicit ByteReader(ByteView view) : rest_(view) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (rest_.size() < sizeof(T)) {
      fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  ByteView get_bytes(std::size_t n) {
    if (rest_.size() < n) {
      fail();
      return {};
    }
    auto view = rest_.first(n);
    rest_ = rest_.subspan(n);
    return view;
  }
  ByteView get_sized() { return get_bytes(get<std::uint32_t>()); }
  std::string get_text() {
    auto view = get_sized();
    return {view.begin(), view.end()};
  }
  std::size_t remaining() const { return rest_.size(); }
  bool good() const { return good_; }
  bool done() const { return good_ && rest_.empty(); }

 private:
  void fail() {
    good_ = false;
    rest_ = {};
  }
  ByteView rest_;
  bool good_ = true;
};

}  // namespace starling
