#include "core/observe/event_line.h"

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "core/base/text.h"
#include "core/observe/event_fields.h"

namespace starling {
namespace {

using OrderedJson = nlohmann::ordered_json;  // fields stay in their order

// Appends the fields of an event to its line.
class WrittenFields {
 public:
  explicit WrittenFields(OrderedJson& line) : line_(line) {}

  void operator()(const char* name, const auto& value) { line_[name] = form(value); }
  void hex(const char* name, std::uint64_t value) { line_[name] = starling::hex(value); }
  void or_null(const char* name, const std::string& text) {
    line_[name] = text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
  }
  void due(const char* name, const std::vector<double>& metrics) {
    if (!metrics.empty()) (*this)(name, metrics);
  }
  void due(const char* name, std::optional<double> value) {
    if (value) (*this)(name, *value);
  }
  void due(const char* name, bool truth) {
    if (truth) line_[name] = true;
  }
  void due(const char* name, LossScale scale) {
    if (scale.steps != 0) line_[name] = 1u << scale.log2;
  }
  void due(const char* name, std::uint32_t count) {
    if (count != 0) line_[name] = count;
  }
  void due(const char* name, WorkerRole role) {
    if (role != WorkerRole::kBoth) line_[name] = to_string(role);
  }
  void due(const char* name, const Machine& machine) {
    if (machine != Machine{}) line_[name] = object(machine);
  }
  void due(const char* name, const Digest& digest) {
    if (digest != Digest{}) line_[name] = form(digest);
  }

 private:
  template <class T>
  static OrderedJson form(const T& value) {
    if constexpr (std::is_enum_v<T>)
      return to_string(value);
    else
      return value;  // a number, a truth, a text
  }
  static OrderedJson form(const EpochId& id) { return to_string(id); }
  static OrderedJson form(const Digest& digest) { return to_string(digest); }
  static OrderedJson form(const SegmentRange& range) { return {range.first, range.count}; }
  static OrderedJson form(const Pause& pause) { return object(pause); }
  template <class A, class B>
  static OrderedJson form(const std::pair<A, B>& pair) {
    return {pair.first, pair.second};
  }
  template <class T>
  static OrderedJson form(const std::optional<T>& value) {
    return value ? form(*value) : OrderedJson(nullptr);
  }
  template <class T>
  static OrderedJson form(const std::vector<T>& values) {
    OrderedJson list = OrderedJson::array();
    for (const T& value : values) list.push_back(form(value));
    return list;
  }
  static OrderedJson form(const std::vector<event::EpochMember>& members) {
    OrderedJson list = OrderedJson::array();
    for (const auto& member : members) list.push_back(object(member, {{"rank", list.size()}}));
    return list;
  }
  static OrderedJson object(const auto& value, OrderedJson begin = OrderedJson::object()) {
    WrittenFields written(begin);
    fields(written, value);
    return begin;
  }

  OrderedJson& line_;
};

// Names and causes may come from elsewhere: what is not UTF-8 is replaced, not thrown at.
std::string text_of(const Event& event, OrderedJson line) {
  WrittenFields written(line);
  std::visit([&](const auto& e) { fields(written, e); }, event);
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

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

std::string event_line(const Event& event, std::int64_t began_ns) {
  const double t = static_cast<double>((monotonic_ns() - began_ns) / 1000) / 1e6;
  return text_of(event, {{"t", t}, {"time", utc_text(utc_us())}, {"ev", kind_of(event)}}) + "\n";
}

std::string event_text(const Event& event) {
  return text_of(event, {{"ev", kind_of(event)}});
}

}  // namespace starling
