#pragma once
// CheckpointTurn says which versions a worker writes (docs/design.md, section 6, "Checkpoints").
// All members decide by the same votes, so all write the same versions, or skip them together: no
// two of them wait for each other's parts of different ones. It owns whether this worker still
// writes, which version that was, and the request for a last checkpoint.
//
// Threads: none; a value.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/base/check.h"
#include "core/base/ids.h"

namespace starling::elastic {

class CheckpointTurn {
 public:
  // Why a member has no part of a version that was due.
  static constexpr const char* kStillWriting = "the one before it is still being written";

  // `every`: its multiples are written, but not the last version, `steps`; 0: none is written.
  CheckpointTurn(std::uint64_t every, std::uint64_t steps) : every_(every), steps_(steps) {}

  // A coordinator requests a checkpoint above this version, and again until it has heard of one. Where that
  // goes on so long after the last was written by all, word of that one is lost, and another is wanted.
  static constexpr std::uint64_t kLostMs = 5000;
  void ask(Version above, std::uint64_t now_ms) {
    asked_above_ = std::max(asked_above_.value_or(0), above);
    const bool over = !writing_ && !others_write_ && now_ms - ended_ms_ >= kLostMs;
    if (over) written_ = std::min(written_, above);
  }

  // What this worker's vote says.
  bool writing() const { return writing_; }
  bool wanted() const { return asked_above_ && written_ <= *asked_above_; }

  // What the votes that made a version say.
  struct Votes {
    bool anybody_writes = false;
    bool anybody_wants = false;
  };
  void heard(const Votes& votes) { others_write_ = votes.anybody_writes; }
  bool due(Version version, const Votes& votes) const {
    if (every_ == 0 || version >= steps_) return false;
    return version % every_ == 0 || (votes.anybody_wants && !votes.anybody_writes);
  }
  // Begins to write a due version. False: not now, as a member still writes the one before it.
  bool begin(Version version, const Votes& votes) {
    if (writing_ || votes.anybody_writes) return false;
    writing_ = true;
    written_ = version;
    return true;
  }
  void end(std::uint64_t now_ms) {
    writing_ = false;
    ended_ms_ = now_ms;
  }

  void check_invariants() const {
    if (writing_) STARLING_CHECK(every_ != 0);
    if (writing_) STARLING_CHECK(written_ != 0);
    if (written_ != 0) STARLING_CHECK(written_ < steps_);
  }

 private:
  std::uint64_t every_, steps_;
  bool writing_ = false;
  bool others_write_ = false;  // by the last votes
  std::uint64_t ended_ms_ = 0;
  Version written_ = 0;                 // the last version of which writing was begun
  std::optional<Version> asked_above_;  // a checkpoint above this version is wanted
};

}  // namespace starling::elastic
