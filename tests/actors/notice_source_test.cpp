#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "actors/notices/answers.h"
#include "actors/notices/source.h"

namespace starling::actors {
namespace {

using namespace std::chrono_literals;
using std::chrono::sys_seconds;

constexpr sys_seconds kSourceNow{std::chrono::seconds(1767342000)};  // 2026-01-02T08:20:00Z

// One exchange of a conversation: what it must ask, and how it is answered.
struct Turn {
  std::string asks;    // METHOD target
  std::string header;  // one that it must send, "name: value"; empty: any
  long after_s;        // waits so long before
  unsigned status;     // 0: no answer
  std::string body;
  std::string etag;
  std::string notices;  // what is given then: "leave 120000", "hint"
  bool warns = false;
};

void talk(NoticeSource& source, const std::vector<Turn>& turns) {
  for (const Turn& turn : turns) {
    CAPTURE(turn.asks);
    CAPTURE(&turn - turns.data());
    const Ask ask = source.next();
    CHECK(ask.request.method + " " + ask.request.target == turn.asks);
    CHECK(ask.after == std::chrono::seconds(turn.after_s));
    bool sent = turn.header.empty();
    for (const auto& [name, value] : ask.request.headers)
      sent = sent || name + ": " + value == turn.header;
    CHECK(sent);
    const HttpAnswer answer{turn.status, turn.body, turn.etag};
    const Heard heard = source.hear(turn.status == 0 ? nullptr : &answer, kSourceNow);
    std::string given;
    for (const Notice& n : heard.notices)
      given += (given.empty() ? "" : ", ") +
               (n.leave ? "leave " + std::to_string(n.notice_ms) : std::string("hint"));
    CHECK(given == turn.notices);
    CHECK(heard.warning.empty() != turn.warns);
  }
}

const std::string kToken = "PUT /latest/api/token";
const std::string kAction = "GET /latest/meta-data/spot/instance-action";
const std::string kRebalance = "GET /latest/meta-data/events/recommendations/rebalance";
const std::string kTtl = "X-aws-ec2-metadata-token-ttl-seconds: 21600";
const std::string kWithT1 = "X-aws-ec2-metadata-token: t1";
const std::string kWithT2 = "X-aws-ec2-metadata-token: t2";
const std::string kTerminate = R"({"action":"terminate","time":"2026-01-02T08:22:00Z"})";

const std::string kMaintenance = "GET /latest/meta-data/events/maintenance/scheduled";

TEST_CASE("notices: AWS is asked with a token, every five seconds, and gives a notice once") {
  const std::string rebalance = R"({"noticeTime":"2026-01-02T08:20:00Z"})";
  const auto reboot = [](const char* time) {
    return R"([{"EventId":"e","Code":"system-reboot","NotBefore":"0)" + std::string(time) +
           R"("}])";
  };
  const std::string later = reboot("9 Jan 2026 08:20:00 GMT"),
                    soon = reboot("2 Jan 2026 08:25:00 GMT");
  talk(*make_source(Cloud::kAws), {{kToken, kTtl, 0, 200, "t1", "", ""},
                                   {kAction, kWithT1, 0, 404, "", "", ""},
                                   {kRebalance, kWithT1, 0, 404, "", "", ""},
                                   {kMaintenance, kWithT1, 0, 200, "[]", "", ""},
                                   {kAction, kWithT1, 5, 404, "", "", ""},
                                   {kRebalance, kWithT1, 0, 200, rebalance, "", "hint"},
                                   {kMaintenance, kWithT1, 0, 200, later, "", "hint"},
                                   {kAction, kWithT1, 5, 200, kTerminate, "", "leave 120000"},
                                   {kRebalance, kWithT1, 0, 200, rebalance, "", ""},
                                   {kMaintenance, kWithT1, 0, 200, later, "", ""},
                                   {kAction, kWithT1, 5, 200, kTerminate, "", ""},
                                   {kRebalance, kWithT1, 0, 404, "", "", ""},
                                   {kMaintenance, kWithT1, 0, 200, soon, "", "leave 300000"}});
}

TEST_CASE("notices: a token that AWS refuses is replaced") {
  talk(*make_source(Cloud::kAws), {{kToken, kTtl, 0, 200, "t1", "", ""},
                                   {kAction, kWithT1, 0, 404, "", "", ""},
                                   {kRebalance, kWithT1, 0, 401, "Unauthorized", "", ""},
                                   {kToken, kTtl, 5, 200, "t2", "", ""},
                                   {kRebalance, kWithT2, 0, 404, "", "", ""},
                                   {kMaintenance, kWithT2, 0, 404, "", "", ""},
                                   {kAction, kWithT2, 5, 200, kTerminate, "", "leave 120000"}});
}

