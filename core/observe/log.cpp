#include "core/observe/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <cstdio>

#include "core/observe/event_line.h"

namespace starling {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  constexpr std::array<spdlog::level::level_enum, 5> levels = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err,
      spdlog::level::off};
  return levels[static_cast<std::size_t>(level)];
}

bool plain(std::string_view value) {
  if (value.empty()) return false;
  for (const unsigned char c : value)
    if (c <= 0x20 || c == 0x7f || c == '"' || c == '\\' || c == '=') return false;
  return true;
}

void append_quoted(std::string& line, std::string_view value) {
  line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      (line += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
      line += escape;
    } else {
      line += c;
    }
  }
  line += '"';
}

void append_field(std::string& line, std::string_view key, std::string_view value) {
  (line += ' ') += key;
  line += '=';
  if (plain(value)) {
    line += value;
  } else {
    append_quoted(line, value);
  }
}

}  // namespace

struct Log::Sink {
  spdlog::logger logger{"starling", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
};

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  return std::nullopt;
}

Log::Log(LogLevel level, LogFields always) : sink_(std::make_shared<Sink>()) {
  auto& logger = sink_->logger;
  logger.set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %v",
                                                                   spdlog::pattern_time_type::utc));
  logger.set_level(spdlog_level(level));
  logger.flush_on(spdlog::level::debug);
  for (const LogField& field : always) always_.emplace_back(field.key, field.value);
}

Log Log::with(LogFields more) const {
  Log log = *this;
  for (const LogField& field : more) log.always_.emplace_back(field.key, field.value);
  return log;
}

void Log::debug(std::string_view what, LogFields f) const {
  write(LogLevel::kDebug, what, f);
}
void Log::info(std::string_view what, LogFields f) const {
  write(LogLevel::kInfo, what, f);
}
void Log::warn(std::string_view what, LogFields f) const {
  write(LogLevel::kWarn, what, f);
}
void Log::error(std::string_view what, LogFields f) const {
  write(LogLevel::kError, what, f);
}

bool Log::enabled(LogLevel level) const {
  return sink_->logger.should_log(spdlog_level(level));
}

void Log::write(LogLevel level, std::string_view what, LogFields fields) const {
  if (!enabled(level)) return;
  if (line_format() == LineFormat::kEcs) {
    Labels labels = always_;
    for (const LogField& field : fields) labels.emplace_back(field.key, field.value);
    std::string line = ecs_line(level, what, labels, utc_us()) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    return;
  }
  std::string line(kNames[static_cast<std::size_t>(level)]);
  line.resize(5, ' ');
  for (const auto& [key, value] : always_) append_field(line, key, value);
  line += ' ';
  line += what;
  append_fields(line, fields);
  sink_->logger.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

void append_fields(std::string& line, LogFields fields) {
  for (const LogField& field : fields) append_field(line, field.key, field.value);
}

}  // namespace starling
