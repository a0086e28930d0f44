#pragma once
// The weights that a job's adapters are beside.

#include "core/base/result.h"
#include "core/job/job.h"
#include "kernels/models/model.h"

namespace starling::actors {

// Gives them to the model of a job with adapters: mapped from their files, so that all workers of a machine have one
// copy in the kernel's memory; does nothing for another job. Reads them whole, once. Errors: kBadInput  they are
// not those of the job (LoraSpec::base), or as check_weights() has them.
Result<> open_base(const Job& job, kernels::Model& model);

}  // namespace starling::actors
