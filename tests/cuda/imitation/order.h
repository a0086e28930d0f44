#pragma once
// In which order blocks of a grid and threads of a block run, and what else the environment chooses.

#include <bit>
#include <cstdint>
#include <utility>

#include "tests/cuda/imitation/imitation.h"

namespace starling::imitation {

// Whether a variable of the environment has the second of two values; it has the first one if it is not
// set, and ends the process if it has another.
bool second_chosen(const char* variable, const char* first, const char* second);

// That of launches which begin now, and its seed. Threads: any.
std::pair<Order, std::uint64_t> current_order();

// Pseudo-random numbers, for orders alone.
class Draw {
 public:
  explicit Draw(std::uint64_t seed = 0) : state_(seed) {}
  std::uint64_t operator()() {  // splitmix64: Steele, Lea, Flood, 2014, OOPSLA
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

// Every block's number once. Shuffled: first + i * stride modulo the count, which has no common factor
// with the stride.
class GridOrder {
 public:
  GridOrder() = default;
  GridOrder(Order order, std::uint64_t seed, std::uint64_t blocks);

  bool at_end() const { return left_ == 0; }
  std::uint64_t next() {
    const std::uint64_t block = next_;
    next_ += stride_;
    if (next_ >= blocks_) next_ -= blocks_;
    --left_;
    return block;
  }

 private:
  std::uint64_t blocks_ = 0, left_ = 0, next_ = 0, stride_ = 1;
};

// Which of the runnable ones is next. In order, a warp goes on until none of its lanes can; shuffled,
// any lane may come after any other.
class ThreadOrder {
 public:
  ThreadOrder() = default;
  ThreadOrder(Order order, std::uint64_t seed) : order_(order), draw_(seed) {}

  bool shuffled() const { return order_ == Order::kShuffled; }
  unsigned first_warp(unsigned warps) const { return order_ == Order::kDescending ? warps - 1 : 0; }
  // ready: not 0.
  unsigned warp(unsigned current, std::uint32_t ready) {
    if (!shuffled() && (ready >> current & 1) != 0) return current;
    return lane(ready);
  }
  unsigned lane(std::uint32_t runnable) {
    if (order_ == Order::kAscending) return static_cast<unsigned>(std::countr_zero(runnable));
    if (order_ == Order::kDescending) return 31 - static_cast<unsigned>(std::countl_zero(runnable));
    const auto turn = static_cast<int>(draw_() >> 59);
    return (static_cast<unsigned>(std::countr_zero(std::rotr(runnable, turn))) +
            static_cast<unsigned>(turn)) %
           32;
  }

 private:
  Order order_ = Order::kAscending;
  Draw draw_;
};

}  // namespace starling::imitation
