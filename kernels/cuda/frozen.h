#pragma once
// Tensors that training leaves as they are, in the memory of a device.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/job/layout.h"
#include "kernels/cuda/layers.h"
#include "kernels/device/array.h"
#include "kernels/layers/frozen.h"

namespace starling::kernels::cuda {

// Vectors are floats, matrices of the type of activations. Behind a matrix lie zeros to whole 64 rows, so that products
// may take whole 128 bytes of a row of results. Const after construction: makers of a device share one. Threads: any.
class DeviceFrozen {
 public:
  DeviceFrozen(Device& device, Precision type, const std::vector<TensorSpec>& specs,
               std::shared_ptr<const FrozenTensors> values);

  // tensor: by its number in Model::frozen().
  const void* at(std::size_t tensor) const { return memory_.data() + begins_[tensor]; }
  // As FrozenTensors::intact(): also of what is copied here, as other workers read the same file. Errors: as there;
  // kBadInput  fp16 cannot hold a number of a matrix.
  Result<> intact() const;

  bool is_of(const FrozenTensors* values, Precision type) const {
    return values_.get() == values && type_ == type;
  }

 private:
  const Precision type_;
  const std::shared_ptr<const FrozenTensors> values_;
  std::vector<std::size_t> begins_;  // bytes
  std::string beyond_;               // says what fp16 cannot hold
  Array<std::byte> memory_;
};

}  // namespace starling::kernels::cuda
