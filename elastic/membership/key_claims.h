#pragma once
// One key, two workers: a worker's key is its name, so a second life that has it is not let in while
// the first one lives (docs/design.md, section 4, "One life at a time"). KeyClaims owns the lives that
// asked with a key of another life, and what was heard of that other life since.
//
// Threads: none; a value that belongs to its leader. Borrows the group, and the roster, whose
// clock all times here are of.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/membership/roster.h"

namespace starling::elastic {

class KeyClaims {
 public:
  static constexpr std::size_t kMax = 64;

  KeyClaims(std::uint64_t lease_ms, const Group& group, Roster& roster)
      : lease_ms_(lease_ms), group_(group), roster_(roster) {}

  // The leader heard a life that is in the log.
  void heard(const Incarnation& who);

  enum class Answer : std::uint8_t { kFree, kAskAgain, kInUse };
  struct Ruling {
    Answer answer = Answer::kFree;
    const Join* user =
        nullptr;  // of the key, as long as the group is not changed; null if it is free
  };
  // This life asks to join with the key of that name.
  Ruling ask(const Incarnation& who, const std::string& name);

  void check_invariants() const;

 private:
  struct Claim {
    Nonce other;  // the life that may use the key
    std::uint64_t asked_ms = 0;
    bool other_lives = false;  // heard long after the question
  };

  const Join* other_life(const Incarnation& who, const std::string& name) const;

  const std::uint64_t lease_ms_;
  const Group& group_;
  Roster& roster_;
  std::map<Nonce, Claim> claims_;  // by nonce of the life that asks
};

}  // namespace starling::elastic
