#pragma once
// Samples for a classifier, read from a safetensors file.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling {

struct ClassifiedRows {
  std::vector<float> x;         // [n, inputs], finite
  std::vector<std::int32_t> y;  // [n], in [0, classes)
};

// The file must hold x [n, inputs] F32 and y [n] I32, n >= 1; anything else is kBadInput.
Result<ClassifiedRows> read_classified(const std::string& path, std::uint32_t inputs,
                                       std::uint32_t classes);

}  // namespace starling
