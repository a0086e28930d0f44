#pragma once
// Whether batches have what a network takes (ModelInput): the same on every device.

#include <cstdint>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"

namespace starling::kernels {

using Input = ModelInput;

// Errors: kBadInput  sizes do not fit `sequences`, a token or target is out of range, or no target is there.
Result<> check(const Input& input, const Batch& batch, std::uint32_t sequences);

// The targets of a batch, without kNotATarget: the mean of a loss is over so many.
std::uint32_t targets_in(const Batch& batch);

}  // namespace starling::kernels
