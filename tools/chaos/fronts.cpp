#include "tools/chaos/fronts.h"

#include <cstdlib>

namespace starling::chaos {
namespace {

constexpr std::uint16_t kHomePort = 7000;  // of a worker with an address of its own

std::string address_text(const std::string& host, std::uint16_t port) {
  return host + ":" + std::to_string(port);
}

}  // namespace

Result<std::vector<std::string>> addresses_behind(Proxy& proxy, const std::string& worker,
                                                  const std::vector<std::string>& coordinators,
                                                  const std::string& home) {
  proxy.forget(worker);
  std::string join;
  for (const std::string& address : coordinators) {
    const auto colon = address.rfind(':');
    const auto port = colon == std::string::npos ? 0 : std::atoi(address.c_str() + colon + 1);
    if (port <= 0 || port > 65535)
      return Error(Code::kBadInput, "expected host:port of a coordinator, got " + address);
    STARLING_TRY(front, proxy.add(worker, static_cast<std::uint16_t>(port), /*bulk=*/false));
    if (!join.empty()) join += ',';
    join += address_text(proxy.host(), front);
  }
  const auto told = [&](const std::string& listen, std::uint16_t front) {
    return std::vector<std::string>{"--join", join,          "--listen",
                                    listen,   "--advertise", address_text(proxy.host(), front)};
  };
  if (!home.empty()) {
    STARLING_TRY(front, proxy.add(worker, home, kHomePort, /*bulk=*/true));
    return told(address_text(home, kHomePort), front);
  }
  STARLING_TRY(own, QuietPort::take(proxy.host()));
  const std::string listen = address_text(proxy.host(), own.port());
  STARLING_TRY(front, proxy.add(worker, std::move(own), /*bulk=*/true));
  return told(listen, front);
}

}  // namespace starling::chaos
