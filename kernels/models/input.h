#pragma once
// Whether batches have what a network takes (ModelInput): the same on every device.

#include <cstdint>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"

namespace starling::kernels {

using Input = ModelInput;

// Errors: kBadInput  sizes do not fit `sequences`, or a token or target is out of range.
Result<> check(const Input& input, const Batch& batch, std::uint32_t sequences);

}  // namespace starling::kernels
