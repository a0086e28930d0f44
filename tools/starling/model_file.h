#pragma once
// The trained model as a file: safetensors, GPT-2 with the names and the config.json that
// transformers' GPT2LMHeadModel loads.

#include <span>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::tools {

struct Trained {
  std::span<const float> parameters;  // flat in the layout
  Digest digest{};                    // of them; goes into the file
};

// Writes `path` at once or not at all, and config.json beside it for a GPT. Every worker of a job
// has the same bytes, and whoever comes first writes: a file with this digest is left as it is. Any
// other file is another model, which is moved to PATH.old first; the line returned says so. Errors:
// kBadInput  the file cannot be written.
Result<std::string> save_model(const std::string& path, const Job& job, const Layout& layout,
                               const Trained& model);

}  // namespace starling::tools