TEST_CASE("notices: faults of AWS's service are outlived, and none of one path hides another's") {
  talk(*make_source(Cloud::kAws), {{kToken, kTtl, 0, 0, "", "", ""},
                                   {kToken, kTtl, 5, 403, "", "", "", true},
                                   {kToken, kTtl, 5, 200, "a b", "", "", true},
                                   {kToken, kTtl, 5, 200, "t1", "", ""},
                                   {kAction, kWithT1, 0, 500, "oops", "", "", true},
                                   {kRebalance, kWithT1, 0, 0, "", "", ""},
                                   {kMaintenance, kWithT1, 5, 0, "", "", ""},
                                   {kAction, kWithT1, 5, 200, "{", "", "", true},
                                   {kRebalance, kWithT1, 0, 200, "<html>", "", "", true},
                                   {kMaintenance, kWithT1, 0, 200, "[7]", "", "", true},
                                   {kAction, kWithT1, 5, 200, kTerminate, "", "leave 120000"}});
}

const std::string kPreempted = "GET /computeMetadata/v1/instance/preempted";
const std::string kChange = kPreempted + "?wait_for_change=true&timeout_sec=10&last_etag=";
const std::string kHost = "GET /computeMetadata/v1/instance/maintenance-event";
const std::string kFlavor = "Metadata-Flavor: Google";

TEST_CASE(
    "notices: GCP is asked to answer when the value changes, and for maintenance in between") {
  const auto source = make_source(Cloud::kGcp);
  talk(*source, {{kPreempted, kFlavor, 0, 200, "FALSE", "e1", ""},
                 {kHost, kFlavor, 0, 200, "NONE", "f1", ""}});
  CHECK(source->next().request.timeout > 10s);
  talk(*source, {{kChange + "e1", kFlavor, 1, 200, "FALSE", "e1", ""},
                 {kHost, kFlavor, 0, 200, "NONE", "f1", ""},
                 {kChange + "e1", kFlavor, 1, 200, "TRUE", "e2", "leave 10000"},
                 {kHost, kFlavor, 0, 200, "NONE", "f1", ""},
                 {kChange + "e2", kFlavor, 1, 200, "TRUE", "e2", ""}});
}

TEST_CASE("notices: GCP's maintenance of the host is a notice, each time that it is due") {
  const std::string ends = "TERMINATE_ON_HOST_MAINTENANCE", moves = "MIGRATE_ON_HOST_MAINTENANCE";
  const Turn waits{kChange + "e1", kFlavor, 1, 200, "FALSE", "e1", ""};
  const auto source = make_source(Cloud::kGcp);
  talk(*source, {{kPreempted, kFlavor, 0, 200, "FALSE", "e1", ""},
                 {kHost, kFlavor, 0, 200, moves, "", "hint"},
                 waits,
                 {kHost, kFlavor, 0, 200, moves, "", ""},
                 waits,
                 {kHost, kFlavor, 0, 200, "NONE", "", ""},
                 waits,
                 {kHost, kFlavor, 0, 200, ends, "", "leave 45000"},
                 waits,
                 {kHost, kFlavor, 0, 200, ends, "", ""},
                 waits,
                 {kHost, kFlavor, 0, 404, "", "", ""},
                 waits,
                 {kHost, kFlavor, 0, 500, "", "", "", true},
                 waits,
                 {kHost, kFlavor, 0, 0, "", "", ""},
                 {kChange + "e1", kFlavor, 1, 200, "TRUE", "e2", "leave 10000"}});
}

TEST_CASE("notices: faults of GCP's service are outlived, without a long poll after them") {
  const Turn none{kHost, kFlavor, 0, 200, "NONE", "", ""};
  talk(*make_source(Cloud::kGcp), {{kPreempted, kFlavor, 0, 0, "", "", ""},
                                   {kPreempted, kFlavor, 5, 503, "", "", "", true},
                                   {kPreempted, kFlavor, 5, 200, "maybe", "e1", "", true},
                                   {kPreempted, kFlavor, 5, 200, "FALSE", "", ""},
                                   none,
                                   {kPreempted, kFlavor, 5, 200, "FALSE", "e&x=1 ", ""},
                                   none,
                                   {kPreempted, kFlavor, 5, 200, "FALSE", "e1", ""},
                                   none,
                                   {kChange + "e1", kFlavor, 1, 0, "", "", ""},
                                   {kPreempted, kFlavor, 5, 200, "TRUE", "e2", "leave 10000"}});
}

const std::string kName = "GET /metadata/instance/compute/name?api-version=2021-02-01&format=text";
const std::string kEvents = "GET /metadata/scheduledevents?api-version=2020-07-01";
const std::string kMetadata = "Metadata: true";

std::string event(const std::string& id, const std::string& type, const std::string& machine) {
  return R"({"EventId":")" + id + R"(","EventType":")" + type + R"(","Resources":[")" + machine +
         R"("],"NotBefore":"Fri, 02 Jan 2026 08:20:40 GMT"})";
}
std::string events(const std::string& list) {
  return R"({"DocumentIncarnation":1,"Events":[)" + list + "]}";
}

