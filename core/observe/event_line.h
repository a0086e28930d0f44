#pragma once
// Puts a line of events together. Inside core/observe only: all others use a writer.

#include <cstdint>
#include <string>

#include "core/observe/event.h"

namespace starling {

std::int64_t monotonic_ns();
std::int64_t utc_us();  // of the day's clock, since 1970
// "2026-03-01T12:00:00.000125Z", and back; 0 of what is none.
std::string utc_text(std::int64_t us);
std::int64_t utc_of(const std::string& text);

// The line with its end. `began_ns`: of the monotonic clock, where t is 0.
std::string event_line(const Event& event, std::int64_t began_ns);
// The line without a time: two events that say the same have the same text.
std::string event_text(const Event& event);

}  // namespace starling
