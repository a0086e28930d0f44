#pragma once
// A Window is memory of a worker that a child process maps.

#include <cstddef>
#include <optional>

#include "kernels/device/shared_pages.h"

namespace starling::actors::script {

// A child maps the caller's own memory, or a piece beside it that is copied from and to.
// Threads: one at a time.
class Window {
 public:
  // `place`: of the caller's memory; nothing if no other process can map it.
  // Throws std::bad_alloc as the standard containers do.
  kernels::SharedPlace show(const std::optional<kernels::SharedPlace>& place, std::size_t floats) {
    here_ = place.has_value();
    if (here_) return *place;
    if (!own_) own_.emplace(floats * sizeof(float));
    return own_->place();
  }
  bool here() const { return here_; }
  float* own() { return reinterpret_cast<float*>(own_->data()); }

 private:
  std::optional<kernels::SharedPages> own_;
  bool here_ = false;
};

}  // namespace starling::actors::script
