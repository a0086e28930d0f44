#pragma once
// Log writes lines on stderr, for people who look for a fault. Programs act on events
// (core/observe/events.h). Fields, not prose:
//
//   2026-05-01T12:00:00.123Z info  worker=3 epoch frozen epoch=3.2 peer=1 cause=eof
//
// or objects of JSON (core/observe/line_format.h).
// Never log keys or anything of CURVE.

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/id.h"
#include "core/observe/line_format.h"

namespace starling {

// "debug", "info", "warn", "error", "off".
std::optional<LogLevel> parse_log_level(std::string_view text);

struct LogField {
  LogField(std::string_view k, std::string v) : key(k), value(std::move(v)) {}
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  template <class Tag, class Int>
  LogField(std::string_view k, Id<Tag, Int> v) : LogField(k, v.value()) {}
  template <class T>
  requires(std::integral<T> || std::floating_point<T>) LogField(std::string_view k, T v)
      : key(k), value(std::to_string(v)) {}

  std::string_view key;
  std::string value;
};
using LogFields = std::initializer_list<LogField>;

// Any thread; copies write to the same place. A line is written whole.
class Log {
 public:
  // `always`: fields of every line, such as worker=3.
  explicit Log(LogLevel level, LogFields always = {});
  // The same log with more fields in every line.
  Log with(LogFields more) const;

  void debug(std::string_view what, LogFields fields = {}) const;
  void info(std::string_view what, LogFields fields = {}) const;
  void warn(std::string_view what, LogFields fields = {}) const;
  void error(std::string_view what, LogFields fields = {}) const;
  bool enabled(LogLevel level) const;

 private:
  struct Sink;  // keeps spdlog out of this header
  void write(LogLevel level, std::string_view what, LogFields fields) const;

  std::shared_ptr<Sink> sink_;
  Labels always_;
};

// " key=value", the value in quotes if it has blanks, quotes or control characters.
void append_fields(std::string& line, LogFields fields);

}  // namespace starling
