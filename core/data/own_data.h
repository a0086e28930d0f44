#pragma once
// Data that an application brings for its own model.

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/named.h"
#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"

namespace starling {

// OwnData says how many samples there are and what each is; the job decides which sample stands
// where in the training (core/data/dataset.h). Alike on every worker.
struct OwnData {
  std::uint64_t samples = 0;
  // A digest of size and content; part of the fingerprint. Zeros: samples are read and compared
  // instead, 256 before a worker joins and the others beside the training, in a fifth of a thread.
  Digest identity{};
  // Appends sample i < samples to the batch, of each kind as much as sample 0, and the same each
  // time. Any thread.
  std::function<Result<>(std::uint64_t i, Batch& batch)> append;
};

// Found by the model's name. `path`: [data] path, where this machine has the data; empty: none.
struct OwnDataSource {
  std::function<Result<OwnData>(const OwnSpec& spec, const std::string& path)> open;
};

}  // namespace starling
