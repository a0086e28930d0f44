#pragma once
// In place of the imitation's orders: a real GPU runs threads as it likes, so everything runs several times.

#include <doctest/doctest.h>

namespace starling::kernels::cuda {

template <class F>
void in_every_order(F f) {
  for (int time = 0; time < 3; ++time) {
    CAPTURE(time);
    f();
  }
}

}  // namespace starling::kernels::cuda
