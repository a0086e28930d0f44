#pragma once
// Says how a job's precision rounds a working parameter.

#include "core/job/job.h"
#include "kernels/device/element.h"

namespace starling::kernels {

constexpr Rounding rounding_of(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return Rounding::kNone;
    case Precision::kBf16:
      return Rounding::kBf16;
    case Precision::kFp16:
      return Rounding::kFp16;
  }
  return Rounding::kNone;
}

}  // namespace starling::kernels
