#pragma once
// The input of one forward and backward pass: what data sets give and models take.

#include <cstdint>
#include <vector>

namespace starling {

// Text and tokens: tokens and targets [sequences, context], row-major, targets one position later;
// x is empty. Classified samples: x [sequences, inputs], targets [sequences]; tokens is empty.
struct Batch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  std::vector<float> x;
  std::uint32_t sequences = 0;
};

}  // namespace starling
