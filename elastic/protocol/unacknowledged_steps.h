#pragma once
// UnacknowledgedSteps has steps that a member saw committed and no coordinator has noted yet. A
// lost connection may lose a Progress, and its sender may be the last member that knows the step.
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

class UnacknowledgedSteps {
 public:
  void add(Progress progress, std::uint64_t now_ms);
  // Adds to the report of this step what its sender measured.
  void timed(Version version, double step_ms, const std::optional<Pause>& pause);
  // A coordinator acknowledged the step. Returns false if the step was acknowledged before. An
  // answer to a repeated report shows that a coordinator listens: the other reports need not wait longer.
  bool acknowledge(Version version);
  // Coordinators answer again: the times between two reports start at retry_ms again.
  void restart_retries();
  bool empty() const { return steps_.empty(); }

  struct Due {
    Progress progress;
    std::uint32_t turn = 0;  // reports of this step so far: each goes to another coordinator
  };
  // The oldest steps whose report is due: `retry_ms` after the first report, and then after twice as
  // long each time. At most `at_once` steps, and a bounded number of ledger rows, per call: after a
  // long cut-off there are thousands, and resending faster does not help a coordinator that hangs.
  std::vector<Due> due(std::uint64_t now_ms, std::uint64_t retry_ms, std::size_t at_once = 16);

 private:
  struct Report {
    Progress progress;
    std::uint64_t at_ms = 0;
    std::uint32_t again = 0;    // reports after the first one
    std::uint32_t doubled = 0;  // how often the time until the next report was doubled
  };
  std::map<Version, Report> steps_;
};

}  // namespace starling::elastic
