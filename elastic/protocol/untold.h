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
  // False if it was noted before.
  bool noted(Version version) { return steps_.erase(version) != 0; }
  bool empty() const { return steps_.empty(); }
  // The oldest of those that were last said `retry_ms` ago or earlier, to be said now. Not many at
  // once: whoever is cut off for long has thousands.
  std::vector<Progress> due(std::uint64_t now_ms, std::uint64_t retry_ms);

 private:
  struct Said {
    Progress progress;
    std::uint64_t at_ms = 0;
  };
  std::map<Version, Said> steps_;
};

}  // namespace starling::elastic
