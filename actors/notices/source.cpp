#include "actors/notices/source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "actors/notices/answers.h"

namespace starling::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::sys_seconds;
using namespace std::chrono_literals;

constexpr seconds kPoll{5};

std::string status_of(const HttpAnswer& answer) {
  return "answered " + std::to_string(answer.status);
}

// EventList gives each event of a service once, and once more when a hint becomes a leave.
class EventList {
 public:
  Heard take(Result<MachineEvents> answered) {
    if (!answered) return {{}, answered.error().text()};
    Heard heard;
    for (const MachineEvent& event : answered.value().events)
      if (!known(event)) heard.notices.push_back(event.notice);
    if (answered.value().unreadable > 0) heard.warning = "a list with entries that are no events";
    events_ = std::move(answered).value().events;
    return heard;
  }
  const std::vector<MachineEvent>& events() const { return events_; }

 private:
  bool known(const MachineEvent& event) const {
    return std::any_of(events_.begin(), events_.end(), [&](const MachineEvent& other) {
      const bool same =
          event.id.empty() ? other.notice.text == event.notice.text : other.id == event.id;
      return same && other.notice.leave == event.notice.leave;
    });
  }

  std::vector<MachineEvent> events_;  // of the last answer
};

// ---- AWS --------------------------------------------------------------------------------------

class Aws : public NoticeSource {
 public:
  Ask next() const override {
    HttpRequest request;
    if (token_.empty()) {
      request.method = "PUT";
      request.target = "/latest/api/token";
      request.headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}};
    } else {
      request.target = kTargets[asking_];
      request.headers = {{"X-aws-ec2-metadata-token", token_}};
    }
    return {after_, std::move(request)};
  }

  Heard hear(const HttpAnswer* answer, sys_seconds now) override {
    after_ = kPoll;
    if (token_.empty()) return answer != nullptr ? take_token(*answer) : Heard{};
    if (answer != nullptr && answer->status == 401) {
      token_.clear();  // it ran out
      return {};
    }
    const std::size_t asked = std::exchange(asking_, (asking_ + 1) % std::size(kTargets));
    if (answer == nullptr) return {};  // a target without an answer holds up no other
    if (asking_ != 0) after_ = 0s;
    if (answer->status == 404) return {};  // nothing is planned
    if (answer->status != 200) return {{}, status_of(*answer)};
    if (asked == 0) return take_one(given_action_, *answer, parse_aws_action(answer->body, now));
    if (asked == 1) return take_one(given_rebalance_, *answer, parse_aws_rebalance(answer->body));
    return maintenance_.take(parse_aws_maintenance(answer->body, now));
  }

 private:
  Heard take_token(const HttpAnswer& answer) {
    if (answer.status != 200) return {{}, status_of(answer) + " when asked for a token"};
    auto token = parse_aws_token(answer.body);
    if (!token) return {{}, token.error().text()};
    token_ = std::move(token).value();
    after_ = 0s;
    return {};
  }

  static Heard take_one(std::string& given, const HttpAnswer& answer, Result<Notice> notice) {
    if (!notice) return {{}, notice.error().text()};
    if (std::exchange(given, answer.body) == answer.body) return {};
    return {{std::move(notice).value()}, {}};
  }

  static constexpr const char* kTargets[] = {"/latest/meta-data/spot/instance-action",
                                             "/latest/meta-data/events/recommendations/rebalance",
                                             "/latest/meta-data/events/maintenance/scheduled"};
  std::string token_;
  std::size_t asking_ = 0;  // of the targets
  milliseconds after_{0};
  std::string given_action_, given_rebalance_;
  EventList maintenance_;
};

// ---- GCP --------------------------------------------------------------------------------------

class Gcp : public NoticeSource {
 public:
  Ask next() const override {
    HttpRequest request;
    request.headers = {{"Metadata-Flavor", "Google"}};
    if (asking_maintenance_) {
      request.target = "/computeMetadata/v1/instance/maintenance-event";
      return {after_, std::move(request)};
    }
    request.target = "/computeMetadata/v1/instance/preempted";
    if (!etag_.empty()) {
      // GCP answers when the value differs from the one with this tag, or the time is over.
      request.target += "?wait_for_change=true&timeout_sec=10&last_etag=" + etag_;
      request.timeout = 15s;
    }
    return {after_, std::move(request)};
  }

