#pragma once
// A sample of tokens: `context` of them, each with the next one as its target.

#include "core/data/batch.h"
#include "core/data/token_file.h"

namespace starling {

// Appends the sample that these tokens are: context + 1 of them, or `context` where no token follows the last, which has
// no target then.
inline void append_window(const TokenFile& tokens, std::size_t context, Batch& batch) {
  const std::uint64_t there = tokens.size();
  for (std::size_t t = 0; t < context; ++t) {
    batch.tokens.push_back(static_cast<std::int32_t>(tokens[t]));
    const bool learned = t + 1 < there && tokens.is_learned(t + 1);
    batch.targets.push_back(learned ? static_cast<std::int32_t>(tokens[t + 1]) : kNotATarget);
  }
}

}  // namespace starling
