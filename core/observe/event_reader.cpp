#include "core/observe/event_reader.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/observe/event_fields.h"

namespace starling {
namespace {

using Json = nlohmann::json;

constexpr double kTimeMax = 1e9;  // seconds

bool whole(const std::string& text, std::size_t from, std::size_t end, int base,
           std::uint64_t& value) {
  const char* last = text.data() + end;
  const auto read = std::from_chars(text.data() + from, last, value, base);
  return read.ec == std::errc() && read.ptr == last;
}

// Takes the fields of an event from its line; the first thing that is wrong stays.
class ReadFields {
 public:
  explicit ReadFields(const Json& line) : line_(line) {}

  template <class T>
  void operator()(const char* name, T& value) {
    const Json* found = find(name);
    static const Json null;
    const bool may_be_missing = requires {
      value.reset();
    };
    if (!found && may_be_missing) found = &null;
    if (const char* form = found ? take(*found, value) : form_of(value)) expected(name, form);
  }
  void hex(const char* name, std::uint64_t& value) {
    const Json* found = find(name);
    const auto* text = found ? found->get_ptr<const std::string*>() : nullptr;
    if (!text || text->size() != 16 || !whole(*text, 0, 16, 16, value))
      expected(name, "16 hex digits");
  }
  void or_null(const char* name, std::string& text) {
    const Json* found = find(name);
    if (found && !found->is_null()) (*this)(name, text);
  }
  void due(const char* name, std::vector<double>& metrics) {
    if (find(name)) (*this)(name, metrics);
  }
  void due(const char* name, std::optional<double>& value) {
    if (find(name)) (*this)(name, value.emplace());
  }
  void due(const char* name, bool& truth) {
    if (find(name)) (*this)(name, truth);
  }
  // The line does not say how many steps there were with this scale.
  void due(const char* name, LossScale& scale) {
    std::uint64_t value = 0;
    if (!find(name)) return;
    (*this)(name, value);
    if (!std::has_single_bit(value) || value > 1u << LossScaleRule::kMax)
      return expected(name, "a power of two");
    scale = {static_cast<std::uint8_t>(std::bit_width(value) - 1), 1};
  }
  void due(const char* name, std::uint32_t& count) {
    if (find(name)) (*this)(name, count);
  }
  void due(const char* name, WorkerRole& role) {
    if (find(name)) (*this)(name, role);
  }
  void due(const char* name, Machine& machine) {
    if (find(name)) (*this)(name, machine);
  }
  void due(const char* name, Digest& digest) {
    if (find(name)) (*this)(name, digest);
  }

  const std::string& wrong() const { return wrong_; }

 private:
  const Json* find(const char* name) const {
    const auto it = line_.find(name);
    return it == line_.end() ? nullptr : &*it;
  }
  void expected(const char* name, const std::string& form) {
    if (!wrong_.empty()) return;
    wrong_ = std::string(find(name) ? "has a wrong `" : "has no `") + name + "`, expected " + form;
  }
  template <class T>
  static const char* form_of(T& value) {
    return take(Json(Json::value_t::discarded), value);
  }

