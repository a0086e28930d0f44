#pragma once
// Reading is how far the processes of a script have read its data beside passes, batch by batch, and
// the sum of the batches' digests. Of the time of passes one part in five is for reading until that was
// two seconds, in which small data are read whole, and one part in fifty after that.
//
// Threads: none; the bridge locks.

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/hash.h"
#include "kernels/bridge/python_model.h"

namespace starling::kernels {

class Reading {
 public:
  using Duration = std::chrono::steady_clock::duration;

  explicit Reading(std::uint64_t batches) : batches_(batches) {}

  const PythonModel::DataRead& told() const { return told_; }
  // Notes how long a pass took.
  void passed(Duration pass) { left_ += pass / (all_ < kFirst ? kFirstPart : kPart); }
  // Returns the batch to read now. `paced`: only if passes have taken long enough for it.
  std::optional<std::uint64_t> next(bool paced) {
    if (told_.over || (paced && left_ < took_)) return std::nullopt;
    if (next_ < batches_) return next_++;
    if (failed_.empty() || tries_ == kTries) return std::nullopt;
    ++tries_;
    const std::uint64_t batch = failed_.back();
    failed_.pop_back();
    return batch;
  }
  // Notes that `digest` is what was read of a batch.
  void read(const Digest& digest, Duration took, bool paced = true) {
    spent(took, paced);
    if (told_.over) return;
    sum_ = sum_ + digest;
    told_.over = ++done_ == batches_;
    if (told_.over) told_.digest = sum_;
  }
  // Notes that these data cannot be compared beyond what they say of themselves.
  void cannot_be_compared() { told_.over = true; }
  // Notes that a batch could not be read. It is read again when all others are, and not for ever:
  // data of which a sample cannot be read are never known.
  void failed(std::uint64_t batch, Duration took, bool paced = true) {
    spent(took, paced);
    failed_.push_back(batch);
  }

 private:
  void spent(Duration took, bool paced) {
    took_ = took;
    if (!paced) return;
    all_ += took;
    left_ -= took;
  }

  static constexpr std::size_t kTries = 100;  // of all batches that failed
  static constexpr int kFirstPart = 5, kPart = 50;
  static constexpr Duration kFirst = std::chrono::seconds(2);

  const std::uint64_t batches_;
  std::uint64_t next_ = 0, done_ = 0;
  std::vector<std::uint64_t> failed_;
  std::size_t tries_ = 0;
  Duration left_{};          // of the time that reading may take
  Duration took_{}, all_{};  // the last batch, and all that were read beside passes
  Digest sum_{};
  PythonModel::DataRead told_;
};

}  // namespace starling::kernels
