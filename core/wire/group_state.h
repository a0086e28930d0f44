#pragma once
// GroupState is what the log of the membership group says up to some entry, as one value: the data
// of a Raft snapshot. elastic/membership/group.h gives it its meaning.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/wire/messages.h"

namespace starling {

struct GroupState {
  struct Life {
    Join join;  // who.counter is set
    bool leaving = false;
    bool dead = false;        // certainly: its guard said so
    bool planned = false;     // was a member of a valid plan
    std::uint64_t since = 0;  // `plans` when it joined
  };
  struct EpochMembers {
    EpochId id;
    std::vector<Nonce> nonces;
  };
  std::optional<JobStarted> job;
  std::optional<Plan> plan, before;  // the last valid one, and the valid one before it
  std::optional<JobEnded> end;
  std::vector<Life> lives;
  std::vector<EpochMembers> epochs;
  std::uint64_t next_counter = 1;
  std::uint64_t plans = 0;  // valid ones so far
  Version last_base = 0;
  EpochId last_fresh;
  std::vector<Checkpoint> checkpoints;
  Version start = 0;
  std::optional<Restarted> restart;
  std::vector<CoordinatorAt> seats;  // by place
  Version reached = 0;               // the highest of all restarts
};

}  // namespace starling
