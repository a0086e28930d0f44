#pragma once
// A Window is memory of a worker that a child process maps.

#include <cstddef>

#include "kernels/device/shared_pages.h"

namespace starling::kernels {

// A child maps the caller's own memory, or a piece beside it that is copied from and to.
// Threads: one at a time.
class Window {
 public:
  ~Window() {
    if (own_ != nullptr) give_back_shared_pages(own_);
  }
  Window() = default;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Throws std::bad_alloc as the standard containers do.
  SharedPlace show(const float* at, std::size_t floats) {
    const std::size_t bytes = floats * sizeof(float);
    const auto place = shared_place(at, bytes);
    here_ = place.has_value();
    if (here_) return *place;
    if (own_ == nullptr) own_ = take_shared_pages(bytes);
    return *shared_place(own_, bytes);
  }
  bool here() const { return here_; }
  float* own() { return reinterpret_cast<float*>(own_); }

 private:
  std::byte* own_ = nullptr;
  bool here_ = false;
};

}  // namespace starling::kernels