TEST_CASE("notices: Azure's events are those of this machine, each given once") {
  const auto source = make_source(Cloud::kAzure);
  talk(*source, {{kName, kMetadata, 0, 200, "vm_3", "", ""}});
  CHECK(source->next().request.timeout > 120s);  // the first answer ever may take two minutes
  const std::string other = event("a", "Preempt", "vm_4"), freeze = event("b", "Freeze", "vm_3"),
                    preempt = event("c", "Preempt", "vm_3");
  talk(*source, {{kEvents, kMetadata, 0, 200, events(""), "", ""},
                 {kEvents, kMetadata, 5, 200, events(other), "", ""},
                 {kEvents, kMetadata, 5, 200, events(other + "," + freeze), "", "hint"},
                 {kEvents, kMetadata, 5, 200, events(freeze + "," + preempt), "", "leave 40000"},
                 {kEvents, kMetadata, 5, 200, events(preempt), "", ""}});
  CHECK(source->next().request.timeout == 1s);
}

TEST_CASE("notices: Azure's events that cannot be read hide none that can") {
  const auto source = make_source(Cloud::kAzure);
  talk(*source, {{kName, kMetadata, 0, 200, "vm_3", "", ""}});
  const std::string
      mine = event("c", "Preempt", "VM_3"),
      soon = R"({"EventId":"d","EventType":"Reboot","Resources":["vm_3"],"NotBefore":"soon"})",
      nameless = R"({"EventType":"Redeploy","Resources":["vm_3"]})";
  talk(*source,
       {{kEvents, kMetadata, 0, 200, events("5," + mine), "", "leave 40000", true},
        {kEvents, kMetadata, 5, 200, events(soon + "," + mine), "", "leave 30000"},
        {kEvents, kMetadata, 5, 200, events(nameless + "," + soon + "," + mine), "", "leave 30000"},
        {kEvents, kMetadata, 5, 200, events(nameless + "," + soon + "," + mine), "", ""}});
}

TEST_CASE("notices: faults of Azure's service are outlived") {
  talk(*make_source(Cloud::kAzure),
       {{kName, kMetadata, 0, 0, "", "", ""},
        {kName, kMetadata, 5, 410, "", "", "", true},
        {kName, kMetadata, 5, 200, "a name with blanks", "", "", true},
        {kName, kMetadata, 5, 200, "vm_3", "", ""},
        {kEvents, kMetadata, 0, 0, "", "", ""},
        {kEvents, kMetadata, 5, 500, "", "", "", true},
        {kEvents, kMetadata, 5, 200, "[]", "", "", true},
        {kEvents, kMetadata, 5, 200, events(event("c", "Preempt", "vm_3")), "", "leave 40000"}});
}

TEST_CASE("notices: only Azure is told when the state is handed over, and only of leaves") {
  for (const Cloud cloud : {Cloud::kAws, Cloud::kGcp, Cloud::kAzure})
    CHECK_FALSE(make_source(cloud)->handed_over());
  const auto source = make_source(Cloud::kAzure);
  talk(*source, {{kName, kMetadata, 0, 200, "vm_3", "", ""},
                 {kEvents, kMetadata, 0, 200, events(event("f", "Freeze", "vm_3")), "", "hint"}});
  CHECK_FALSE(source->handed_over());
  talk(*source, {{kEvents, kMetadata, 5, 200,
                  events(event("f", "Freeze", "vm_3") + "," + event("p", "Preempt", "vm_3") + "," +
                         event("q", "Preempt", "vm_4")),
                  "", "leave 40000"}});
  const auto request = source->handed_over();
  REQUIRE(request);
  CHECK(request->method == "POST");
  CHECK(request->target == "/metadata/scheduledevents?api-version=2020-07-01");
  CHECK(request->body == R"({"StartRequests":[{"EventId":"p"}]})");
}

// Goal: whatever a service answers, and at once, it is not asked in a loop, and nothing that it
// wrote breaks the next request. Method: random answers; the waits are added up.
TEST_CASE("notices: no answer makes a busy loop or a broken request") {
  const std::string bodies[] = {"t1",       "TRUE", "FALSE",
                                "vm_3",     "",     "\r\nX: y",
                                kTerminate, "{",    events(event("p", "Preempt", "vm_3"))};
  const std::string etags[] = {"", "e1", "a b", "\r\n"};
  const unsigned statuses[] = {0, 200, 200, 200, 401, 404, 500};
  std::mt19937_64 random(20260102);
  const auto clean = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  };
  for (const Cloud cloud : {Cloud::kAws, Cloud::kGcp, Cloud::kAzure})
    for (int run = 0; run < 20; ++run) {
      const auto source = make_source(cloud);
      std::chrono::milliseconds waited{0};
      const int asks = 600;
      for (int i = 0; i < asks; ++i) {
        const Ask ask = source->next();
        waited += ask.after;
        CHECK(clean(ask.request.target));
        CHECK(ask.request.target.find(' ') == std::string::npos);
        for (const auto& [name, value] : ask.request.headers) CHECK(clean(name + value));
        HttpAnswer answer{statuses[random() % std::size(statuses)],
                          bodies[random() % std::size(bodies)], etags[random() % std::size(etags)]};
        source->hear(answer.status == 0 ? nullptr : &answer, kSourceNow);
      }
      CHECK(waited >= (asks - 3) * 500ms);
    }
}

}  // namespace
}  // namespace starling::actors
