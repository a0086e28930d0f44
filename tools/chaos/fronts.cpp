#include "tools/chaos/fronts.h"

#include <cstdlib>

namespace starling::chaos {
namespace {

std::string here(std::uint16_t port) {
  return std::string("127.0.0.1:").append(std::to_string(port));
}

}  // namespace

Result<std::vector<std::string>> addresses_behind(Proxy& proxy, const std::string& worker,
                                                  const std::vector<std::string>& coordinators) {
  proxy.forget(worker);
  std::string join;
  for (const std::string& address : coordinators) {
    const auto colon = address.rfind(':');
    const auto port = colon == std::string::npos ? 0 : std::atoi(address.c_str() + colon + 1);
    if (port <= 0 || port > 65535)
      return Error(Code::kBadInput, "expected host:port of a coordinator, got " + address);
    STARLING_TRY(front, proxy.add(worker, static_cast<std::uint16_t>(port), /*bulk=*/false));
    if (!join.empty()) join += ',';
    join += here(front);
  }
  STARLING_TRY(own, QuietPort::take());
  const std::string listen = here(own.port());
  STARLING_TRY(front, proxy.add(worker, std::move(own), /*bulk=*/true));
  return std::vector<std::string>{"--join", join, "--listen", listen, "--advertise", here(front)};
}

}  // namespace starling::chaos
