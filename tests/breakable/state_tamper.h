#pragma once
// Changes a State or Accumulators behind their back, as broken memory or a broken processor would.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"

namespace starling::kernels {

struct StateTamper {
  static constexpr std::uint32_t kLowBit = 1, kHighBit = 1u << 22;

  // A bit of the first moment of a held segment, or of its first working parameter.
  static void flip_held_bit(State& state, SegmentId segment) {
    STARLING_CHECK(state.holds(segment));
    flip(*state.queue_, state.first_, state.span_of(segment).first(), kLowBit);
  }
  static void flip_parameter_bit(State& state, SegmentId segment, std::uint32_t bit = kLowBit) {
    flip(*state.queue_, state.parameters_, state.span_of(segment).first(), bit);
  }

  static void flip_exponent_bit(State& state, SegmentId segment) {
    const std::size_t at = state.span_of(segment).first_block;
    std::int16_t exponent;
    state.held_exponents_.copy_out(*state.queue_, at, {&exponent, 1});
    state.queue_->wait();
    exponent ^= 1;
    state.held_exponents_.copy_in(*state.queue_, at, {&exponent, 1});
    state.queue_->wait();
  }

  static void flip_sum_bit(Accumulators& accumulators, std::uint64_t element, std::uint32_t bit) {
    flip(*accumulators.queue_, accumulators.sums_, element, bit);
  }

  // Another first weight, as if it had been computed so: intact, but no longer what other holders
  // have. The highest bit of the mantissa: no rounding of later steps makes up for it.
  static void miscompute_held(State& state, SegmentId segment) {
    STARLING_CHECK(state.label(segment) != kNoVersion);
    flip(*state.queue_, state.weights_, state.span_of(segment).first(), kHighBit);
    state.seal({&segment, 1});
  }
  // The same of all segments held at this version that are not `owned`.
  static void miscompute_replicas(State& state, std::span<const SegmentId> owned, Version version) {
    for (SegmentId s = 0; s < state.layout_.segments(); ++s)
      if (state.label(s) == version && std::ranges::find(owned, s) == owned.end())
        miscompute_held(state, s);
  }

 private:
  template <class T>
  static void flip(Queue& queue, Array<T>& array, std::uint64_t at, std::uint32_t bit) {
    T value;
    array.copy_out(queue, at, {&value, 1});
    queue.wait();
    value = std::bit_cast<T>(std::bit_cast<std::uint32_t>(value) ^ bit);
    array.copy_in(queue, at, {&value, 1});
    queue.wait();
  }
};

}  // namespace starling::kernels
