#pragma once
// Session is R1's version rule, per epoch: it delivers a frame of the current version, keeps one of
// the next, and calls any other an error of its connection. Pure: the simulator runs it too.

#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/wire/frame.h"

namespace starling::collectives {

struct Arrival {
  Rank from = kNoRank;
  Frame frame;
};

struct SessionLimits {
  // Limits for all waiting frames. A peer can be one step ahead at most, so the second is what one
  // step brings in; beyond it something is wrong and the connection is given up.
  std::size_t frames_max = 1u << 20;
  std::size_t bytes_max = std::size_t{8} << 30;
};

// Threads: one at a time; the caller serialises.
class Session {
 public:
  // version: current one; kNoVersion: a joiner. Then the first kGather frame tells the version, and
  // all else waits for it.
  Session(std::uint32_t world, Version version, SessionLimits limits = {});

  // Takes a frame and gives what is to be delivered now, in order: nothing if it waits, the frame
  // itself, or, for the gather frame that tells a joiner the version, that frame and then what had
  // waited.
  // Errors: kCorrupt  a frame of another version, or too much waits; names peer and versions
  Result<std::vector<Arrival>> on_frame(Rank from, Frame frame);

  // The version is now this one: v+1 after a passed vote, or whatever an epoch begins at. Gives the
  // frames of that version that had waited, in order.
  // Errors: kCorrupt  a waiting frame is neither of this version nor one early
  Result<std::vector<Arrival>> set_version(Version version);

  Version version() const { return version_; }
  // The sender of the frame that the last error is about.
  Rank culprit() const { return culprit_; }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  Error wrong_version(Rank from, Version got);

  const std::uint32_t world_;
  const SessionLimits limits_;
  Version version_;
  std::deque<Arrival> waiting_;
  std::size_t waiting_bytes_ = 0;
  Rank culprit_ = kNoRank;
};

}  // namespace starling::collectives
