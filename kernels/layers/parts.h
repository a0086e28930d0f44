#pragma once
// A pass finds parameters and leaves gradients here, part by part (core/job/layout.h).

#include <cstdint>
#include <optional>

#include "core/base/ids.h"
#include "kernels/device/shared_pages.h"

namespace starling::kernels {

// Threads: any number, each with passes of its own.
class PartSource {
 public:
  virtual ~PartSource() = default;
  // Returns the part's parameters, [elements of the part], which do not change before the
  // same thread releases it; a pass has one part at a time. Blocks until they are there.
  virtual const float* acquire(PartId part) = 0;
  virtual void release(PartId part) = 0;
  // Returns where other processes map the acquired part from. Default: nothing, they cannot.
  virtual std::optional<SharedPlace> parameters_at(PartId /*part*/) const { return std::nullopt; }
};

// A GradientSink takes the gradient of one micro-batch. Threads: that of the pass.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Returns memory for what use `use` (0 .. Part::uses - 1) gives of the part's gradient,
  // [elements of the part], with any content. One at a time: end() comes before the next begin().
  virtual float* begin(PartId part, std::uint32_t use) = 0;
  // Takes it: the pass has written all of it, padding with zeros.
  // Each use of each part comes once in a pass, in any order.
  virtual void end(PartId part, std::uint32_t use) = 0;
  // Returns where other processes map the memory of begin() from. Default: nothing, they cannot.
  virtual std::optional<SharedPlace> gradient_at(PartId /*part*/, std::uint32_t /*use*/) const {
    return std::nullopt;
  }
};

}  // namespace starling::kernels
