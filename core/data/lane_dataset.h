#pragma once
// Tokens in shards, read in lanes: [data] order = "lanes".

#include <memory>

#include "core/base/result.h"
#include "core/data/dataset.h"
#include "core/job/models/kind.h"

namespace starling {

// Sample i is window i % s of chunk i / s, where s windows of `input.positions` tokens are in a chunk; which is where
// follows from core/data/lanes.h. Errors: kBadInput  no index, other tokens than the model's, fewer chunks than
// micro-batches; kUnavailable  the store is away.
Result<std::unique_ptr<Dataset>> open_lanes(const Job& job, const ModelInput& input);

}  // namespace starling
