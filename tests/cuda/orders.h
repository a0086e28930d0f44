#pragma once
// Every way in which a test runs a kernel on the imitation.

#include <doctest/doctest.h>

#include <cstdint>

#include "tests/cuda/imitation/imitation.h"

namespace starling::kernels::cuda {

struct ChosenOrder {
  imitation::Order order;
  std::uint64_t seed;
};
inline constexpr ChosenOrder kOrders[] = {{imitation::Order::kAscending, 0},
                                          {imitation::Order::kDescending, 0},
                                          {imitation::Order::kShuffled, 1},
                                          {imitation::Order::kShuffled, 2}};
// f under each; in between, nothing of the last run is left in its results.
template <class F>
void in_every_order(F f) {
  for (const ChosenOrder& chosen : kOrders) {
    CAPTURE(static_cast<int>(chosen.order));
    CAPTURE(chosen.seed);
    const imitation::OrderScope scope(chosen.order, chosen.seed);
    f();
  }
}

}  // namespace starling::kernels::cuda
