#include "tools/processes/quiet_port.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

namespace starling::tools {

Result<QuietPort> QuietPort::take(const std::string& host, std::uint16_t port) {
  const std::string number = std::to_string(port);
  const auto refuse = [&](const char* why) {
    return Error(Code::kBadInput,
                 std::string("cannot listen, ") + why + "; address " + host + ":" + number);
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), number.c_str(), &hints, &first) != 0)
    return refuse("the host is not known");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(first, &::freeaddrinfo);
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0)
    return refuse(std::strerror(errno));
  // Set after bind(), which proves without it that the port was free; a listener may share it.
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return QuietPort(std::move(fd), port);
}

Result<QuietPort> QuietPort::take(const std::string& host) {
  static std::atomic<std::uint32_t> next{static_cast<std::uint32_t>(::getpid())};
  constexpr std::uint32_t kFirst = 18000, kCount = 14000;  // Linux dials from 32768 on
  // Says what is wrong with the host.
  if (auto any = take(host, 0); !any) return std::move(any).error();
  for (std::uint32_t tried = 0; tried < kCount; ++tried)
    if (auto taken = take(host, static_cast<std::uint16_t>(kFirst + next++ % kCount))) return taken;
  return Error(Code::kUnavailable, "no free port from 18000 to 31999 at " + host);
}

}  // namespace starling::tools
