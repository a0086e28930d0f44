#pragma once
// Makes the update of elements that a job's formula says (core/job/formula.h).

#include "core/job/formula.h"
#include "kernels/optim/own.h"

namespace starling::kernels {

OwnOptimizer optimizer_of(Formula formula);

}  // namespace starling::kernels
