#include "actors/gateway/zap.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "actors/sabotage.h"
#include "core/base/thread_name.h"

namespace starling::actors {
namespace {
constexpr std::size_t kFormerMax = 16384;  // names that are kept of revoked keys
}

Sender sender_of(const std::string& user_id) {
  const auto blank = user_id.find(' ');
  if (blank == std::string::npos) return {};
  return {user_id.substr(0, blank), user_id.substr(blank + 1)};
}

Result<std::unique_ptr<ZapHandler>> ZapHandler::start(const Context& context, AllowList allowed,
                                                      std::atomic<std::uint64_t>& refused) {
  STARLING_TRY(socket, Socket::make(context, ZMQ_REP));
  STARLING_TRY(socket.bind("inproc://zeromq.zap.01"));
  return std::unique_ptr<ZapHandler>(
      new ZapHandler(std::move(socket), std::move(allowed), refused));
}

ZapHandler::ZapHandler(Socket socket, AllowList allowed, std::atomic<std::uint64_t>& refused)
    : socket_(std::move(socket)), refused_(refused), allowed_(std::move(allowed)) {
  thread_ = std::thread([this] {
    name_thread("zap");
    run();
  });
}

ZapHandler::~ZapHandler() {
  stopping_ = true;
  stop_.signal();
  thread_.join();
}

void ZapHandler::allow(const std::string& public_key, const std::string& name) {
  const MutexLock lock(mutex_);
  allowed_[public_key] = name;
}

void ZapHandler::forbid(const std::string& public_key) {
  const MutexLock lock(mutex_);
  allowed_.erase(public_key);
}

void ZapHandler::replace(AllowList allowed) {
  const MutexLock lock(mutex_);
  for (const auto& [key, name] : allowed_) {
    if (former_.size() >= kFormerMax) break;
    former_[key] = name;
  }
  allowed_ = std::move(allowed);
}

bool ZapHandler::admits(const Sender& sender) const {
  const MutexLock lock(mutex_);
  const auto found = allowed_.find(sender.public_key);
  if (found != allowed_.end() && found->second == sender.name) return true;
  const auto enrolled = enrolled_.find(sender.public_key);
  return sabotage::accepts_strangers() ||
         (enrolled != enrolled_.end() && enrolled->second.name == sender.name);
}

Result<std::string> ZapHandler::enrol(const std::string& public_key) {
  const auto now = std::chrono::steady_clock::now();
  const MutexLock lock(mutex_);
  if (const auto listed = allowed_.find(public_key); listed != allowed_.end())
    return listed->second;
  if (const auto known = enrolled_.find(public_key); known != enrolled_.end())
    return known->second.name;
  if (const auto former = former_.find(public_key); former != former_.end())
    return Error(Code::kBadInput, "identity: the key of " + former->second + " was revoked");
  std::string name = enrolled_name(public_key);
  const auto has_name = [&](const auto& other) { return other.second == name; };
  const bool taken = std::any_of(allowed_.begin(), allowed_.end(), has_name) ||
                     std::any_of(enrolled_.begin(), enrolled_.end(),
                                 [&](const auto& other) { return other.second.name == name; });
  if (taken)
    return Error(Code::kBadInput, "identity: another key has the name " + name + " already");
  if (enrolled_.size() >= kEnrolledMax) {
    const auto silent = std::min_element(
        enrolled_.begin(), enrolled_.end(),
        [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; });
    if (now - silent->second.heard < kEnrolledSilence)
      return Error(Code::kUnavailable, "identity: " + std::to_string(kEnrolledMax) +
                                           " keys are enrolled, and all of them are in use");
    enrolled_.erase(silent);
  }
  enrolled_[public_key] = {name, now};
  return name;
}

std::string ZapHandler::name_now(const std::string& public_key) {
  const MutexLock lock(mutex_);
  if (const auto listed = allowed_.find(public_key); listed != allowed_.end())
    return listed->second;
  const auto enrolled = enrolled_.find(public_key);
  if (enrolled == enrolled_.end()) return {};
  enrolled->second.heard = std::chrono::steady_clock::now();
  return enrolled->second.name;
}

AllowList ZapHandler::all() const {
  const MutexLock lock(mutex_);
  AllowList all = allowed_;
  for (const auto& [key, enrolled] : enrolled_) all.emplace(key, enrolled.name);
  return all;
}

bool ZapHandler::takes(const std::string& public_key) const {
  if (!takes_strangers_ || public_key.empty()) return false;
  const MutexLock lock(mutex_);
  return !former_.contains(public_key);
}

void ZapHandler::tell(std::function<void(const std::string&)> refused) {
  const MutexLock lock(mutex_);
  tell_ = std::move(refused);
}

void ZapHandler::say_refused(const std::string& public_key, const std::string& address) {
  std::function<void(const std::string&)> tell;
  Refusal refusal{public_key, "", address};
  {
    const MutexLock lock(mutex_);
    tell = tell_;
    const auto former = former_.find(public_key);
    if (former != former_.end()) refusal.name = former->second;
  }
  if (!tell) return;
  if (const auto line = refusals_.line(refusal, Refusals::Clock::now())) tell(*line);
}

void ZapHandler::run() {
  while (!stopping_) {
    zmq_pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0},
                              {nullptr, stop_.fd(), ZMQ_POLLIN, 0}};
    if (zmq_poll(items, 2, -1) < 0 && zmq_errno() != EINTR) return;  // no peer is let in any more
    if ((items[0].revents & ZMQ_POLLIN) != 0) answer();
  }
}

// Question: version, request id, domain, address, identity, mechanism, credentials.
// Answer: version, request id, status, its text, user id, metadata.
void ZapHandler::answer() {
  std::vector<std::string> question;
  for (bool more = true; more;) {
    MessagePart frame;
    if (!frame.receive(socket_)) return;
    more = frame.more();
    if (question.size() < 8) question.push_back(frame.text());
  }
  std::string key_text, name;
  if (question.size() == 7 && question[0] == "1.0" && question[2] == kZapDomain &&
      question[5] == "CURVE" && question[6].size() == 32) {
    const auto& key = question[6];
    key_text = z85_encode({reinterpret_cast<const std::uint8_t*>(key.data()), key.size()});
    name = name_of(key_text);
  }
  if (name.empty() && takes(key_text)) name = std::string(kStrangerName);
  const bool known = !name.empty();
  if (!known) ++refused_;
  const std::string parts[] = {"1.0",
                               question.size() > 1 ? question[1] : "",
                               known ? "200" : "400",
                               known ? "OK" : "key is not on the allow list",
                               known ? name + " " + key_text : "",
                               ""};
  for (std::size_t i = 0; i < std::size(parts); ++i)
    zmq_send(socket_.handle(), parts[i].data(), parts[i].size(),
             i + 1 < std::size(parts) ? ZMQ_SNDMORE : 0);
  if (!known) say_refused(key_text, question.size() > 3 ? question[3] : "");
}

std::string ZapHandler::name_of(const std::string& public_key) const {
  const MutexLock lock(mutex_);
  const auto found = allowed_.find(public_key);
  if (found != allowed_.end()) return found->second;
  return sabotage::accepts_strangers() ? "worker-9999" : "";  // what a worker may say
}

}  // namespace starling::actors
