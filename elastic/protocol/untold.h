#pragma once
// The steps that a member saw committed and that no coordinator has noted yet. A Progress may be
// lost with its connection, and if its sender was the only member nobody else knows of that step.
//
// Threads: none; a value that belongs to the worker.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/ids.h"
#include "core/wire/messages.h"

namespace starling::elastic {

class Untold {
 public:
  void add(Progress progress, std::uint64_t now_ms);
  // What its sender measured of it.
  void timed(Version version, double step_ms, const std::optional<Pause>& pause);
  // False if it was noted before. Of one that had to be said again it shows that somebody listens,
  // so that the others need not wait longer.
  bool noted(Version version);
  // Coordinators listen again: the times between two words begin anew.
  void heard();
  bool empty() const { return steps_.empty(); }

  struct Due {
    Progress progress;
    std::uint32_t turn = 0;  // how often it was said before: each time to another coordinator
  };
  // The oldest of those that are to be said again now: `retry_ms` after they were said first, and
  // then after twice as long each time, to one coordinator in turn. Not many at once, by steps and
  // by rows: who is cut off for long has thousands, and who hangs gets no answer out faster.
  std::vector<Due> due(std::uint64_t now_ms, std::uint64_t retry_ms, std::size_t at_once = 16);

 private:
  struct Said {
    Progress progress;
    std::uint64_t at_ms = 0;
    std::uint32_t again = 0;    // how often, since the first time
    std::uint32_t doubled = 0;  // how often the time until the next was
  };
  std::map<Version, Said> steps_;
};

}  // namespace starling::elastic
