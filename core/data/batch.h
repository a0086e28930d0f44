#pragma once
// The input of one forward and backward pass: what data sets give and models take.

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling {

// A DrawKey is what the random numbers of a pass are drawn from (core/base/philox.h).
struct DrawKey {
  std::uint64_t seed = 0, step = 0;
  MicroBatch micro_batch = 0;
  bool operator==(const DrawKey&) const = default;
};

// The target of a position of which no loss is computed.
inline constexpr std::int32_t kNotATarget = -1;

// Text and tokens: tokens and targets [sequences, context], row-major, targets one position later, of which some
// may be kNotATarget, but not all of a sequence; x is empty. Classified samples: x [sequences, inputs],
// targets [sequences]; tokens is empty.
// For a synthetic model all three are empty, and for a model of a script, which has its data itself:
// that takes the numbers of the samples.
struct Batch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  std::vector<float> x;
  std::uint32_t sequences = 0;
  DrawKey draw{};
  std::vector<std::uint64_t> samples;  // [sequences]; of data that is only numbered
  bool held_out = false;               // no gradient is wanted; of a script's held-out data
};

// Returns part i of so many equal ones, each a batch whose random numbers are its own. Errors: kBadInput  the batch has not
// so many equal parts.
Result<Batch> part_of(const Batch& batch, std::uint32_t i, std::uint32_t parts);

}  // namespace starling
