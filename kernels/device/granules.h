#pragma once
// Granules counts the users of the equal pieces that the memory behind a range of addresses is mapped in,
// so that a piece is mapped for its first user, and unmapped when it has none.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace starling::kernels {

// All offsets and counts are bytes from the range's beginning. Threads: one at a time.
class Granules {
 public:
  struct Run {  // of consecutive bytes
    std::size_t offset = 0, count = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };
  struct Taken {
    std::vector<Run> fresh;   // whole granules that are to be mapped
    std::vector<Run> reused;  // others that had no user, and are mapped still
  };
  struct Given {
    std::vector<Run> unused;   // whole granules that have no user any more
    std::vector<Run> shared;   // the given bytes that lie in the others
    std::uint64_t number = 0;  // of this call
  };

  // `bytes` of addresses, which are rounded up to whole granules of `grain` bytes.
  Granules(std::size_t bytes, std::size_t grain);

  std::size_t grain() const { return grain_; }
  std::size_t bytes() const { return users_.size() * grain_; }
  // Adds a user to each granule of [offset, offset + count).
  Taken take(std::size_t offset, std::size_t count);
  // Takes back what the last call, take() of the same bytes, has done: its fresh granules are not mapped, and the others
  // that it found without a user are unmapped when they would have been.
  void undo(const Taken& taken, std::size_t offset, std::size_t count);
  // Removes one user of each, which take() has added for the same bytes.
  Given give(std::size_t offset, std::size_t count);
  // Returns those of a run that give() with this number has left without a user, that nobody has used since and
  // that are mapped: they are to be unmapped.
  std::vector<Run> take_unused(Run run, std::uint64_t number);
  bool used(std::size_t offset, std::size_t count) const;  // all of these bytes
  std::vector<Run> mapped() const;

 private:
  std::size_t first(std::size_t offset) const { return offset / grain_; }
  std::size_t end(std::size_t offset, std::size_t count) const;
  void add(std::vector<Run>& runs, std::size_t granule) const;

  std::size_t grain_ = 0;
  std::vector<std::uint32_t> users_;  // by granule
  std::vector<bool> mapped_;
  std::vector<std::uint64_t> given_;  // number of the give() that took the last user
  std::uint64_t gives_ = 0;
};

}  // namespace starling::kernels