  // Each takes a value of its form and returns null, or else what was expected.
  template <class T>
  static const char* take(const Json& json, T& value) {
    if constexpr (std::is_enum_v<T>)
      return take_word(json, value);
    else
      return take_whole(json, value);
  }
  template <std::integral T>
  static const char* take_whole(const Json& json, T& value) {
    const auto fits = [&](auto number) {
      if (!std::in_range<T>(number)) return false;
      value = static_cast<T>(number);
      return true;
    };
    const bool good = json.is_number_unsigned()  ? fits(json.get<std::uint64_t>())
                      : json.is_number_integer() ? fits(json.get<std::int64_t>())
                                                 : false;
    return good ? nullptr : "a whole number in its range";
  }
  template <class Tag, class Int>
  static const char* take(const Json& json, Id<Tag, Int>& id) {
    Int value = 0;
    const char* form = take(json, value);
    if (!form) id = Id<Tag, Int>(value);
    return form;
  }
  template <class Word>
  static const char* take_word(const Json& json, Word& value) {
    constexpr int kWords = 16;  // more than any of them has
    const auto* text = json.get_ptr<const std::string*>();
    for (int i = 0; text && *text != "unknown" && i < kWords; ++i)
      if (*text == to_string(static_cast<Word>(i))) return value = static_cast<Word>(i), nullptr;
    return "one of its words";
  }
  static const char* take(const Json& json, bool& value) {
    if (!json.is_boolean()) return "true or false";
    return value = json.get<bool>(), nullptr;
  }
  // A number that is not finite was written as null; all of those are one NaN here.
  static const char* take(const Json& json, double& value) {
    if (!json.is_number() && !json.is_null()) return "a number";
    value = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
    return nullptr;
  }
  static const char* take(const Json& json, std::string& value) {
    const auto* text = json.get_ptr<const std::string*>();
    if (!text) return "a text";
    return value = *text, nullptr;
  }
  static const char* take(const Json& json, EpochId& id) {
    const auto* text = json.get_ptr<const std::string*>();
    const auto dot = text ? text->find('.') : std::string::npos;
    const bool good = dot != std::string::npos && whole(*text, 0, dot, 10, id.term) &&
                      whole(*text, dot + 1, text->size(), 10, id.counter);
    return good ? nullptr : "an epoch like \"1.7\"";
  }
  static const char* take(const Json& json, Digest& digest) {  // the high word first
    const auto* text = json.get_ptr<const std::string*>();
    const bool good = text && text->size() == 32 && whole(*text, 0, 16, 16, digest[1]) &&
                      whole(*text, 16, 32, 16, digest[0]);
    return good ? nullptr : "32 hex digits";
  }
  template <class T>
  static const char* take(const Json& json, std::optional<T>& value) {
    value.reset();
    return json.is_null() ? nullptr : take(json, value.emplace());
  }
  static const char* take(const Json& json, SegmentRange& range) {
    return take_two(json, range.first, range.count);
  }
  template <class A, class B>
  static const char* take(const Json& json, std::pair<A, B>& pair) {
    return take_two(json, pair.first, pair.second);
  }
  static const char* take_two(const Json& json, auto& first, auto& second) {
    const bool good =
        json.is_array() && json.size() == 2 && !take(json[0], first) && !take(json[1], second);
    return good ? nullptr : "pairs of whole numbers";
  }
  template <class T>
  static const char* take(const Json& json, std::vector<T>& values) {
    if (!json.is_array()) return "a list";
    values.clear();
    for (const Json& one : json)
      if (const char* form = take(one, values.emplace_back())) return form;
    return nullptr;
  }
  static const char* take(const Json& json, std::vector<event::EpochMember>& members) {
    if (!json.is_array()) return "a list";
    for (const Json& one : json) {
      Rank rank = 0;
      ReadFields f(one);
      if (one.is_object()) f("rank", rank), fields(f, members.emplace_back());
      if (!one.is_object() || !f.wrong().empty() || rank + 1 != members.size())
        return "members with rank, id, name, joiner and draining, in the order of ranks";
    }
    return nullptr;
  }
  static const char* take(const Json& json, Pause& pause) {
    ReadFields f(json);
    if (json.is_object()) fields(f, pause);
    return json.is_object() && f.wrong().empty() ? nullptr : "the parts of a pause in ms";
  }
  static const char* take(const Json& json, Machine& machine) {
    ReadFields f(json);
    if (json.is_object()) fields(f, machine);
    return json.is_object() && f.wrong().empty() ? nullptr : "what a machine has";
  }

  const Json& line_;
  std::string wrong_;
};

template <class Kind>
bool read_as(ReadFields& f, EventLine& line) {
  if (line.kind != Kind::kKind) return false;
  Kind event;
  fields(f, event);
  line.event = std::move(event);
  return true;
}

template <class... Kinds>
bool read_known(ReadFields& f, EventLine& line, std::variant<Kinds...>*) {
  return (read_as<Kinds>(f, line) || ...);
}

}  // namespace

Result<EventLine> read_event(std::string_view text) {
  const auto bad = [](const std::string& what) { return Error(Code::kBadInput, what); };
  if (text.size() > kEventLineBytesMax)
    return bad("longer than " + std::to_string(kEventLineBytesMax >> 20) + " MiB");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return bad("not a JSON object");
  EventLine line;
  ReadFields f(json);
  f("ev", line.kind);
  f("t", line.t);
  f.or_null("time", line.time);
  const bool known = read_known(f, line, static_cast<Event*>(nullptr));
  if (!f.wrong().empty()) return bad((known ? "`" + line.kind + "` " : "") + f.wrong());
  if (!(std::abs(line.t) <= kTimeMax)) return bad("has a wrong `t`, expected seconds");
  return line;
}

}  // namespace starling
