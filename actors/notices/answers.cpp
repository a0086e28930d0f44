#include "actors/notices/answers.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/base/text.h"

namespace starling::actors {
namespace {

using Json = nlohmann::json;
using std::chrono::seconds;
using std::chrono::sys_seconds;

constexpr std::size_t kEventsMax = 1000;
constexpr std::size_t kIdMax = 128;
constexpr std::size_t kTokenMax = 1024;

Error not_an(const char* what) {
  return Error(Code::kBadInput, std::string("not ") + what);
}

// Makes a text fit for people and files: printable, short.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 64));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::optional<Json> value_of(std::string_view body) {
  if (body.size() > kAnswerBytesMax) return std::nullopt;
  Json value = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object() && !value.is_array()) return std::nullopt;
  return value;
}

std::optional<Json> object(std::string_view body) {
  auto value = value_of(body);
  return value && value->is_object() ? std::move(value) : std::nullopt;
}

bool equal_but_for_case(std::string_view a, std::string_view b) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, small, small);
}

// Returns null if the member is missing or no text.
const std::string* text_at(const Json& value, const char* key) {
  const auto it = value.find(key);
  return it == value.end() ? nullptr : it->get_ptr<const std::string*>();
}

// Reads exactly `digits` decimal digits off the front.
std::optional<int> number(std::string_view& text, std::size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int value = 0;
  for (const char c : text.substr(0, digits)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = 10 * value + (c - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool skip(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

struct TimeOfDay {
  int hours = 0, minutes = 0, seconds = 0;
};

std::optional<TimeOfDay> clock_off(std::string_view& text) {
  const auto h = number(text, 2);
  if (!h || !skip(text, ":")) return std::nullopt;
  const auto m = number(text, 2);
  if (!m || !skip(text, ":")) return std::nullopt;
  const auto s = number(text, 2);
  if (!s || *h > 23 || *m > 59 || *s > 60) return std::nullopt;  // 60: a leap second
  return TimeOfDay{*h, *m, *s};
}

std::optional<sys_seconds> time_of(int year, int month, int day, const TimeOfDay& clock) {
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(clock.hours) +
         std::chrono::minutes(clock.minutes) + seconds(clock.seconds);
}

// Reads "Z", "+hh:mm" or "-hh:mm"; nothing may follow.
std::optional<seconds> offset(std::string_view text) {
  if (text == "Z" || text == "z") return seconds(0);
  const bool east = text.starts_with('+');
  if (!east && !text.starts_with('-')) return std::nullopt;
  text.remove_prefix(1);
  const auto h = number(text, 2);
  if (!h || *h > 23 || !skip(text, ":")) return std::nullopt;
  const auto m = number(text, 2);
  if (!m || *m > 59 || !text.empty()) return std::nullopt;
  const seconds size = std::chrono::hours(*h) + std::chrono::minutes(*m);
  return east ? size : -size;
}

std::uint64_t notice_ms(sys_seconds end, sys_seconds now) {
  // In 64 bits no sum of a four-digit year and a clock overflows.
  const seconds left = end > now ? std::min<seconds>(end - now, kNoticeMax) : kNoticePassed;
  return static_cast<std::uint64_t>(std::chrono::milliseconds(left).count());
}

// Returns the id if it may be sent back to the service; empty: it may not.
std::string usable_id(const std::string* id) {
  return id != nullptr && id->size() <= kIdMax && printable(*id) ? *id : "";
}

constexpr auto kUnknownMs = static_cast<std::uint64_t>(kNoticeUnknown.count()) * 1000;

}  // namespace

std::optional<sys_seconds> parse_rfc3339(std::string_view text) {
  const auto year = number(text, 4);
  if (!year || !skip(text, "-")) return std::nullopt;
  const auto month = number(text, 2);
  if (!month || !skip(text, "-")) return std::nullopt;
  const auto day = number(text, 2);
  if (!day || (!skip(text, "T") && !skip(text, "t"))) return std::nullopt;
  const auto clock = clock_off(text);
  if (!clock) return std::nullopt;
  if (skip(text, ".")) {
    const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0) return std::nullopt;
    text.remove_prefix(digits);
  }
  const auto east = offset(text);
  const auto local = time_of(*year, *month, *day, *clock);
  if (!east || !local) return std::nullopt;
  return *local - *east;
}

std::optional<sys_seconds> parse_rfc1123(std::string_view text) {
  static constexpr std::array<std::string_view, 7> days = {"Mon", "Tue", "Wed", "Thu",
                                                           "Fri", "Sat", "Sun"};
  static constexpr std::array<std::string_view, 12> months = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (std::find(days.begin(), days.end(), text.substr(0, 3)) != days.end()) {
    text.remove_prefix(3);
    if (!skip(text, ", ")) return std::nullopt;
  }
  const auto day = number(text, 2);
  if (!day || !skip(text, " ")) return std::nullopt;
  const auto month = std::find(months.begin(), months.end(), text.substr(0, 3));
  if (month == months.end()) return std::nullopt;
  text.remove_prefix(3);
  if (!skip(text, " ")) return std::nullopt;
  const auto year = number(text, 4);
  if (!year || !skip(text, " ")) return std::nullopt;
  const auto clock = clock_off(text);
  if (!clock || text != " GMT") return std::nullopt;
  return time_of(*year, static_cast<int>(month - months.begin()) + 1, *day, *clock);
}

namespace {

// Reads a time in any of the forms.
std::optional<sys_seconds> parse_time(const std::string* text) {
  if (text == nullptr) return std::nullopt;
  const auto read = parse_rfc3339(*text);
  return read ? read : parse_rfc1123(*text);
}

}  // namespace

Result<Notice> parse_aws_action(std::string_view body, sys_seconds now) {
  const auto value = object(body);
  if (!value) return not_an("an instance action");
  const std::string* action = text_at(*value, "action");
  Notice notice{"aws", "instance action " + (action ? shown(*action) : "of no known kind"),
                kUnknownMs, true};
  const std::string* time = text_at(*value, "time");
  if (time != nullptr) notice.text += " at " + shown(*time);
  if (const auto end = parse_time(time)) notice.notice_ms = notice_ms(*end, now);
  return notice;
}

Result<Notice> parse_aws_rebalance(std::string_view body) {
  const auto value = object(body);
  if (!value) return not_an("a rebalance recommendation");
  const std::string* time = text_at(*value, "noticeTime");
  return Notice{"aws", "rebalance recommendation" + (time ? " of " + shown(*time) : ""), 0, false};
}

Result<MachineEvents> parse_aws_maintenance(std::string_view body, sys_seconds now) {
  const auto value = value_of(body);
  if (!value || !value->is_array() || value->size() > kEventsMax)
    return not_an("a list of maintenance events");
  MachineEvents out;
  for (const Json& event : *value) {
    if (!event.is_object()) {
      ++out.unreadable;
      continue;
    }
    const std::string *state = text_at(event, "State"), *code = text_at(event, "Code"),
                      *time = text_at(event, "NotBefore");
    if (state != nullptr &&
        (equal_but_for_case(*state, "completed") || equal_but_for_case(*state, "canceled")))
      continue;
    const auto begin = parse_time(time);
    const bool leave = !begin || *begin <= now + kAwsMaintenanceLead;
    MachineEvent& one = out.events.emplace_back();
    one.id = usable_id(text_at(event, "EventId"));
    one.notice = {"aws", "maintenance " + (code ? shown(*code) : "of no known kind"), 0, leave};
    if (time != nullptr) one.notice.text += " not before " + shown(*time);
    if (leave) one.notice.notice_ms = begin ? notice_ms(*begin, now) : kUnknownMs;
  }
  return out;
}

Result<std::string> parse_aws_token(std::string_view body) {
  const auto token = trimmed(body);
  if (token.empty() || token.size() > kTokenMax || !printable(token)) return not_an("a token");
  return std::string(token);
}

Result<bool> parse_gcp_preempted(std::string_view body) {
  const auto word = trimmed(body);
  if (equal_but_for_case(word, "TRUE")) return true;
  if (equal_but_for_case(word, "FALSE")) return false;
  return not_an("TRUE or FALSE");
}

Result<std::optional<Notice>> parse_gcp_maintenance(std::string_view body) {
  const auto word = trimmed(body);
  const bool is_word = std::all_of(word.begin(), word.end(), [](char c) {
    return c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  });
  if (word.empty() || word.size() > kIdMax || !is_word) return not_an("a maintenance event");
  if (equal_but_for_case(word, "NONE")) return std::optional<Notice>();
  const bool leave = !equal_but_for_case(word, "MIGRATE_ON_HOST_MAINTENANCE");
  constexpr auto ms = std::chrono::milliseconds(kGcpMaintenance).count();
  return std::optional<Notice>(Notice{"gcp", "maintenance event " + shown(word),
                                      leave ? static_cast<std::uint64_t>(ms) : 0, leave});
}

Result<std::string> parse_azure_name(std::string_view body) {
  const auto name = trimmed(body);
  if (name.empty() || name.size() > kIdMax || !printable(name)) return not_an("a machine's name");
  return std::string(name);
}

namespace {

// Machine names are equal whatever the case of their letters;
// early versions of the service put a line before them.
bool names(const Json& resource, const std::string& name) {
  const std::string* text = resource.get_ptr<const std::string*>();
  if (text == nullptr) return false;
  const std::string_view given(*text);
  return equal_but_for_case(given, name) ||
         (given.starts_with('_') && equal_but_for_case(given.substr(1), name));
}

bool concerns(const Json& event, const std::string& name) {
  const auto resources = event.find("Resources");
  if (resources == event.end()) return false;
  if (!resources->is_array()) return names(*resources, name);
  return std::any_of(resources->begin(), resources->end(),
                     [&](const Json& resource) { return names(resource, name); });
}

MachineEvent azure_event(const Json& event, sys_seconds now) {
  const std::string* type = text_at(event, "EventType");
  MachineEvent out;
  out.id = usable_id(text_at(event, "EventId"));
  const bool leave = type == nullptr || !equal_but_for_case(*type, "Freeze");
  out.notice = {"azure", "event " + (type ? shown(*type) : "of no known kind"),
                leave ? kUnknownMs : 0, leave};
  // NotBefore is empty once the event has begun.
  const std::string* before = text_at(event, "NotBefore");
  if (before == nullptr || before->empty()) return out;
  out.notice.text += " not before " + shown(*before);
  const auto end = parse_time(before);
  if (leave && end) out.notice.notice_ms = notice_ms(*end, now);
  return out;
}

}  // namespace

Result<MachineEvents> parse_azure_events(std::string_view body, const std::string& name,
                                         sys_seconds now) {
  const auto value = object(body);
  if (!value) return not_an("a list of events");
  const auto events = value->find("Events");
  if (events == value->end() || !events->is_array() || events->size() > kEventsMax)
    return not_an("a list of events");
  MachineEvents out;
  for (const Json& event : *events) {
    if (!event.is_object())
      ++out.unreadable;
    else if (concerns(event, name))
      out.events.push_back(azure_event(event, now));
  }
  return out;
}

}  // namespace starling::actors
