#pragma once
// A few steps of a small fixed state, as training makes them: accumulators, grid, norm, clipping,
// learning rate, optimizer, exponents. What a worker's bits rest on besides the model.

#include "core/base/ids.h"
#include "core/job/job.h"

namespace starling::kernels {

// Of the state after these steps under the job's optimizer, and of learning rates and updates late
// in the job. Workers whose digests differ would give copies of one segment different bits.
Digest probe_steps(const Job& job);

}  // namespace starling::kernels
