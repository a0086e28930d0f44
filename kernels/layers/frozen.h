#pragma once
// Tensors that training leaves as they are.

#include <cstddef>
#include <cstdint>

#include "core/base/result.h"

namespace starling::kernels {

// Their values. Threads: any.
class FrozenTensors {
 public:
  virtual ~FrozenTensors() = default;
  // Returns elements [from, from + count) of a tensor, by its number in Model::frozen(): where they lie, or in `room`,
  // which has place for `count`. Tensors of one dimension never are in `room`.
  virtual const float* read(std::size_t tensor, std::uint64_t from, std::size_t count,
                            float* room) const = 0;
  // Whether all have the values that they had at first. Errors: kBadInput  another process has changed them.
  virtual Result<> intact() const = 0;
};

}  // namespace starling::kernels
