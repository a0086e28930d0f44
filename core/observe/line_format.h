#pragma once
// These write the lines of a process on stderr: for people, or for a log shipper, an object of JSON
// each with the names of the Elastic Common Schema (docs/metrics.md).

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace starling {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarn, kError, kOff };

enum class LineFormat : std::uint8_t { kText, kEcs };

// Has all lines of this process in a format from now on; `node` is its name in the job, empty: none.
// Call it before other threads write.
void write_lines_as(LineFormat format, std::string node);
LineFormat line_format();

// Writes a line whole: "PREFIX TEXT", or an object. Threads: any.
void write_line(LogLevel level, const std::string& prefix, const std::string& text);

using Labels = std::vector<std::pair<std::string, std::string>>;
// Returns an object without the end of its line. A message above kEcsMessageBytes is cut, and says so.
std::string ecs_line(LogLevel level, std::string_view message, const Labels& labels,
                     std::int64_t utc_us);
inline constexpr std::size_t kEcsMessageBytes = 14 * 1024;

}  // namespace starling
