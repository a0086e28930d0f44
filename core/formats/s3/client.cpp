#include "core/formats/s3/client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/mac.h"
#include "core/formats/s3/answer_xml.h"
#include "core/formats/s3/credentials.h"
#include "core/formats/s3/signature.h"

namespace starling::s3 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{15000}, kFirstPause{100}, kLongestPause{4000};

// The last request of this process found the store away in spite of all patience. Until one succeeds each is
// tried once, in haste: a run that ends has several, and does not wait that long for each.
std::atomic<bool> away{false};
std::atomic<bool> hurried{false};
constexpr milliseconds kHastyPace{1000};  // those who fail at once would fill a log

// Between half of it and all, so that many who were refused at once do not come back at once.
milliseconds with_jitter(milliseconds pause) {
  std::uint8_t draw = 0;
  random_bytes({&draw, 1});
  return pause / 2 + pause / 2 * draw / 255;
}

// Not those to writers that begin with 200 and hold an error.
bool is_answer(const Request& request, const HttpReply& reply) {
  if (reply.status == 412 || reply.status == 416) return true;
  const bool writes = request.method == "PUT" || request.method == "POST";
  if (reply.good()) return !writes || !text_of(reply.body, "Code");
  if (reply.status != 404) return false;
  // What stands before a store may answer so of itself; to HEAD there is no text, and the caller asks the list.
  const std::string code = text_of(reply.body, "Code").value_or("");
  return request.method == "HEAD" || code == "NoSuchKey" || code == "NoSuchUpload" ||
         request.method == "DELETE";
}

bool is_for_another_time(const HttpReply& reply, const std::string& code) {
  const int s = reply.status;
  return (s == 404 && code != "NoSuchBucket") || s == 408 || s == 409 || s == 429 || s == 500 ||
         s == 502 || s == 503 || s == 504 || reply.good() || code == "RequestTimeout" ||
         code == "SlowDown";
}

// An answer to HEAD has no text that says so.
bool may_be_old_key(const Request& request, const HttpReply& reply, const std::string& code) {
  if (request.method == "HEAD") return reply.status == 400 || reply.status == 403;
  return code == "SignatureDoesNotMatch" || code == "ExpiredToken" || code == "InvalidToken" ||
         code == "TokenRefreshRequired" || code == "InvalidAccessKeyId";
}

std::string shown(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return text.substr(0, 200);
}

// "403 AccessDenied: Access Denied", and what to do where that can be told.
std::string fault_of(const Request& request, const HttpReply& reply) {
  std::string text = "the store answers " + std::to_string(reply.status);
  const std::string code = text_of(reply.body, "Code").value_or("");
  if (!code.empty()) text.append(" ").append(shown(code));
  if (const auto message = text_of(reply.body, "Message"))
    text.append(": ").append(shown(*message));
  std::string region = reply.header("x-amz-bucket-region");
  if (region.empty()) region = text_of(reply.body, "Region").value_or("");
  if (reply.status == 403 && request.key.empty()) text += " (a list needs the right s3:ListBucket)";
  if (!region.empty() && (reply.status == 301 || reply.status == 307 || reply.status == 400))
    text += " (the bucket is in " + shown(region) + ": set AWS_REGION)";
  if (code == "RequestTimeTooSkewed")
    text += " (here it is " + time_text(std::time(nullptr)) + ", there " +
            shown(reply.header("date")) + ")";
  return text;
}

// One try, signed at this moment.
Result<HttpReply> send_once(const Request& request, const std::string& bucket,
                            const std::string& body_hash, bool hasty) {
  STARLING_TRY(http, Http::open());
  STARLING_TRY(store, endpoint());
  STARLING_TRY(key, Credentials::here().get());
  const std::string time = time_text(std::time(nullptr));
  Signed what{request.method, "/", request.query, request.headers, body_hash};
  what.path.append(bucket);
  if (!request.key.empty()) what.path.append("/").append(encoded(request.key, true));
  what.headers["host"] = store.url.substr(store.url.find("://") + 3);
  what.headers["x-amz-date"] = time;
  what.headers["x-amz-content-sha256"] = body_hash;
  if (!key.token.empty()) what.headers["x-amz-security-token"] = key.token;
  HttpCall call{request.method, store.url + what.path, what.headers, request.body,
                request.answer_max};
  call.hasty = hasty;
  if (!request.query.empty()) call.url.append("?").append(query_text(request.query));
  call.headers["authorization"] = authorization(what, key, region(), time);
  auto reply = http->send(call);
  if (!reply) return std::move(reply).error().in(store.url + " (" + store.from + ")");
  return reply;
}

}  // namespace

void hurry() {
  hurried = true;
}

Result<Answer> Client::send(const Request& request) const {
  const std::string body_hash = sha256_hex(request.body);
  const auto begun = Clock::now(), until = begun + kPatience;
  milliseconds pause = kFirstPause;
  bool again = false, fresh_key = false;
  const bool hasty = away || hurried;
  for (;;) {
    auto reply = send_once(request, bucket_, body_hash, hasty);
    if (reply && is_answer(request, reply.value())) {
      away = false;
      return Answer{std::move(reply).value(), again};
    }
    std::optional<Error> error;
    bool for_another_time = false;
    if (!reply) {
      for_another_time = reply.error().code() == Code::kUnavailable;
      error = std::move(reply).error();
    } else {
      const std::string code = text_of(reply.value().body, "Code").value_or("");
      for_another_time = is_for_another_time(reply.value(), code);
      if (!for_another_time && !fresh_key && may_be_old_key(request, reply.value(), code)) {
        Credentials::here().forget();
        fresh_key = true;
        continue;
      }
      error = Error(for_another_time ? Code::kUnavailable : Code::kBadInput,
                    fault_of(request, reply.value()));
    }
    const bool over = hasty || request.once || Clock::now() + pause > until;
    if (!for_another_time)
      away = false;
    else if (over && !request.once)
      away = true;
    if (away && hasty) std::this_thread::sleep_until(begun + kHastyPace);
    if (!for_another_time || over) return std::move(*error).in(Place{bucket_, request.key}.text());
    again = true;
    std::this_thread::sleep_for(with_jitter(pause));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace starling::s3
