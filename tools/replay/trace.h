#pragma once
// A Trace is a recorded spot trace: which machines there were
// when. Reads both forms of such files; pure but for load_trace().
//
// A file has one change a line, in the order of time, no header, and one form:
//   time_ms,add|remove,node    a machine comes or goes; names are used once
//   time_ms,count              so many machines are there from now on
// For counts, `seed` draws which machines go: the source does not tell.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::replay {

// A Change is everything that happens in one instant of the recording.
struct Change {
  std::uint64_t at_ms = 0;  // since the trace's start
  std::vector<std::string> added, removed;
  bool operator==(const Change&) const = default;
};

struct Trace {
  std::vector<Change> changes;  // strictly in time; the last may be empty: the end of a recording
  bool operator==(const Trace&) const = default;

  std::uint64_t end_ms() const { return changes.empty() ? 0 : changes.back().at_ms; }
  std::vector<std::string> present(std::uint64_t at_ms) const;  // after that instant's change
  std::size_t most(std::uint64_t from_ms, std::uint64_t to_ms) const;  // at once in that time
};

inline constexpr std::size_t kTraceBytesMax = 16u << 20;
inline constexpr std::uint64_t kTraceMsMax = 10ull * 366 * 86'400'000;
inline constexpr std::uint64_t kTraceNodesMax = 10'000;  // at once

// Errors: kBadInput  the first line that is wrong, and what was expected.
Result<Trace> parse_trace(const std::string& text, std::uint64_t seed = 1);
Result<Trace> load_trace(const std::string& path, std::uint64_t seed = 1);

// Keeps one node in `scale`, in the order of their coming: each stands for so many.
Trace thinned(const Trace& trace, std::uint32_t scale);

}  // namespace starling::replay
