#include "actors/notices/watch.h"

#include <chrono>
#include <fstream>
#include <utility>

#include "core/base/thread_name.h"

namespace starling::actors {
namespace {

std::string fact(const std::string& folder, const char* name) {
  std::ifstream file(folder + "/" + name);
  char text[128] = {};
  file.getline(text, sizeof text);
  return text;
}

std::chrono::sys_seconds wall_clock() {
  return std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
}

}  // namespace

// cloud-init goes by the same facts.
std::optional<Cloud> cloud_here(const std::string& folder) {
  if (fact(folder, "sys_vendor") == "Amazon EC2" ||
      fact(folder, "bios_version").find("amazon") != std::string::npos)
    return Cloud::kAws;
  if (fact(folder, "product_name") == "Google Compute Engine") return Cloud::kGcp;
  if (fact(folder, "chassis_asset_tag") == "7783-7084-3265-9085-8269-3286-77") return Cloud::kAzure;
  return std::nullopt;
}

Result<std::unique_ptr<NoticeWatch>> NoticeWatch::make(Cloud cloud, const std::string& base,
                                                       Log log) {
  STARLING_TRY(client, HttpClient::make(base));
  return std::unique_ptr<NoticeWatch>(new NoticeWatch(
      cloud, base, std::move(client), log.with({{"cloud", std::string(name_of(cloud))}})));
}

NoticeWatch::NoticeWatch(Cloud cloud, std::string base, std::unique_ptr<HttpClient> client, Log log)
    : base_(std::move(base)),
      log_(std::move(log)),
      client_(std::move(client)),
      source_(make_source(cloud)) {}

NoticeWatch::~NoticeWatch() {
  stop();
}

void NoticeWatch::start(Given given) {
  thread_ = std::thread([this, given = std::move(given)] {
    name_thread("notices");
    listen(given);
  });
}

void NoticeWatch::stop() {
  if (!thread_.joinable()) return;
  client_->cancel();
  thread_.join();
}

void NoticeWatch::listen(const Given& given) {
  for (;;) {
    const Ask ask = source_->next();
    if (!client_->wait(ask.after)) return;
    const auto answer = client_->ask(ask.request);
    if (!client_->wait({})) return;  // a request that cancel() cut off is no answer
    hear(answer, given);
  }
}

void NoticeWatch::hear(const Result<HttpAnswer>& answer, const Given& given) {
  const Heard heard = source_->hear(answer ? &answer.value() : nullptr, wall_clock());
  for (const Notice& notice : heard.notices) given(notice);
  const bool silent = !answer && answer.error().code() == Code::kUnavailable;
  const std::string why = answer ? heard.warning : answer.error().text();
  if (why.empty() || std::exchange(silent ? told_silent_ : told_unreadable_, true)) return;
  log_.warn(silent ? "no notices from the metadata service" : "metadata service not understood",
            {{"at", base_}, {"cause", why}});
}

void NoticeWatch::handed_over() {
  stop();
  const auto request = source_->handed_over();
  if (!request) return;
  auto client = HttpClient::make(base_);
  if (!client) return;
  const auto answer = client.value()->ask(*request);
  if (!answer || answer.value().status != 200)
    log_.warn("the cloud was not told that it need not wait", {{"at", base_}});
}

}  // namespace starling::actors
