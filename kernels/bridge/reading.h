#pragma once
// Reading is how far the processes of a script have read its data beside passes, batch by batch, and
// the sum of the batches' digests. Of the time of passes one part in five is for reading until that was
// two seconds, in which small data are read whole, and one part in fifty after that.
//
// Threads: none; the bridge locks.

#include <chrono>
#include <cstdint>
#include <optional>

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
    if (told_.over || next_ == batches_ || (paced && left_ < took_)) return std::nullopt;
    return next_++;
  }
  // Takes a batch's digest; nothing: the data cannot be compared.
  void read(const std::optional<Digest>& digest, Duration took) {
    took_ = took;
    all_ += took;
    left_ -= took;
    if (told_.over) return;
    told_.over = !digest || ++done_ == batches_;
    if (digest) sum_ = sum_ + *digest;
    if (digest && told_.over) told_.digest = sum_;
  }

 private:
  static constexpr int kFirstPart = 5, kPart = 50;
  static constexpr Duration kFirst = std::chrono::seconds(2);

  const std::uint64_t batches_;
  std::uint64_t next_ = 0, done_ = 0;
  Duration left_{};          // of the time that reading may take
  Duration took_{}, all_{};  // the last batch, and all of them
  Digest sum_{};
  PythonModel::DataRead told_;
};

}  // namespace starling::kernels
