#pragma once
// A Likeness is what the first process of a script was like; every other one must be like it.

#include <optional>
#include <string>
#include <vector>

#include "actors/script/child.h"
#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::actors::script {

// Identity has digests of the script's data, and of the texts of all modules
// beside it that were imported when the first micro-batch was computed.
struct Identity {
  Digest data{}, text{};
};

// Threads: any, once begin_with() was called.
class Likeness {
 public:
  Likeness(PythonSpec spec, std::vector<TensorSpec> tensors)
      : spec_(std::move(spec)), tensors_(std::move(tensors)) {}

  // Sets micro-batch 0 of step 0, whose gradient is compared as well. Call it before processes start.
  void begin_with(const Batch& first, std::uint32_t local_steps) {
    first_ = first;
    local_steps_ = local_steps;
  }
  // Compares a new process with the job and with the first process, which it is if there was none.
  // Errors: kBadInput  the process is not like them; those of ask().
  Result<> check(PythonChild& child, std::chrono::milliseconds patience);

  // Returns the request with which a process is greeted.
  Bytes hello() const;
  // These are zeros and an empty text before the first process was checked.
  Identity identity() const;
  std::string versions() const;

 private:
  Result<> greet(PythonChild& child, std::chrono::milliseconds patience);
  Result<> prove(PythonChild& child, std::chrono::milliseconds patience);
  Error unlike(const std::string& what, const Digest& before, const Digest& now,
               const std::string& rule) const;

  const PythonSpec spec_;
  const std::vector<TensorSpec> tensors_;
  Batch first_;
  std::uint32_t local_steps_ = 0;
  mutable Mutex mutex_;
  std::string versions_ STARLING_GUARDED_BY(mutex_);
  Identity identity_ STARLING_GUARDED_BY(mutex_);
  std::optional<Digest> proof_ STARLING_GUARDED_BY(mutex_);  // of the first gradient
};

}  // namespace starling::actors::script
