#pragma once
// make_model() makes the model of any job.

#include <memory>

#include "core/base/result.h"
#include "core/job/job.h"
#include "kernels/models/model.h"

namespace starling::actors {

// Makes a script's model (actors/script/python_model.h), which starts no process yet, or that of
// kernels::make_model(), whose first parameters may be those of files (pretrained.h). Errors: theirs.
Result<std::unique_ptr<kernels::Model>> make_model(const Job& job);

}  // namespace starling::actors
