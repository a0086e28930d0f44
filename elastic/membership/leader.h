#pragma once
// The leader's decisions: whom to admit, when an epoch is over, whom to wait for, what the next
// epoch is (docs/design.md, section 6). Pure; lives for one term of one coordinator, and begins when
// an entry of that term is applied (R10).

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/wire/messages.h"
#include "elastic/membership/group.h"
#include "elastic/protocol/bugs.h"

namespace starling::elastic {

struct LeaderConfig {
  std::uint32_t micro_batches = 0;
  Version steps = 0;
  std::uint32_t segments = 0;
  std::uint32_t replicas = 2;             // r
  std::uint32_t wanted_workers = 1;       // the first epoch waits for them
  std::uint32_t move_budget = 64;         // segments a source sends in one step
  std::uint64_t lease_ms = 1000;          // not heard for this long: may be left out
  std::uint64_t report_deadline_ms = 1000;
  std::uint64_t join_window_ms = 100;     // joins are gathered this long
  std::uint64_t start_timeout_ms = 30000;
  std::uint64_t state_timeout_ms = 60000;
  std::uint64_t retry_ms = 50;
  std::uint64_t job_hash = 0;
  std::string job_text;
  std::vector<std::string> tensors;       // name of each segment's first tensor, for messages
  Bugs bugs;
};

// What people and files are told (events.jsonl, the live line).
struct Observation {
  enum class Kind : std::uint8_t { kWorker, kEpoch, kStep, kExposure, kWarning, kEnd };
  Kind kind = Kind::kWarning;
  std::string what;             // worker: joined, left, lost, fenced; warning: the text
  Incarnation who;              // worker
  std::string name;             // worker
  Plan plan;                    // epoch
  double detect_ms = 0, form_ms = 0;  // epoch: first notice to Freeze, to plan committed
  double resume_ms = 0;
  Progress step;                // step (from every member; the writer keeps the first)
  std::uint32_t exposed = 0;    // exposure: segments with fewer than r+1 current copies
  JobEnded end;                 // end
};

namespace leader_event {
struct Tick {
  std::uint64_t now_ms = 0;
};
struct Applied {  // an entry was committed and applied to the group; `valid` = Group::apply's answer
  Entry entry;
  bool valid = true;
};
struct Said {
  Incarnation from;
  std::string name;
  Message body;
};
}  // namespace leader_event
using LeaderEvent = std::variant<leader_event::Tick, leader_event::Applied, leader_event::Said>;

namespace leader_command {
struct Propose {
  Entry entry;
};
struct Send {
  Incarnation to;
  Message body;
};
}  // namespace leader_command
using LeaderCommand = std::variant<leader_command::Propose, leader_command::Send, Observation>;
using LeaderCommands = std::vector<LeaderCommand>;

class Leader {
 public:
  Leader(LeaderConfig config, const Group& group, std::uint64_t term, std::uint64_t now_ms);

  LeaderCommands on(const LeaderEvent& event);

 private:
  struct Implementation;
};

}  // namespace starling::elastic
