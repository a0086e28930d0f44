#pragma once
// Tenfold counts what people are warned of the first, the tenth, the hundredth time and so on.

#include <cstdint>

namespace starling {

// Threads: one at a time.
class Tenfold {
 public:
  // Counts once more. Returns whether a warning is due.
  bool count() {
    if (++count_ != due_) return false;
    due_ *= 10;
    return true;
  }
  std::uint64_t counted() const { return count_; }

 private:
  std::uint64_t count_ = 0, due_ = 1;
};

}  // namespace starling
