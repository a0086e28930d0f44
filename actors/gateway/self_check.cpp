#include "actors/gateway/self_check.h"

#include <chrono>

namespace starling::actors {
namespace {

constexpr auto kTimeout = std::chrono::seconds(5);

enum class DialOutcome { kAdmitted, kRefused, kNone };

// Returns the local address at which to dial a server that listens on all addresses.
std::string dialled(std::string endpoint) {
  for (const auto& [any, local] :
       {std::pair<std::string, std::string>{"//0.0.0.0:", "//127.0.0.1:"},
        {"//[::]:", "//[::1]:"}}) {
    const auto at = endpoint.find(any);
    if (at != std::string::npos) endpoint.replace(at, any.size(), local);
  }
  return endpoint;
}

Result<DialOutcome> dial(const Context& context, const std::string& endpoint,
                         const std::string& server_public_key, const KeyPair& own) {
  STARLING_TRY(socket, Socket::make(context, ZMQ_DEALER));
  STARLING_TRY(socket.set(ZMQ_LINGER, 0));
  STARLING_TRY(socket.set(ZMQ_IPV6, 1));
  STARLING_TRY(secure_client(socket, own, server_public_key));
  STARLING_TRY(monitor, Monitor::make(context, socket));
  STARLING_TRY(socket.connect(endpoint));
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  while (std::chrono::steady_clock::now() < deadline) {
    zmq_pollitem_t item{monitor.handle(), 0, ZMQ_POLLIN, 0};
    zmq_poll(&item, 1, 50);
    while (const auto event = monitor.next()) {
      if (*event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return DialOutcome::kAdmitted;
      if (*event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return DialOutcome::kRefused;
    }
  }
  return DialOutcome::kNone;
}

}  // namespace

Result<> check_admission(const Context& context, const std::string& endpoint,
                         const std::string& server_public_key, ZapHandler& zap) {
  const std::string address = dialled(endpoint);
  const KeyPair stranger = make_key_pair("self-check");
  STARLING_TRY(unlisted, dial(context, address, server_public_key, stranger));
  if (unlisted == DialOutcome::kAdmitted)
    return Error(Code::kInternal,
                 "a key that is not on the allow list was admitted at " + endpoint);
  const auto silence = [&] {
    return Error(Code::kInternal, "no answer to a handshake at " + endpoint + " within 5 s");
  };
  if (unlisted == DialOutcome::kNone) return silence();

  const KeyPair guest = make_key_pair("self-check");
  zap.allow(guest.public_key, guest.name);
  auto listed = dial(context, address, server_public_key, guest);
  zap.forbid(guest.public_key);
  if (!listed) return std::move(listed).error();
  if (listed.value() == DialOutcome::kNone) return silence();
  if (listed.value() == DialOutcome::kRefused)
    return Error(Code::kInternal, "a key on the allow list was not admitted at " + endpoint);
  return ok();
}

}  // namespace starling::actors
