#include "collectives/tcp/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/base/check.h"

namespace starling::collectives {

namespace {

constexpr int kBufferBytes = 4 << 20;
// A full backlog drops a peer's SYN, and its retry comes a second later.
constexpr int kBacklog = 1024;
constexpr int kListensMs = 500;  // to find out whether one of several addresses is listened at

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Numbers are taken as they are; only names are looked up, which may block.
Addresses resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  for (const int more : {AI_NUMERICHOST, 0}) {
    hints.ai_flags = flags | AI_NUMERICSERV | more;
    if (getaddrinfo(host.c_str(), service.c_str(), &hints, &found) == 0) break;
    found = nullptr;
  }
  return {found, &freeaddrinfo};
}

// Empty: it has none.
std::string numbers_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

bool somebody_listens(const addrinfo& at) {
  const Fd fd(socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  if (connect(fd.get(), at.ai_addr, at.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd stands{fd.get(), POLLOUT, 0};
  return poll(&stands, 1, kListensMs) == 1 && connect_error(fd) == 0;
}

std::string where(const std::string& host, std::uint16_t port) {
  return host + ":" + std::to_string(port);
}

// The kernel grows buffers by itself, up to 6 MiB by default, unless a size is set; and it cuts
// what is set to net.core.rmem_max. So set it only where the whole of it is granted.
bool large_buffers_granted() {
  const Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int granted = 0;
  socklen_t size = sizeof granted;
  for (const int option : {SO_SNDBUF, SO_RCVBUF}) {
    setsockopt(probe.get(), SOL_SOCKET, option, &kBufferBytes, sizeof kBufferBytes);
    getsockopt(probe.get(), SOL_SOCKET, option, &granted, &size);
    if (granted < kBufferBytes) return false;
  }
  return true;
}

// Called before listen() and connect(), since they settle the window scale.
void set_buffers(const Fd& socket) {
  static const bool granted = large_buffers_granted();
  if (!granted) return;
  for (const int option : {SO_SNDBUF, SO_RCVBUF})
    setsockopt(socket.get(), SOL_SOCKET, option, &kBufferBytes, sizeof kBufferBytes);
}

struct LocalName {
  sockaddr_un address{};
  socklen_t size = 0;
};

// The name is abstract: the first byte of the transport is 0.
LocalName local_name(std::uint16_t tcp_port) {
  LocalName name;
  name.address.sun_family = AF_UNIX;
  const std::string text = "starling-bulk-" + std::to_string(tcp_port);
  text.copy(name.address.sun_path + 1, sizeof name.address.sun_path - 1);
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

}  // namespace

Result<Bound> listen_tcp(const std::string& host, std::uint16_t port) {
  const auto refuse = [&](const char* why) {
    return Error(Code::kBadInput,
                 std::string("cannot listen, ") + why + "; address " + where(host, port));
  };
  const Addresses found = resolve(host, port, AI_PASSIVE);
  if (!found) return refuse("the host is not known");
  Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return refuse(strerror(errno));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  set_buffers(fd);
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || listen(fd.get(), kBacklog) != 0)
    return refuse(strerror(errno));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return refuse(strerror(errno));
  const auto number = bound.ss_family == AF_INET6
                          ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                          : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return Bound{std::move(fd), ntohs(number)};
}

std::vector<std::string> numeric_addresses(const std::string& host) {
  std::vector<std::string> all;
  const Addresses found = resolve(host, 0, 0);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    std::string text = numbers_of(one->ai_addr, one->ai_addrlen);
    if (!text.empty() && std::find(all.begin(), all.end(), text) == all.end())
      all.push_back(std::move(text));
  }
  return all;
}

Result<Fd> dial_tcp(const std::string& host, std::uint16_t port) {
  const auto refuse = [&](const char* why, Code code = Code::kUnavailable) {
    return Error(code, std::string("cannot connect, ") + why + "; address " + where(host, port));
  };
  const Addresses found = resolve(host, port, 0);
  if (!found) return refuse("the host is not known");
  Fd fd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return refuse(strerror(errno));
  tune(fd);
  if (connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
    return refuse(strerror(errno), errno == ECONNREFUSED ? Code::kPeerLost : Code::kUnavailable);
  return fd;
}

Result<std::string> numeric_address(const std::string& host) {
  const Addresses found = resolve(host, 0, 0);
  const addrinfo* at = found.get();
  for (const addrinfo* one = at; one != nullptr; one = one->ai_next)
    if (one->ai_family == AF_INET6 && at->ai_family != AF_INET6) at = one;
  std::string text = at == nullptr ? "" : numbers_of(at->ai_addr, at->ai_addrlen);
  if (text.empty()) return Error(Code::kBadInput, "the host " + host + " is not known");
  return text;
}

Result<std::string> address_towards(const std::string& host, std::uint16_t port) {
  const auto refuse = [&](const char* why) {
    return Error(Code::kUnavailable, std::string(why) + "; address " + where(host, port));
  };
  const Addresses found = resolve(host, port, 0);
  if (!found) return refuse("the host is not known");
  // Take the first address that is listened at, else the first of all.
  const addrinfo* at = found.get();
  for (const addrinfo* one = at; found->ai_next != nullptr && one != nullptr; one = one->ai_next)
    if (somebody_listens(*one)) {
      at = one;
      break;
    }
  const Fd fd(socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* address = reinterpret_cast<sockaddr*>(&own);
  if (!fd || connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0 ||
      getsockname(fd.get(), address, &size) != 0)
    return refuse(strerror(errno));
  std::string text = numbers_of(address, size);
  if (text.empty()) return refuse("its route has no address of this machine");
  return text;
}

Fd listen_local(std::uint16_t tcp_port) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const LocalName name = local_name(tcp_port);
  const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
  if (fd && (bind(fd.get(), address, name.size) != 0 || listen(fd.get(), kBacklog) != 0))
    return Fd();
  return fd;
}

Fd dial_local(std::uint16_t tcp_port) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const LocalName name = local_name(tcp_port);
  const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
  if (fd && connect(fd.get(), address, name.size) != 0) return Fd();
  if (fd) set_buffers(fd);
  return fd;
}

bool loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

int connect_error(const Fd& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

void tune(const Fd& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  set_buffers(socket);
}

PeerAddress peer_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getpeername(socket, raw, &size) != 0 || address.ss_family == AF_UNIX ||
      getnameinfo(raw, size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  return {host.data(), static_cast<std::uint16_t>(std::atoi(port.data()))};
}

Fd make_wake() {
  Fd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  STARLING_CHECK_MSG(static_cast<bool>(fd), strerror(errno));
  return fd;
}

Fd make_epoll() {
  Fd fd(epoll_create1(EPOLL_CLOEXEC));
  STARLING_CHECK_MSG(static_cast<bool>(fd), strerror(errno));
  return fd;
}

void wake(const Fd& event) {
  const std::uint64_t one = 1;
  // Fails only if the counter is full, and then the sleeper is awake anyway.
  [[maybe_unused]] const auto written = write(event.get(), &one, sizeof one);
}

void drain_wake(const Fd& event) {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(event.get(), &count, sizeof count);
}

}  // namespace starling::collectives
