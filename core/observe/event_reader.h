#pragma once
// Lines of events.jsonl back to events: the one reader of the format, but for that of
// tools/judge/audit/history.h, which shares no code with the writer on purpose.
//
// Threads: none; pure.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/observe/event.h"

namespace starling {

inline constexpr std::size_t kEventLineBytesMax = std::size_t{64} << 20;

struct EventLine {
  double t = 0;
  std::string time;  // as it stands there; empty: it does not
  std::string kind;
  std::optional<Event> event;  // none: this version does not know the kind
};

// Reads one line, without its end. Any bytes may come. Every field must be there, and of its form
// and range; what can be null may be missing, and fields that a kind does not have are passed over.
// A null where a number must be is a NaN. Memory: a small multiple of the line's length.
// Errors: kBadInput  it is no event: what is wrong first, and what was expected.
Result<EventLine> read_event(std::string_view line);

}  // namespace starling
