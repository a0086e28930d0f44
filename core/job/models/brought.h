#pragma once
// What sections of models have alike that a script or an application brings.

#include <cstdint>
#include <string>
#include <vector>

#include "core/job/models/kind.h"

namespace starling::job_words {

inline constexpr std::uint64_t kSamplesMax = 1ull << 48;

// Errors are noted in the section.
std::vector<std::string> read_tensors(Section& s, bool required);
std::vector<std::string> read_metrics(Section& s);

}  // namespace starling::job_words
