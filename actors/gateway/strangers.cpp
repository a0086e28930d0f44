#include "actors/gateway/strangers.h"

#include <sys/socket.h>

#include "actors/gateway/poller.h"
#include "core/base/check.h"
#include "core/wire/codec.h"
#include "core/wire/seal.h"

namespace starling::actors {
namespace {

constexpr std::size_t kLinesMax = 256;  // about other versions

// libzmq has no call that ends one connection. The number may be another file's by now.
void shut(const Strangers::Connection& connection) {
  if (!connection.from.host.empty() && collectives::peer_of(connection.number) == connection.from)
    ::shutdown(connection.number, SHUT_RDWR);
}

}  // namespace

void Strangers::accepted(const Connection& connection, Clock::time_point now) {
  settled(connection.number);  // an older connection whose end was not told
  waiting_[connection.number] = {connection, now + patience_, false};
}

std::optional<Strangers::Connection> Strangers::spoke(const Connection& connection,
                                                      Clock::time_point now) {
  const auto [place, is_new] = waiting_.try_emplace(connection.number);
  if (!is_new && place->second.has_spoken) return std::nullopt;
  place->second = {connection, now + patience_, true};
  const auto gone = spoke_.came(connection, now);
  if (gone) waiting_.erase(gone->number);
  return gone;
}

void Strangers::shown(int number, Clock::time_point now) {
  const auto found = waiting_.find(number);
  if (found != waiting_.end()) found->second.until = now + 3 * patience_;
}

void Strangers::settled(int number) {
  waiting_.erase(number);
  spoke_.settled(number);
}

std::vector<Strangers::Connection> Strangers::overdue(Clock::time_point now) {
  std::vector<Connection> gone;
  for (const auto& [number, waiting] : waiting_)
    if (now >= waiting.until) gone.push_back(waiting.connection);
  for (const Connection& connection : gone) settled(connection.number);
  return gone;
}

// ---- What the gateway does with strangers -------------------------------------------------------

void Gateway::Impl::allow(AllowList allowed) {
  STARLING_CHECK(zap_ != nullptr);
  zap_->replace(std::move(allowed));
  routes.forget_all_but(zap_->all());
}

void Gateway::Impl::settled(int number) {
  newcomers_.settled(number);
  if (strangers_) strangers_->settled(number);
}

// ZapHandler decides which keys are let in; this bounds how many peers may be without a key.
void Gateway::Impl::watch_newcomers() {
  while (const auto event = router_monitor_->next()) {
    const int number = router_monitor_->value();
    if (*event == ZMQ_EVENT_DISCONNECTED) settled(number);
    if (*event != ZMQ_EVENT_ACCEPTED) continue;
    const collectives::Newcomers::Connection came{number, collectives::peer_of(number)};
    if (strangers_) strangers_->accepted(came, Strangers::Clock::now());
    const auto gone = newcomers_.came(came, Strangers::Clock::now());
    if (!gone) continue;
    shut(*gone);
    drop(Drop::kNewcomer);
  }
}

// Lets a worker of another version end with a line instead of waiting for an answer.
void Gateway::Impl::answer_version(const std::string& routing_id, const std::string& sender,
                                   ByteView bytes) {
  std::string line = version_line(sender, *seal_version(bytes));
  const bool is_new = told_versions_.size() < kLinesMax && told_versions_.insert(line).second;
  if (is_new && options.listen->other_version) options.listen->other_version(line);
  if (!says_version(bytes)) send_frame(routing_id, seal(SealKind::kVersion, {}));
}

void Gateway::Impl::close_overdue() {
  for (const auto& connection : strangers_->overdue(std::chrono::steady_clock::now())) {
    shut(connection);
    drop(Drop::kStranger);
  }
}

void Gateway::Impl::hear_stranger(const std::string& routing_id, const Sender& sender,
                                  const Strangers::Connection& connection, ByteView bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (const auto gone = strangers_->spoke(connection, now)) {
    shut(*gone);
    drop(Drop::kNewcomer);
  }
  if (bytes.empty()) return;  // its greeting
  const auto version = seal_version(bytes);
  if (version && *version != kSealVersion && !says_version(bytes)) {
    drop(Drop::kOtherVersion);
    send_frame(routing_id, seal(SealKind::kVersion, {}));
    return;
  }
  auto said = decode_enrol(bytes);
  if (!said || said.value().job != options.job) {
    shut(connection);
    return drop(said ? Drop::kWrongJob : Drop::kStranger);
  }
  {
    const MutexLock lock(mutex_);
    // One token of a connection at a time: its owner asks again when it has no answer. A worker and its guard have
    // one key, and each its connection.
    if (!looked_at_.insert(routing_id).second) return;
  }
  strangers_->shown(connection.number, now);
  const std::string v4 = "::ffff:", host = connection.from.host;  // of a socket that takes both
  options.listen->identities->shown(
      {sender.public_key, std::move(std::get<Enrol>(said.value().body).token),
       host.starts_with(v4) ? host.substr(v4.size()) : host, routing_id, said.value().from});
}

void Gateway::Impl::answer(const Stranger& stranger, Enrolled answer) {
  {
    const MutexLock lock(mutex_);
    looked_at_.erase(stranger.routing_id);
  }
  enqueue({std::nullopt,
           {stranger.routing_id, answer.name, stranger.public_key, stranger.who},
           std::make_shared<const Message>(std::move(answer))});
}

Result<std::string> Gateway::Impl::enrol(const Stranger& stranger) {
  STARLING_CHECK(zap_ != nullptr);
  auto name = zap_->enrol(stranger.public_key);
  if (name)
    answer(stranger, {name.value(), {}, false});
  else
    refuse(stranger, name.error());
  return name;
}

void Gateway::Impl::refuse(const Stranger& stranger, const Error& why) {
  answer(stranger, {{}, why.text(), why.code() == Code::kUnavailable});
}

}  // namespace starling::actors
