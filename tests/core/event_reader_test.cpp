// The lines of events.jsonl, and events read from them.

#include "core/observe/event_reader.h"

#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/observe/event_line.h"
#include "core/observe/events.h"
#include "tests/core/event_samples.h"
#include "tests/core/has.h"
#include "tests/core/job_text.h"
#include "tests/core/observe_helpers.h"

namespace starling {
namespace {

constexpr const char* kTime = "\"t\":1.5,\"time\":\"2026-03-01T12:00:00.000125Z\",";

// A golden line has no time: it begins with its kind.
std::string with_time(const std::string& line) {
  return "{" + (kTime + line.substr(1));
}

std::vector<std::string> golden() {
  std::ifstream file("tests/core/event_lines.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string why_not(const std::string& line) {
  const auto read = read_event(line);
  if (read) return "";
  CHECK(read.error().code() == Code::kBadInput);
  CHECK(read.error().text().find('\n') == std::string::npos);
  return read.error().text();
}

}  // namespace

// Goal: files of old runs stay readable, and whatever reads events elsewhere goes on.
// Method: lines that were written before there was a struct for each kind, byte for byte.
TEST_CASE("events: the line of every kind is what it always was") {
  const auto lines = golden();
  const auto events = samples::events();
  REQUIRE(lines.size() == events.size());
  std::set<std::size_t> kinds;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(event_text(events[i]) == lines[i]);
    kinds.insert(events[i].index());
  }
  CHECK(kinds.size() == std::variant_size_v<Event>);
}

TEST_CASE("events: the writer puts a time before it") {
  const ObserveFolder folder("event_times");
  const auto writer = EventWriter::open(folder.path()).value();
  for (const Event& event : samples::events())
    if (!std::holds_alternative<event::Ended>(event) &&
        !std::holds_alternative<event::Failed>(event))
      REQUIRE(writer->write(event));
  REQUIRE(writer->flush());
  std::ifstream file(folder.file());
  std::string line;
  for (const std::string& expected : golden()) {
    if (expected.starts_with("{\"ev\":\"ended\"")) break;  // nothing follows `done`
    REQUIRE(std::getline(file, line));
    const auto kind = line.find("\"ev\":");
    REQUIRE(kind != std::string::npos);
    CHECK("{" + line.substr(kind) == expected);
    CHECK(utc_of(read_event(line).value().time) > 0);
  }
  CHECK_FALSE(std::getline(file, line));
}

// A NaN is no value that equals itself, and what is not UTF-8 was replaced when it was written: so
// the second time around is compared, and the first where there is neither.
TEST_CASE("events: what is read is what was written") {
  std::size_t equal = 0;
  for (const Event& event : samples::events()) {
    const std::string text = event_text(event);
    CAPTURE(text);
    const auto read = read_event(with_time(text));
    REQUIRE(read);
    const auto& [t, time, kind, again] = read.value();
    CHECK(t == 1.5);
    CHECK(utc_of(time) == 1772366400000125);
    CHECK(kind == kind_of(event));
    REQUIRE(again);
    CHECK(again->index() == event.index());
    CHECK(event_text(*again) == text);
    equal += *again == event;
  }
  // A step, an end, an epoch and two evaluations with what is not finite, and three texts that are not
  // UTF-8.
  CHECK(samples::events().size() - equal == 8);
}

TEST_CASE("events: fields that nobody knows are passed over, and kinds too") {
  const std::string text = event_text(samples::started());
  const auto more = read_event(with_time(replaced(text, "\"name\":", "\"hat\":[{}],\"name\":")));
  REQUIRE(more);
  CHECK(*more.value().event == Event(samples::started()));
  const auto other = read_event(R"({"t":3,"ev":"eclipse","sun":null})");
  REQUIRE(other);
  CHECK(other.value().kind == "eclipse");
  CHECK(other.value().t == 3);
  CHECK(other.value().time.empty());
  CHECK_FALSE(other.value().event);
}

TEST_CASE("events: a member's role is told where it does not do both") {
  event::EpochFormed epoch = event::formed(samples::plan_of_two());
  CHECK(event_text(Event(epoch)).find("role") == std::string::npos);
  epoch.members[0].role = WorkerRole::kHold;
  epoch.members[1].role = WorkerRole::kCompute;
  const std::string text = with_time(event_text(Event(epoch)));
  CHECK(text.find("\"draining\":false,\"role\":\"hold\"}") != std::string::npos);
  const auto read = read_event(text);
  REQUIRE(read);
  const auto& members = std::get<event::EpochFormed>(*read.value().event).members;
  CHECK(members[0].role == WorkerRole::kHold);
  CHECK(members[1].role == WorkerRole::kCompute);
  CHECK_FALSE(why_not(replaced(text, "\"hold\"", "\"rest\"")).empty());
}

// What can be null was not told by versions before: it may be missing.
TEST_CASE("events: every field must be there but those that can be null") {
  const std::set<std::string> may_be_missing = {
      "time",      "phase", "reason",        "base",    "begin",    "detect_ms", "form_ms",
      "resume_ms", "pause", "seconds",       "digest",  "metrics",  "scale",     "last",
      "wrong",     "rate",  "chunk_samples", "machine", "peak_rate"};
  for (const std::string& line : golden()) {
    const auto whole = nlohmann::json::parse(with_time(line));
    for (const auto& item : whole.items()) {
      const std::string name = item.key();
      CAPTURE(line);
      CAPTURE(name);
      auto less = whole;
      less.erase(name);
      const bool of_step = whole.at("ev") == "step";
      const bool of_end = whole.at("ev") == "ended";
      const bool optional = (may_be_missing.count(name) != 0 || (of_step && name == "direct") ||
                             (of_end && name == "checkpoint")) &&
                            (name != "digest" || of_step) &&
                            (name != "reason" || whole.at("ev") == "worker");
      CHECK(why_not(less.dump()).empty() == optional);
      // Of another form: an empty object is the form of no field.
      auto other = whole;
      other[name] = nlohmann::json::object();
      const std::string why = why_not(other.dump());
      CHECK_MESSAGE(has(why, "has a wrong `" + name + "`, expected "), why);
    }
  }
}

TEST_CASE("events: what is no event is refused in one line that says why") {
  const auto of_kind = [](const std::string& rest) { return "{\"t\":1,\"ev\":" + rest + "}"; };
  const struct {
    std::string line, why;
  } cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{\"t\":1", "not a JSON object"},
      {"{\"t\":1,\"ev\":\"warning\",\"text\":\"\xff\"}", "not a JSON object"},
      {std::string(100'000, '['), "not a JSON object"},
      {"{\"t\":1e999,\"ev\":\"x\"}", "not a JSON object"},
      {"{}", "has no `ev`, expected a text"},
      {"{\"ev\":\"x\"}", "has no `t`, expected a number"},
      {"{\"t\":1e300,\"ev\":\"x\"}", "has a wrong `t`, expected seconds"},
      {"{\"t\":null,\"ev\":\"x\"}", "has a wrong `t`, expected seconds"},
      {of_kind(R"("leader","term":-1,"coordinator":0,"pid":0,"election_ms":0)"),
       "`leader` has a wrong `term`, expected a whole number in its range"},
      {of_kind(R"("leader","term":18446744073709551616,"coordinator":0,"pid":0,"election_ms":0)"),
       "`leader` has a wrong `term`"},
      {of_kind(R"("leader","term":1,"coordinator":4294967296,"pid":0,"election_ms":0)"),
       "`leader` has a wrong `coordinator`"},
      {of_kind(R"("failed","code":2147483648,"reason":"")"), "`failed` has a wrong `code`"},
      {of_kind(R"("restart","version":1,"lost":"1","cause":"")"), "expected an epoch like \"1.7\""},
      {of_kind(R"("restart","version":1,"lost":"1.","cause":"")"), "`restart` has a wrong `lost`"},
      {of_kind(R"("restart","version":1,"lost":"1.2.3","cause":"")"), "has a wrong `lost`"},
      {of_kind(R"("restart","version":1,"lost":"-1.2","cause":"")"), "has a wrong `lost`"},
      {of_kind(R"("done","version":1,"digest":"0123","loss":1)"), "expected 32 hex digits"},
      {of_kind(R"("worker","id":1,"what":"unknown","name":"","pid":0)"),
       "expected one of its words"},
      {of_kind(R"("worker","id":1,"what":"went","name":"","pid":0)"), "has a wrong `what`"},
      {of_kind(R"("ledger","version":1,"epoch":"1.1","workers":[[1]])"), "has a wrong `workers`"},
      {of_kind(R"("ledger","version":1,"epoch":"1.1","workers":[[1,2,3]])"), "expected pairs"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.line.substr(0, 100));
    const std::string why = why_not(c.line);
    CHECK_MESSAGE(has(why, c.why), why);
  }
  CHECK(has(why_not(std::string(kEventLineBytesMax + 1, ' ')), "longer than 64 MiB"));
}

// The place of a member in the list is its rank.
TEST_CASE("events: members stand in the order of their ranks") {
  const std::string line = with_time(event_text(event::formed(samples::plan_of_two())));
  CHECK(why_not(line).empty());
  CHECK(has(why_not(replaced(line, "\"rank\":1", "\"rank\":2")), "has a wrong `members`"));
  CHECK(has(why_not(replaced(line, "\"joiner\":true,", "")), "has a wrong `members`"));
}

}  // namespace starling
