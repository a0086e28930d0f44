#pragma once
// How long the leader waits for which worker (docs/design.md, section 6, "Whom to wait for"): pure
// functions of when it heard its workers (core/base/silence.h) and of how long their steps took.
// All times are milliseconds of the leader's clock.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/silence.h"

namespace starling::elastic {

// StepTimes says how long the last steps took. A value.
class StepTimes {
 public:
  void epoch_begins(std::uint64_t now_ms);  // what comes before its first version is no step
  void passed(std::uint64_t version, std::uint64_t now_ms);  // a member is seen at it
  std::uint64_t longest_ms() const;                     // of the last sixteen; 0: none is known
  std::uint64_t begun_ms() const { return begun_ms_; }  // the step in flight

 private:
  std::array<std::uint64_t, 16> last_ms_{};
  std::size_t next_ = 0;
  std::uint64_t version_ = 0, begun_ms_ = 0;
  bool known_ = false;  // version_ and begun_ms_ are of a step of this epoch
};

// Standing is what the leader knows of one member of the running epoch.
struct Standing {
  bool owes = false;           // the others wait for something that only this member can do
  std::uint64_t since_ms = 0;  // it says the same since then
};

// Headway tells since when one worker makes no progress with what others wait for. A value.
class Headway {
 public:
  struct Left {  // to be done there, by what its heartbeat says
    std::uint32_t share = 0, load = 0, orders = 0;
    bool operator==(const Left&) const = default;
  };
  // The worker says this of itself; `done` grows with everything that its threads do.
  void says(const Left& left, std::uint64_t done, std::uint64_t now_ms) {
    if (since_ms_ == 0 || left != left_ || done != done_) moves(now_ms);
    left_ = left;
    done_ = done;
  }
  void moves(std::uint64_t now_ms) { since_ms_ = now_ms; }  // to another epoch or version
  const Left& left() const { return left_; }
  Standing standing() const { return {left_ != Left{}, since_ms_}; }
  // Whether people are to be told of this standstill, which happens once.
  bool warn(std::uint64_t since_ms) { return std::exchange(warned_ms_, since_ms) != since_ms; }

 private:
  Left left_;
  std::uint64_t done_ = 0;
  std::uint64_t since_ms_ = 0;   // 0: it has not said anything yet
  std::uint64_t warned_ms_ = 0;  // the standstill of which people were told
};

// HeldUp names the members that hold up all others: they owe something and make no progress with
// it. None, if no member waits (lateness of all is the fault of none) or if a member that owes
// something has moved: it may be what the others wait for.
struct HeldUp {
  std::vector<std::size_t> by;  // places in `members`
  std::uint64_t since_ms = 0;   // all of them stand still, and all others wait, since then
};
HeldUp held_up(std::span<const Standing> members, std::uint64_t now_ms, std::uint64_t patience_ms);

// How long others wait for a member that owes something: a multiple of the longest of the last
// steps. Before the first step nothing is known of it: then of what the others took for their part
// of the step in flight. At least the floor.
std::uint64_t patience_ms(std::span<const Standing> members, const StepTimes& steps,
                          std::uint32_t multiple, std::uint64_t floor_ms);

}  // namespace starling::elastic
