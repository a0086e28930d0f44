#include "core/observe/event_line.h"

#include <cstdio>
#include <ctime>
#include <utility>

namespace starling {

std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

std::int64_t utc_us() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000ll + now.tv_nsec / 1000;
}

std::string utc_text(std::int64_t us) {
  const std::time_t seconds = us / 1'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char date[32], text[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%06dZ", date, static_cast<int>(us % 1'000'000));
  return text;
}

std::int64_t utc_of(const std::string& text) {
  std::tm utc{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  int us = 0;
  if (!rest || (*rest == '.' && std::sscanf(rest, ".%6dZ", &us) != 1)) return 0;
  return ::timegm(&utc) * 1'000'000ll + us;
}

std::string event_line(const char* kind, EventJson fields, std::int64_t began_ns) {
  EventJson line;
  line["t"] = static_cast<double>((monotonic_ns() - began_ns) / 1000) / 1e6;
  line["time"] = utc_text(utc_us());
  line["ev"] = kind;
  line.update(std::move(fields));
  // Names and causes may come from elsewhere: what is not UTF-8 is replaced, not thrown at.
  return line.dump(-1, ' ', false, EventJson::error_handler_t::replace) + "\n";
}

}  // namespace starling
