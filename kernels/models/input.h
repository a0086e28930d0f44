#pragma once
// A network's Input says what its batches must have: the same on every device.

#include <cstddef>
#include <cstdint>

#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"

namespace starling::kernels {

struct Input {
  std::size_t positions = 1;    // rows per sequence
  std::size_t features = 0;     // of x; 0: tokens
  std::int64_t vocabulary = 0;  // tokens are below it
  std::int64_t classes = 0;     // targets are below it
};
Input input_of(const GptSpec& spec);
Input input_of(const MlpSpec& spec);

// Errors: kBadInput  sizes do not fit `sequences`, or a token or target is out of range.
Result<> check(const Input& input, const Batch& batch, std::uint32_t sequences);

}  // namespace starling::kernels
