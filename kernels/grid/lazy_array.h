#pragma once
// Zeroed arrays over the whole layout that cost memory only where they are touched.
//
// State and totals are indexed by the flat index of core/job/layout.h on every worker, although a
// worker holds only some segments: what it does not hold is address space, not memory.

#include <cstddef>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace starling::kernels {

// Anonymous memory from the kernel, huge pages advised from 2 MiB on. Starts as zeros.
class LazyPages {
 public:
  explicit LazyPages(std::size_t bytes);  // throws std::bad_alloc as the standard containers do
  ~LazyPages();
  LazyPages(LazyPages&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  LazyPages& operator=(LazyPages&&) = delete;

  std::byte* data() const { return data_; }
  // Has the kernel find the memory of [offset, offset + count) now, by and by, and not when it is
  // first written. Changes no byte: any thread may ask while others read and write. Ends early once
  // `stop` is asked for; advice only, without effect before Linux 5.14.
  void prepare(std::size_t offset, std::size_t count, const std::stop_token& stop) const;
  // Makes [offset, offset + count) zeros and gives whole pages inside it back to the kernel.
  void release(std::size_t offset, std::size_t count);

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Threads: none; different elements may be used by different threads.
template <class T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit LazyArray(std::size_t size) : pages_(size * sizeof(T)), size_(size) {}

  std::size_t size() const { return size_; }
  T* data() { return reinterpret_cast<T*>(pages_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(pages_.data()); }
  std::span<T> all() { return {data(), size_}; }
  std::span<const T> all() const { return {data(), size_}; }
  std::span<T> part(std::size_t first, std::size_t n) { return all().subspan(first, n); }
  std::span<const T> part(std::size_t first, std::size_t n) const {
    return all().subspan(first, n);
  }
  void prepare(std::size_t first, std::size_t n, const std::stop_token& stop) const {
    pages_.prepare(first * sizeof(T), n * sizeof(T), stop);
  }
  void release(std::size_t first, std::size_t n) {
    pages_.release(first * sizeof(T), n * sizeof(T));
  }

 private:
  LazyPages pages_;
  std::size_t size_;
};

}  // namespace starling::kernels
