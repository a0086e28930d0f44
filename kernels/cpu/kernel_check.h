#pragma once
// A KernelCheck holds samples of what kernels compute to the formulae, in the shapes and with the numbers
// of a real pass. Workers that all multiply wrongly in the same way agree with each other, and so do
// their digests: only a measure from outside sees that.

#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "kernels/cpu/table.h"

namespace starling::kernels {

// Threads: belongs to the thread that made it, which has one at a time.
class KernelCheck {
 public:
  explicit KernelCheck(const KernelTable& kernels);
  ~KernelCheck();
  KernelCheck(const KernelCheck&) = delete;
  KernelCheck& operator=(const KernelCheck&) = delete;

  // Returns kernels that compute by those of the calling thread's KernelCheck, with
  // their bits, and compare a few elements of every result. A call costs about one
  // scalar pass over eight rows and eight columns.
  static const KernelTable& table();

  std::uint64_t samples() const { return samples_; }  // compared so far

  // Returns whether all samples were within what rounding explains.
  // Errors: kBadInput  names the first that was not, with its kernel and shape.
  Result<> held() const;

 private:
  friend struct Checked;

  const KernelTable& kernels_;
  std::uint64_t samples_ = 0, draws_ = 0;
  std::string first_;  // what did not hold; empty: all did
};

}  // namespace starling::kernels
