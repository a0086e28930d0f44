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
      request.target = asking_action_ ? "/latest/meta-data/spot/instance-action"
                                      : "/latest/meta-data/events/recommendations/rebalance";
      request.headers = {{"X-aws-ec2-metadata-token", token_}};
    }
    return {after_, std::move(request)};
  }

  Heard hear(const HttpAnswer* answer, sys_seconds now) override {
    after_ = kPoll;
    if (answer == nullptr) return {};
    if (token_.empty()) return take_token(*answer);
    if (answer->status == 401) {
      token_.clear();  // it ran out
      return {};
    }
    const bool action = std::exchange(asking_action_, !asking_action_);
    if (action) after_ = 0s;
    if (answer->status == 404) return {};  // nothing is planned
    if (answer->status != 200) return {{}, status_of(*answer)};
    return action ? take_action(*answer, now) : take_rebalance(*answer);
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

  Heard take_action(const HttpAnswer& answer, sys_seconds now) {
    auto notice = parse_aws_action(answer.body, now);
    if (!notice) return {{}, notice.error().text()};
    if (std::exchange(given_action_, answer.body) == answer.body) return {};
    return {{std::move(notice).value()}, {}};
  }

  Heard take_rebalance(const HttpAnswer& answer) {
    auto hint = parse_aws_rebalance(answer.body);
    if (!hint) return {{}, hint.error().text()};
    if (std::exchange(given_rebalance_, answer.body) == answer.body) return {};
    return {{std::move(hint).value()}, {}};
  }

  std::string token_;
  bool asking_action_ = true;
  milliseconds after_{0};
  std::string given_action_, given_rebalance_;
};

// ---- GCP --------------------------------------------------------------------------------------

class Gcp : public NoticeSource {
 public:
  Ask next() const override {
    HttpRequest request;
    request.target = "/computeMetadata/v1/instance/preempted";
    request.headers = {{"Metadata-Flavor", "Google"}};
    if (!etag_.empty()) {
      // Answers when the value differs from the one with this tag, or the time is over.
      request.target += "?wait_for_change=true&timeout_sec=60&last_etag=" + etag_;
      request.timeout = 65s;
    }
    return {after_, std::move(request)};
  }

  Heard hear(const HttpAnswer* answer, sys_seconds) override {
    after_ = kPoll;
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
    if (!etag_.empty()) after_ = kGap;  // a service that does not wait is not asked in a loop
    if (!preempted.value() || std::exchange(given_, true)) return {};
    // Up to 30 s from the signal, less what may have passed between two asks.
    const auto left = std::chrono::duration_cast<milliseconds>(30s - kGap);
    return {{{"gcp", "preempted", static_cast<std::uint64_t>(left.count()), true}}, {}};
  }

 private:
  static constexpr seconds kGap{1};

  // What may stand in a query as it is; else empty, and there is no long poll.
  static std::string tag_of(const std::string& etag) {
    const bool plain = etag.size() <= 128 && std::all_of(etag.begin(), etag.end(), [](char c) {
                         return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
                       });
    return plain ? etag : "";
  }

  std::string etag_;
  bool given_ = false;
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
      // The first one ever makes the service start, which may take two minutes.
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
    auto events = parse_azure_events(answer->body, name_, now);
    if (!events) return {{}, events.error().text()};
    Heard heard;
    for (const AzureEvent& event : events.value())
      if (!known(event.id)) heard.notices.push_back(event.notice);
    events_ = std::move(events).value();
    return heard;
  }

  std::optional<HttpRequest> handed_over() const override {
    nlohmann::json ids = nlohmann::json::array();
    for (const AzureEvent& event : events_)
      if (event.notice.leave) ids.push_back({{"EventId", event.id}});
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

  bool known(const std::string& id) const {
    return std::any_of(events_.begin(), events_.end(),
                       [&](const AzureEvent& event) { return event.id == id; });
  }

  std::string name_;
  bool answered_ = false;  // when asked for events
  milliseconds after_{0};
  std::vector<AzureEvent> events_;  // of the last answer
};

}  // namespace

const char* to_string(Cloud cloud) {
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