  Heard hear(const HttpAnswer* answer, sys_seconds) override {
    after_ = kPoll;
    if (std::exchange(asking_maintenance_, false)) {
      // Leaves a gap, so that a service that does not wait is not asked in a loop.
      if (!etag_.empty()) after_ = kGap;
      return answer != nullptr ? take_maintenance(*answer) : Heard{};
    }
    if (answer == nullptr || answer->status != 200) {
      etag_.clear();
      return {{}, answer ? status_of(*answer) : ""};
    }
    const auto preempted = parse_gcp_preempted(answer->body);
    if (!preempted) {
      etag_.clear();
      return {{}, preempted.error().text()};
    }
    etag_ = tag_of(answer->etag);
    asking_maintenance_ = true;
    after_ = 0s;
    if (!preempted.value() || std::exchange(given_, true)) return {};
    constexpr auto left = milliseconds(kGcpPreemption).count();
    return {{{"gcp", "preempted", static_cast<std::uint64_t>(left), true}}, {}};
  }

 private:
  static constexpr seconds kGap{1};

  Heard take_maintenance(const HttpAnswer& answer) {
    if (answer.status == 404) return {};  // a service without this value
    if (answer.status != 200) return {{}, status_of(answer)};
    auto due = parse_gcp_maintenance(answer.body);
    if (!due) return {{}, due.error().text()};
    std::optional<Notice> notice = std::move(due).value();
    const std::string text = notice ? notice->text : "";
    if (std::exchange(given_maintenance_, text) == text || !notice) return {};
    return {{*std::move(notice)}, {}};
  }

  // Returns the tag if it may stand in a query as it is; else empty, and there is no long poll.
  static std::string tag_of(const std::string& etag) {
    const bool plain = etag.size() <= 128 && std::all_of(etag.begin(), etag.end(), [](char c) {
                         return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
                       });
    return plain ? etag : "";
  }

  std::string etag_;
  bool asking_maintenance_ = false;
  bool given_ = false;
  std::string given_maintenance_;  // its text
  milliseconds after_{0};
};

// ---- Azure ------------------------------------------------------------------------------------

class Azure : public NoticeSource {
 public:
  Ask next() const override {
    HttpRequest request;
    request.headers = {{"Metadata", "true"}};
    if (name_.empty()) {
      request.target = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
    } else {
      request.target = kEvents;
      // The first request ever makes the service start, which may take two minutes.
      if (!answered_) request.timeout = 130s;
    }
    return {after_, std::move(request)};
  }

  Heard hear(const HttpAnswer* answer, sys_seconds now) override {
    after_ = kPoll;
    if (answer == nullptr) return {};
    answered_ = !name_.empty();
    if (answer->status != 200) return {{}, status_of(*answer)};
    if (name_.empty()) {
      auto name = parse_azure_name(answer->body);
      if (!name) return {{}, name.error().text()};
      name_ = std::move(name).value();
      after_ = 0s;
      return {};
    }
    return events_.take(parse_azure_events(answer->body, name_, now));
  }

  std::optional<HttpRequest> handed_over() const override {
    nlohmann::json ids = nlohmann::json::array();
    for (const MachineEvent& event : events_.events())
      if (event.notice.leave && !event.id.empty()) ids.push_back({{"EventId", event.id}});
    if (ids.empty()) return std::nullopt;
    HttpRequest request;
    request.method = "POST";
    request.target = kEvents;
    request.headers = {{"Metadata", "true"}, {"Content-Type", "application/json"}};
    request.body = nlohmann::json{{"StartRequests", std::move(ids)}}.dump();
    return request;
  }

 private:
  static constexpr const char* kEvents = "/metadata/scheduledevents?api-version=2020-07-01";

  std::string name_;
  bool answered_ = false;  // when asked for events
  milliseconds after_{0};
  EventList events_;
};

}  // namespace

const char* name_of(Cloud cloud) {
  switch (cloud) {
    case Cloud::kAws:
      return "aws";
    case Cloud::kGcp:
      return "gcp";
    case Cloud::kAzure:
      return "azure";
  }
  return "unknown";
}

std::unique_ptr<NoticeSource> make_source(Cloud cloud) {
  switch (cloud) {
    case Cloud::kAws:
      return std::make_unique<Aws>();
    case Cloud::kGcp:
      return std::make_unique<Gcp>();
    case Cloud::kAzure:
      return std::make_unique<Azure>();
  }
  return nullptr;
}

}  // namespace starling::actors
