#include "tools/chaos/strangers.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

// This has the layout of a hello: a stranger without a correct one would be refused
// for that, and not for want of the key. Its answer shows whether it was refused.
#include "collectives/tcp/handshake.h"
#include "core/base/philox.h"

namespace starling::chaos {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{4000};
// ZMTP 3 has this greeting; a server sends it before it knows its caller.
constexpr std::size_t kGreetingBytes = 64;

class StrangerConnection {
 public:
  static StrangerConnection tcp(const std::string& host, const std::string& port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
      return StrangerConnection(-1);
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
    const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connected(fd, found->ai_addr, found->ai_addrlen);
  }
  // Connects to the socket for peers of one machine (collectives/tcp/socket.h).
  static StrangerConnection local(std::uint16_t port) {
    const std::string name = "starling-bulk-" + std::to_string(port);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connected(fd, reinterpret_cast<const sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
  }
  StrangerConnection(StrangerConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~StrangerConnection() {
    if (fd_ >= 0) ::close(fd_);
  }
  explicit operator bool() const { return fd_ >= 0; }

  void say(const std::string& bytes) const {
    std::size_t at = 0;
    while (at < bytes.size()) {
      const auto n = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;  // it has closed, which the answer will tell
      at += static_cast<std::size_t>(n);
    }
  }

  struct Answer {
    std::string bytes;
    bool closed = false;
    double after_ms = 0;
  };
  Answer hear() const {
    Answer answer;
    const auto begun = Clock::now();
    char buffer[4096];
    for (auto left = kPatience;
         left.count() > 0 && !answer.closed && answer.bytes.size() < 65536;) {
      pollfd polled{fd_, POLLIN, 0};
      if (::poll(&polled, 1, static_cast<int>(left.count())) > 0) {
        const auto n = ::recv(fd_, buffer, sizeof buffer, 0);
        answer.closed = n <= 0 && !(n < 0 && errno == EINTR);
        if (n > 0) answer.bytes.append(buffer, static_cast<std::size_t>(n));
      }
      left = kPatience - std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
    }
    answer.after_ms = std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
    return answer;
  }

 private:
  explicit StrangerConnection(int fd) : fd_(fd) {}
  static StrangerConnection connected(int fd, const sockaddr* address, socklen_t size) {
    if (fd >= 0 && ::connect(fd, address, size) == 0) return StrangerConnection(fd);
    if (fd >= 0) ::close(fd);
    return StrangerConnection(-1);
  }
  int fd_ = -1;
};

std::string garbage(std::uint64_t seed, std::size_t bytes) {
  std::string out;
  for (std::uint32_t i = 0; out.size() < bytes; ++i)
    for (const std::uint32_t word :
         philox4x32({i, 0, 0, 0x6e6f6973},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}))
      out.append(reinterpret_cast<const char*>(&word), sizeof word);
  out.resize(bytes);
  return out;
}

// Returns a greeting of ZMTP 3.0 without security, and the READY of a DEALER (RFC 23).
std::string open_greeting() {
  std::string text("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
  text.resize(kGreetingBytes, '\0');
  const std::string ready(
      "\x05READY\x0bSocket-Type\0\0\0\x06"
      "DEALER",
      28);
  text += '\x04';
  text += static_cast<char>(ready.size());
  return text + ready;
}

// Returns the first bytes of an epoch's peer, but for members' secrets; then an invented proof.
std::string guessed_hello(const Doors& doors) {
  collectives::Hello hello;
  hello.epoch = doors.epoch;
  hello.from = 0;
  hello.to = 1;
  hello.from_who = {1, Nonce(doors.seed)};
  std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  return bytes + garbage(doors.seed, sizeof(collectives::Proof));
}

judge::Stranger attempt(std::string how, const StrangerConnection& door, const std::string& said,
                        std::size_t heard_max) {
  judge::Stranger stranger{std::move(how), false, ""};
  if (!door) {
    stranger.refused = true;
    stranger.met = false;
    stranger.seen = "no connection";
    return stranger;
  }
  door.say(said);
  const auto answer = door.hear();
  stranger.refused = answer.bytes.size() <= heard_max;
  char text[100];
  std::snprintf(text, sizeof text, "%s after %.0f ms, %zu bytes heard",
                answer.closed ? "closed" : "left waiting", answer.after_ms, answer.bytes.size());
  stranger.seen = text;
  return stranger;
}

}  // namespace

std::vector<judge::Stranger> knock(const Doors& doors) {
  std::vector<judge::Stranger> strangers;
  const auto dial = [](const std::string& address) {
    const auto colon = address.rfind(':');  // without one there is no such host
    return StrangerConnection::tcp(address.substr(0, colon), address.substr(colon + 1));
  };
  for (const std::string& address : doors.coordinators) {
    if (address.find(':') == std::string::npos) continue;
    strangers.push_back(attempt("garbage to the coordinator at " + address, dial(address),
                                garbage(doors.seed, 4096), kGreetingBytes));
    strangers.push_back(attempt("an unencrypted greeting to the coordinator at " + address,
                                dial(address), open_greeting(), kGreetingBytes));
  }
  for (const std::string& address : doors.workers) {
    strangers.push_back(attempt("garbage to the worker at " + address, dial(address),
                                garbage(doors.seed, 4096), 0));
    strangers.push_back(attempt("a hello without the epoch's key to the worker at " + address,
                                dial(address), guessed_hello(doors), 0));
  }
  for (const std::uint16_t port : doors.bulk) {
    const std::string number = std::to_string(port);
    strangers.push_back(attempt("garbage to the worker at port " + number,
                                StrangerConnection::tcp("127.0.0.1", number),
                                garbage(doors.seed, 4096), 0));
    strangers.push_back(attempt("a hello without the epoch's key to the worker at port " + number,
                                StrangerConnection::tcp("127.0.0.1", number), guessed_hello(doors),
                                0));
    strangers.push_back(
        attempt("a hello without the epoch's key to the worker's local socket " + number,
                StrangerConnection::local(port), guessed_hello(doors), 0));
  }
  return strangers;
}

Result<KeyRing> stranger_keys(const KeyRing& ring) {
  KeyRing keys = ring.public_part();
  for (const KeyPair& pair : ring.pairs())
    if (role_of(pair.name) != Role::kCoordinator) keys.remove(pair.name);
  STARLING_TRY(keys.add(make_key_pair("worker-9999")));
  return keys;
}

std::vector<std::string> addresses_in(const std::string& text) {
  std::vector<std::string> found;
  std::string list = text.rfind("tcp://", 0) == 0 ? text.substr(6) : text;
  for (std::size_t at = 0; at <= list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    if (comma > at) found.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return found;
}

}  // namespace starling::chaos
