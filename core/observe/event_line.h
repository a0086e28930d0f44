#pragma once
// How a line of events is put together. Inside core/observe only: whoever reads events reads JSON.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace starling {

using EventJson = nlohmann::ordered_json;  // fields in the order of events.h

std::int64_t monotonic_ns();
std::int64_t utc_us();  // of the day's clock, since 1970
// "2026-03-01T12:00:00.000125Z", and back; 0 of what is none.
std::string utc_text(std::int64_t us);
std::int64_t utc_of(const std::string& text);

// With its end. `began_ns`: of the monotonic clock, where t is 0.
std::string event_line(const char* kind, EventJson fields, std::int64_t began_ns);

}  // namespace starling
