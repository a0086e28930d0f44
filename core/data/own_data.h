#pragma once
// Data that an application brings for its own model.

#include <cstdint>
#include <functional>

#include "core/base/named.h"
#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"

namespace starling {

// Which sample stands where in the training is the job's matter (core/data/dataset.h): this says
// how many there are and what each is. Alike on every worker.
struct OwnData {
  std::uint64_t samples = 0;
  Digest identity{};  // of size and content; part of the fingerprint
  // Appends sample i < samples to the batch. Any thread.
  std::function<Result<>(std::uint64_t i, Batch& batch)> append;
};

// By the model's name.
struct OwnDataSource {
  std::function<Result<OwnData>(const OwnSpec& spec)> open;
};

}  // namespace starling
