#pragma once
// The trained model as a file: safetensors, GPT-2 with the names and the config.json that
// transformers' GPT2LMHeadModel loads.

#include <span>
#include <string>

#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

// Writes `path`, and config.json beside it for a GPT, unless another process has written it: every
// worker of a job has the same bytes, and whoever comes first writes. `parameters` is flat in the
// layout. Errors: kBadInput  the file cannot be written.
Result<> save_model(const std::string& path, const Job& job, const Layout& layout,
                    std::span<const float> parameters);

}  // namespace starling::tools
