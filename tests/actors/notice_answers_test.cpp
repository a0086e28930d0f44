#include <doctest/doctest.h>

#include <random>

#include "actors/notices/answers.h"

namespace starling::actors {
namespace {

using std::chrono::seconds;
using std::chrono::sys_seconds;

// 2026-01-02T08:20:00Z.
constexpr sys_seconds kNow{seconds(1767342000)};

TEST_CASE("notices: times are read as RFC 3339 and RFC 1123 write them, and no others") {
  struct Case {
    const char* text;
    std::optional<long> after_now;  // seconds
  };
  const Case rfc3339[] = {
      {"2026-01-02T08:22:00Z", 120},
      {"2026-01-02T08:22:00.250Z", 120},
      {"2026-01-02T10:22:00+02:00", 120},
      {"2026-01-01T23:52:00-08:30", 120},
      {"2024-02-29T00:00:00Z", -58177200},
      {"2026-02-29T00:00:00Z", {}},  // no leap year
      {"2026-01-02T08:22:00", {}},
      {"2026-01-02 08:22:00Z", {}},
      {"2026-01-02T08:22Z", {}},
      {"2026-01-02T24:00:00Z", {}},
      {"2026-01-02T08:22:00.Z", {}},
      {"2026-01-02T08:22:00Zz", {}},
      {"2026-01-02T08:22:00+0200", {}},
      {"2026-1-2T8:22:00Z", {}},
      {"2026-01-02T08:22:-1Z", {}},
      {"Fri, 02 Jan 2026 08:22:00 GMT", {}},
      {"", {}},
  };
  for (const Case& c : rfc3339) {
    CAPTURE(c.text);
    const auto read = parse_rfc3339(c.text);
    REQUIRE(read.has_value() == c.after_now.has_value());
    if (read) CHECK((*read - kNow).count() == *c.after_now);
  }
  const Case rfc1123[] = {
      {"Fri, 02 Jan 2026 08:22:00 GMT", 120},
      {"Thu, 29 Feb 2024 00:00:00 GMT", -58177200},
      {"Fri, 2 Jan 2026 08:22:00 GMT", {}},
      {"Fri, 02 Jan 2026 08:22:00 CET", {}},
      {"02 Jan 2026 08:22:00 GMT", 120},
      {"Fri 02 Jan 2026 08:22:00 GMT", {}},
      {"Fri, 02 Jan 2026 08:22:00", {}},
      {"Fri, 02 January 2026 08:22:00 GMT", {}},
      {"Sun, 31 Nov 2026 08:22:00 GMT", {}},
      {"2026-01-02T08:22:00Z", {}},
      {"", {}},
  };
  for (const Case& c : rfc1123) {
    CAPTURE(c.text);
    const auto read = parse_rfc1123(c.text);
    REQUIRE(read.has_value() == c.after_now.has_value());
    if (read) CHECK((*read - kNow).count() == *c.after_now);
  }
}

TEST_CASE("notices: AWS's instance action is a leave until its time") {
  struct Case {
    const char* name;
    std::string body;
    std::optional<std::uint64_t> notice_ms;  // none: refused
  };
  const Case cases[] = {
      {"terminate", R"({"action":"terminate","time":"2026-01-02T08:22:00Z"})", 120000},
      {"stop", R"({"action": "stop", "time": "2026-01-02T08:21:00Z"})", 60000},
      {"an action not known", R"({"action":"recycle","time":"2026-01-02T08:22:00Z"})", 120000},
      {"no time: it has begun", R"({"action":"hibernate"})", 30000},
      {"a time long ago: this clock is wrong", R"({"action":"stop","time":"1999-01-01T00:00:00Z"})",
       5000},
      {"a time far away", R"({"action":"stop","time":"9999-01-01T00:00:00Z"})", 86400000},
      {"two seconds", R"({"action":"stop","time":"2026-01-02T08:20:02Z"})", 2000},
      {"eleven seconds", R"({"action":"stop","time":"2026-01-02T08:20:11Z"})", 11000},
      {"a time as others write it", R"({"action":"stop","time":"Fri, 02 Jan 2026 08:22:00 GMT"})",
       120000},
      {"a time of another form", R"({"action":"stop","time":"in two minutes"})", 30000},
      {"a time that is no text", R"({"action":"stop","time":5})", 30000},
      {"no action", R"({"time":"2026-01-02T08:22:00Z"})", 120000},
      {"an action that is no text", R"({"action":["stop"]})", 30000},
      {"a list", R"(["terminate"])", {}},
      {"cut short", R"({"action":"terminate","time":"2026-)", {}},
      {"not JSON", "<html>busy</html>", {}},
      {"nothing", "", {}},
      {"too large", R"({"action":"stop","x":")" + std::string(kAnswerBytesMax, 'x') + "\"}", {}},
      {"deep", std::string(30000, '[') + std::string(30000, ']'), {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto notice = parse_aws_action(c.body, kNow);
    REQUIRE(notice.has_value() == c.notice_ms.has_value());
    if (!notice) continue;
    CHECK(notice.value().leave);
    CHECK(notice.value().source == "aws");
    CHECK(notice.value().notice_ms == *c.notice_ms);
  }
}

TEST_CASE("notices: what a cloud writes is shown short and printable") {
  const auto notice =
      parse_aws_action(R"({"action":"\u001b[2Jgone\n)" + std::string(5000, 'a') + "\"}", kNow);
  REQUIRE(notice);
  CHECK(notice.value().text.size() <= kNoticeTextMax);
  CHECK(notice.value().text.find('\x1b') == std::string::npos);
  CHECK(notice.value().text.find('\n') == std::string::npos);
}

TEST_CASE("notices: a rebalance recommendation is a hint") {
  const auto hint = parse_aws_rebalance(R"({"noticeTime":"2026-01-02T08:10:00Z"})");
  REQUIRE(hint);
  CHECK_FALSE(hint.value().leave);
  CHECK(hint.value().text == "rebalance recommendation of 2026-01-02T08:10:00Z");
  CHECK_FALSE(parse_aws_rebalance(R"({"noticeTime":"soon"})").value().leave);
  CHECK(parse_aws_rebalance("{}").value().text == "rebalance recommendation");
  CHECK_FALSE(parse_aws_rebalance("[]"));
}

TEST_CASE("notices: AWS's maintenance is a hint until its time is near, then a leave") {
  struct Case {
    const char* name;
    std::string fields;
    int events;
    bool leave;
    std::uint64_t notice_ms;
  };
  const Case cases[] = {
      {"next week", R"("Code":"system-reboot","NotBefore":"9 Jan 2026 08:20:00 GMT")", 1, true,
       30000},  // no time that can be read
      {"next week", R"("Code":"system-reboot","NotBefore":"09 Jan 2026 08:20:00 GMT")", 1, false,
       0},
      {"in five minutes", R"("Code":"instance-stop","NotBefore":"02 Jan 2026 08:25:00 GMT")", 1,
       true, 300000},
      {"begun", R"("Code":"instance-retirement","NotBefore":"02 Jan 2026 08:19:00 GMT")", 1, true,
       5000},
      {"no time", R"("Code":"instance-stop")", 1, true, 30000},
      {"no code", R"("NotBefore":"02 Jan 2026 08:25:00 GMT")", 1, true, 300000},
      {"over", R"("Code":"instance-stop","State":"Completed")", 0, false, 0},
      {"not to come", R"("Code":"instance-stop","State":"canceled")", 0, false, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.fields);
    const auto read = parse_aws_maintenance(
        R"([5,{"EventId":"instance-event-0d59937288b749b32","State":"active",)" + c.fields + "}]",
        kNow);
    REQUIRE(read);
    CHECK(read.value().unreadable == 1);
    REQUIRE(static_cast<int>(read.value().events.size()) == c.events);
    if (c.events == 0) continue;
    CHECK(read.value().events[0].id == "instance-event-0d59937288b749b32");
    CHECK(read.value().events[0].notice.leave == c.leave);
    CHECK(read.value().events[0].notice.notice_ms == c.notice_ms);
  }
  CHECK(parse_aws_maintenance("[]", kNow).value().events.empty());
  for (const char* other : {"", "{}", "<html>", "[1"})
    CHECK_FALSE(parse_aws_maintenance(other, kNow));
}

TEST_CASE("notices: GCP's maintenance is a hint if the machine goes on elsewhere, else a leave") {
  CHECK_FALSE(parse_gcp_maintenance("NONE\n").value());
  CHECK_FALSE(parse_gcp_maintenance("none").value());
  const auto moved = parse_gcp_maintenance("MIGRATE_ON_HOST_MAINTENANCE").value();
  REQUIRE(moved);
  CHECK_FALSE(moved->leave);
  for (const char* word :
       {"TERMINATE_ON_HOST_MAINTENANCE", "terminate_on_host_maintenance", "SOON"}) {
    const auto notice = parse_gcp_maintenance(word).value();
    REQUIRE(notice);
    CHECK(notice->leave);
    CHECK(notice->notice_ms == 45000);
    CHECK(notice->text == std::string("maintenance event ") + word);
  }
  for (const char* other : {"", "NO NE", "<html>", "{}"}) CHECK_FALSE(parse_gcp_maintenance(other));
}

TEST_CASE("notices: a token goes into a header, so it is printable and short") {
  CHECK(parse_aws_token("AQAEAabc==\n").value() == "AQAEAabc==");
  CHECK_FALSE(parse_aws_token(""));
  CHECK_FALSE(parse_aws_token("a b"));
  CHECK_FALSE(parse_aws_token("a\r\nHost: b"));
  CHECK_FALSE(parse_aws_token("\xc3\xa9"));
  CHECK_FALSE(parse_aws_token(std::string(1025, 'a')));
}

TEST_CASE("notices: GCP says TRUE or FALSE") {
  CHECK(parse_gcp_preempted("TRUE").value());
  CHECK_FALSE(parse_gcp_preempted("FALSE\n").value());
  CHECK(parse_gcp_preempted("true").value());
  for (const char* other : {"", "TRUE FALSE", "1", "<html>"})
    CHECK_FALSE(parse_gcp_preempted(other));
}

std::string azure(const std::string& fields) {
  return R"({"DocumentIncarnation":1,"Events":[{"EventId":"e-1",)" + fields + "}]}";
}

TEST_CASE("notices: of Azure's events, those count that name this machine") {
  struct Case {
    const char* name;
    std::string body;
    int events;               // -1: refused
    bool leave;               // of the first
    std::uint64_t notice_ms;  // of the first
  };
  const std::string mine = R"("Resources":["other","vm_3"],)";
  const std::string in_a_minute = R"("NotBefore":"Fri, 02 Jan 2026 08:21:00 GMT")";
  const Case cases[] = {
      {"preempt", azure(mine + R"("EventType":"Preempt",)" + in_a_minute), 1, true, 60000},
      {"reboot", azure(mine + R"("EventType":"Reboot",)" + in_a_minute), 1, true, 60000},
      {"one not known", azure(mine + R"("EventType":"Recycle",)" + in_a_minute), 1, true, 60000},
      {"freeze is a hint", azure(mine + R"("EventType":"Freeze",)" + in_a_minute), 1, false, 0},
      {"begun", azure(mine + R"("EventType":"Preempt","NotBefore":"")"), 1, true, 30000},
      {"two seconds", azure(mine + R"("EventType":"Preempt","NotBefore":"2026-01-02T08:20:02Z")"),
       1, true, 2000},
      {"other letters' case", azure(R"("Resources":["VM_3"],"EventType":"PREEMPT",)" + in_a_minute),
       1, true, 60000},
      {"freeze in other letters", azure(mine + R"("EventType":"freeze",)" + in_a_minute), 1, false,
       0},
      {"a line before the name", azure(R"("Resources":["_vm_3"],"EventType":"Preempt")"), 1, true,
       30000},
      {"no list of names", azure(R"("Resources":"Vm_3","EventType":"Preempt")"), 1, true, 30000},
      {"another machine's", azure(R"("Resources":["vm_30"],"EventType":"Preempt")"), 0, false, 0},
      {"nobody's", azure(R"("EventType":"Preempt")"), 0, false, 0},
      {"none", R"({"DocumentIncarnation":1,"Events":[]})", 0, false, 0},
      {"time of another form", azure(mine + R"("EventType":"Preempt","NotBefore":"soon")"), 1, true,
       30000},
      {"time that is no text", azure(mine + R"("EventType":"Preempt","NotBefore":5)"), 1, true,
       30000},
      {"no type", azure(mine + in_a_minute), 1, true, 60000},
      {"no list", R"({"Events":{}})", -1, false, 0},
      {"events that are none", R"({"Events":[1]})", 0, false, 0},
      {"one that is none before one", R"({"Events":[1,{"EventId":"e-1","Resources":["vm_3"]}]})", 1,
       true, 30000},
      {"no events", "{}", -1, false, 0},
      {"not JSON", "Bad request", -1, false, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto events = parse_azure_events(c.body, "vm_3", kNow);
    REQUIRE((events ? static_cast<int>(events.value().events.size()) : -1) == c.events);
    if (c.events <= 0) continue;
    CHECK(events.value().events[0].id == "e-1");
    CHECK(events.value().events[0].notice.leave == c.leave);
    CHECK(events.value().events[0].notice.notice_ms == c.notice_ms);
  }
}

// What cannot be said again is not said again, and the notice counts all the same.
TEST_CASE("notices: an event without an id that can be said is a notice") {
  for (const char* id : {R"("EventId":"a b",)", R"("EventId":7,)", ""}) {
    CAPTURE(id);
    const auto events = parse_azure_events(
        std::string(R"({"Events":[{)") + id + R"("EventType":"Preempt","Resources":["vm_3"]}]})",
        "vm_3", kNow);
    REQUIRE(events);
    REQUIRE(events.value().events.size() == 1);
    CHECK(events.value().events[0].id.empty());
    CHECK(events.value().events[0].notice.leave);
  }
}

// Goal: no bytes at all crash a reader, and what is accepted is bounded.
// Method: valid answers with random bytes overwritten, cut and doubled.
TEST_CASE("notices: mutated answers never crash and stay within bounds") {
  const std::string valid[] = {
      R"({"action":"terminate","time":"2026-01-02T08:22:00.5+01:00"})",
      R"({"noticeTime":"2026-01-02T08:10:00Z"})",
      "TRUE",
      "TERMINATE_ON_HOST_MAINTENANCE",
      R"([{"Code":"system-reboot","NotBefore":"02 Jan 2026 08:21:00 GMT","EventId":"e-2"}])",
      azure(R"("Resources":["vm_3"],"EventType":"Preempt",)"
            R"("NotBefore":"Fri, 02 Jan 2026 08:21:00 GMT")"),
  };
  std::mt19937_64 random(20260102);
  std::size_t accepted = 0;
  const auto bounded = [&](const Notice& notice) {
    ++accepted;
    CHECK(notice.text.size() <= kNoticeTextMax);
    CHECK(notice.notice_ms <= 1000ull * kNoticeMax.count());
    if (notice.leave) CHECK(notice.notice_ms >= 1000ull);
  };
  for (int i = 0; i < 40000; ++i) {
    std::string body = valid[random() % std::size(valid)];
    for (auto n = random() % 4; n > 0 && !body.empty(); --n) {
      const auto at = random() % body.size();
      switch (random() % 4) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, random() % 8);
          break;
        case 2:
          body.insert(at, body.substr(random() % body.size(), random() % 40));
          break;
        default:
          body[at] = "0123456789\"{}[],:"[random() % 17];
          break;
      }
    }
    if (const auto n = parse_aws_action(body, kNow)) bounded(n.value());
    if (const auto n = parse_aws_rebalance(body)) bounded(n.value());
    if (const auto p = parse_gcp_preempted(body)) ++accepted;
    if (const auto m = parse_gcp_maintenance(body); m && m.value()) bounded(*m.value());
    if (const auto e = parse_aws_maintenance(body, kNow))
      for (const auto& event : e.value().events) bounded(event.notice);
    if (const auto e = parse_azure_events(body, "vm_3", kNow))
      for (const auto& event : e.value().events) bounded(event.notice);
  }
  CHECK(accepted > 1000);  // the mutations are mild enough to get past the first checks
}

}  // namespace
}  // namespace starling::actors
