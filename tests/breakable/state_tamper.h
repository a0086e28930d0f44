#pragma once
// Changes a State behind its back, as broken memory or a broken processor would.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "core/base/check.h"
#include "kernels/grid/state.h"

namespace starling::kernels {

struct StateTamper {
  // A bit of the first moment of a held segment, or of its first working parameter.
  static void flip_held_bit(State& state, SegmentId segment) {
    STARLING_CHECK(state.holds(segment));
    flip(state.first_.data()[state.span_of(segment).first()], kLowBit);
  }
  static void flip_parameter_bit(State& state, SegmentId segment) {
    flip(state.parameters_.data()[state.span_of(segment).first()], kLowBit);
  }

  // Another first weight, as if it had been computed so: intact, but no longer what other holders
  // have. The highest bit of the mantissa: no rounding of later steps makes up for it.
  static void miscompute_held(State& state, SegmentId segment) {
    STARLING_CHECK(state.label(segment) != kNoVersion);
    flip(state.weights_.data()[state.span_of(segment).first()], kHighBit);
    state.checksums_[segment] = state.checksum(segment);
  }
  // The same of all segments held at this version that are not `owned`.
  static void miscompute_replicas(State& state, std::span<const SegmentId> owned, Version version) {
    for (SegmentId s = 0; s < state.layout_.segments(); ++s)
      if (state.label(s) == version && std::ranges::find(owned, s) == owned.end())
        miscompute_held(state, s);
  }

 private:
  static constexpr std::uint32_t kLowBit = 1, kHighBit = 1u << 22;

  static void flip(float& value, std::uint32_t bit) {
    value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ bit);
  }
};

}  // namespace starling::kernels
