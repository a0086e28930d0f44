#pragma once
// probe_steps() makes a few training steps of a small fixed state: accumulators, grid,
// norm, clipping, rate, optimizer, exponents. A worker's bits rest on these and the model.

#include "core/base/ids.h"
#include "core/job/job.h"

namespace starling::kernels {

// Returns the digest of the state after these steps under the job's optimizer, and of rates and
// updates late in the job, of its local steps too. Workers with other digests would give copies of a segment other bits.
Digest probe_steps(const Job& job);

}  // namespace starling::kernels
