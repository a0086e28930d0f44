#pragma once
// LocalWorkers are the workers that `starling run` has started: one that dies
// is started again, unless it dies again and again before it gets anywhere.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/observe/event.h"
#include "tools/processes/children.h"

namespace starling::tools {

// Threads: belongs to one thread. Borrows `children`.
class LocalWorkers {
 public:
  using Clock = std::chrono::steady_clock;
  // Starts the worker of this place, 0 and up; returns its guard.
  using Start = std::function<Result<pid_t>(std::uint32_t place)>;

  // tries: how many lives in a row that end in the same way, before they have
  // worked at kLived steps, are followed by another one; 0: none is started again.
  LocalWorkers(Children& children, Start start, std::uint32_t tries)
      : children_(children), start_(std::move(start)), tries_(tries) {}

  static constexpr std::uint64_t kLived = 10;  // steps

  Result<> start(std::uint32_t workers);
  // Takes events: which workers are members, what they have worked at, and why they died.
  void told(const Event& event);

  // Returns how a worker ended that is not started again: an exit status, or 128 + the
  // signal that killed it. None: the child was no worker, or only the guard of one that goes
  // on. `again`: one that died is followed by another one, when start_due() comes to it.
  std::optional<int> ended(const ChildEnd& child, bool again);
  Result<> start_due();
  // Returns news for people, once.
  std::optional<std::string> news();

  // Returns whether the worker of this child is a member of the last epoch that was told.
  bool is_member(pid_t child) const;
  std::size_t size() const { return lives_.size(); }
  // True if no worker is there, and none will be started.
  bool none() const { return lives_.empty() && due_.empty(); }
  // Returns whether all members of the last epoch that was told were workers
  // of this process, and have ended as their notices were over.
  bool all_members_left() const;

 private:
  struct Life {
    pid_t pid = 0;  // its guard; its worker once the guard has died
    std::uint32_t place = 0;
    pid_t worker = 0;                    // 0: has not joined
    std::uint64_t id = 0;                // likewise
    std::optional<std::uint64_t> since;  // steps passed when it became a member
    std::string reason;                  // why it ended itself, as its guard told
  };
  struct Due {
    std::uint32_t place = 0;
    Clock::time_point at;
  };

  bool goes_on(Life& life, int status) const;
  void plan_another(const Life& life, int status);
  void joined(const event::WorkerChanged& worker);

  Children& children_;
  const Start start_;
  const std::uint32_t tries_;
  std::vector<Life> lives_;
  std::vector<Due> due_;
  std::set<std::uint64_t> members_;                   // of the last epoch
  std::set<std::uint64_t> left_;                      // ended as they had announced
  std::map<std::string, std::uint32_t> short_lives_;  // in a row, by how they ended
  std::uint64_t steps_ = 0;                           // passed so far
  std::optional<std::string> news_;
};

}  // namespace starling::tools
