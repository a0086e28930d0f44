#pragma once
// The order of sharded data: which sample each place of a lane has.
//
// Samples lie in chunks of equal number. All passes over the chunks, each in its own order (core/data/permutation.h), make
// one endless sequence, whose chunk i belongs to lane i mod M; micro-batch m of each step takes the next samples of lane m
// alone. What a lane has of a pass is cut into windows of some chunks, within which samples are permuted. So every sample is
// used once in every pass, whatever the number of workers; a worker that computes k of M micro-batches reads k/M of the
// data; and one that takes a lane over reads at most one window of it.

#include <cstdint>
#include <utility>

#include "core/data/permutation.h"

namespace starling {

// LanePlace is where a sample lies.
struct LanePlace {
  std::uint64_t pass = 0, chunk = 0;
  std::uint32_t sample = 0;  // of the chunk's
  bool operator==(const LanePlace&) const = default;
};

// LaneWindow is a run of a lane's chunks, which are counted from 0 through all passes.
struct LaneWindow {
  std::uint64_t first = 0, behind = 0;
  std::uint64_t chunks() const { return behind - first; }
  bool operator==(const LaneWindow&) const = default;
};

// A value, a function of its arguments; any thread.
class Lanes {
 public:
  static constexpr std::uint32_t kWindow = 32;  // chunks, at most

  // chunks >= lanes >= 1, samples of a chunk >= 1.
  Lanes(std::uint64_t seed, std::uint64_t chunks, std::uint32_t samples, std::uint32_t lanes);

  std::uint32_t samples_of_chunk() const { return samples_; }
  // The chunk that a lane has at this place among its chunks.
  std::uint64_t chunk_of(std::uint32_t lane, std::uint64_t ordinal) const;
  // The window that this one of the lane's chunks is in: all of one pass, of a size as near as can be to that of the
  // others of that pass.
  LaneWindow window_of(std::uint32_t lane, std::uint64_t ordinal) const;
  // The sample at a position of a lane, counted from 0 through all passes.
  LanePlace place_of(std::uint32_t lane, std::uint64_t position) const;
  // The lane and the position that a sample has in a pass.
  std::pair<std::uint32_t, std::uint64_t> position_of(const LanePlace& place) const;
  // How many chunks each lane has at least before those of a pass.
  std::uint64_t chunks_before(std::uint64_t pass) const { return pass * chunks_ / lanes_; }

 private:
  std::uint64_t first_of_pass(std::uint32_t lane, std::uint64_t pass) const;
  Permutation order_of(std::uint32_t lane, const LaneWindow& window) const;

  std::uint64_t seed_, chunks_;
  std::uint32_t samples_, lanes_;
};

}  // namespace starling
