#include "core/observe/line_format.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/base/build.h"
#include "core/observe/event_line.h"

namespace starling {
namespace {

// Says who writes; written before other threads read it.
struct LineWriter {
  LineFormat format = LineFormat::kText;
  std::string node, host;
};
LineWriter line_writer;

constexpr std::array<const char*, 5> kEcsLevels{"debug", "info", "warn", "error", "fatal"};

}  // namespace

void write_lines_as(LineFormat format, std::string node) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) line_writer.host = host.data();
  line_writer.node = std::move(node);
  line_writer.format = format;
}

LineFormat line_format() {
  return line_writer.format;
}

void write_line(LogLevel level, const std::string& prefix, const std::string& text) {
  const std::string line = line_writer.format == LineFormat::kEcs
                               ? ecs_line(level, text, {}, utc_us()) + "\n"
                               : prefix + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string ecs_line(LogLevel level, std::string_view message, const Labels& labels,
                     std::int64_t utc_us) {
  nlohmann::ordered_json line;
  line["@timestamp"] = utc_text(utc_us);
  line["log.level"] = kEcsLevels[static_cast<std::size_t>(level)];
  line["message"] = std::string(message.substr(0, kEcsMessageBytes));
  line["ecs.version"] = "8.11.0";
  line["service.name"] = "starling";
  line["service.version"] = build_text();
  if (!line_writer.node.empty()) line["service.node.name"] = line_writer.node;
  if (!line_writer.host.empty()) line["host.hostname"] = line_writer.host;
  line["process.pid"] = ::getpid();
  for (const auto& [name, value] : labels) line["labels." + name] = value;
  if (message.size() > kEcsMessageBytes) line["labels.truncated"] = "true";
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace starling
