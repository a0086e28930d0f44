#include "tests/nccl/fake_wires.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "tests/nccl/fake_orders.h"

namespace starling::collectives::fake {
namespace {

namespace abi = nccl::abi;

using Name = std::array<char, 8>;  // of an abstract local socket; the kernel chooses five letters

struct IdContent {
  char magic[8] = {'f', 'a', 'k', 'e', 'n', 'c', 'c', 'l'};
  Name root{};
  std::uint64_t number = 0;
};
static_assert(sizeof(IdContent) <= abi::kIdBytes);

struct CheckIn {
  std::uint64_t number;
  std::int32_t rank, world;
  Name name;
};

std::atomic<std::int64_t> root_count{0};

void need(bool good, const char* call) {
  if (!good) misused(std::string(call) + ": " + std::strerror(errno));
}

std::pair<Socket, Name> listen_anywhere() {
  Socket listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  need(listener.file() >= 0, "socket");
  sockaddr_un address{.sun_family = AF_UNIX};
  need(::bind(listener.file(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) == 0,
       "bind");
  need(::listen(listener.file(), 128) == 0, "listen");
  socklen_t size = sizeof address;
  need(::getsockname(listener.file(), reinterpret_cast<sockaddr*>(&address), &size) == 0,
       "getsockname");
  Name name{};
  std::memcpy(name.data(), address.sun_path, size - offsetof(sockaddr_un, sun_path));
  return {std::move(listener), name};
}

// False: the alarm rang.
bool wait(int file, short events, const Alarm* alarm) {
  pollfd files[2] = {{file, events, 0}, {alarm ? alarm->file() : -1, POLLIN, 0}};
  while (::poll(files, 2, -1) < 0) need(errno == EINTR, "poll");
  return !alarm || !alarm->rung();
}

enum class Outcome { kDone, kEnd, kAlarm };

template <class Call>
Outcome transfer(int file, short events, char* at, std::size_t bytes, const Alarm* alarm,
                 Call call) {
  while (bytes > 0) {
    if (!wait(file, events, alarm)) return Outcome::kAlarm;
    const ssize_t n = call(file, at, bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return Outcome::kEnd;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return Outcome::kDone;
}

Outcome receive(int file, void* to, std::size_t bytes, const Alarm* alarm) {
  return transfer(file, POLLIN, static_cast<char*>(to), bytes, alarm,
                  [](int f, char* at, std::size_t n) { return ::recv(f, at, n, 0); });
}

Outcome send_all(int file, const void* from, std::size_t bytes, const Alarm* alarm) {
  auto* const at = const_cast<char*>(static_cast<const char*>(from));
  return transfer(file, POLLOUT, at, bytes, alarm,
                  [](int f, char* p, std::size_t n) { return ::send(f, p, n, MSG_NOSIGNAL); });
}

Outcome accept_from(const Socket& listener, Socket& accepted, const Alarm* alarm) {
  for (;;) {
    if (!wait(listener.file(), POLLIN, alarm)) return Outcome::kAlarm;
    accepted = Socket(::accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.file() >= 0) return Outcome::kDone;
    need(errno == EAGAIN || errno == EINTR || errno == ECONNABORTED, "accept");
  }
}

// Until it stands: whoever is gone is dialled for ever.
Outcome dial(const Name& name, Socket& dialled, const Alarm& alarm) {
  sockaddr_un address{.sun_family = AF_UNIX};
  std::memcpy(address.sun_path, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 6);
  while (!alarm.rung()) {
    dialled = Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    need(dialled.file() >= 0, "socket");
    if (::connect(dialled.file(), reinterpret_cast<sockaddr*>(&address), size) == 0)
      return Outcome::kDone;
    need(errno == EAGAIN || errno == ECONNREFUSED || errno == EINTR, "connect");
    pollfd file{alarm.file(), POLLIN, 0};
    ::poll(&file, 1, 10);
  }
  return Outcome::kAlarm;
}

// NCCL's root: no time limit, and nothing that ends it but all ranks, or one that is wrong.
void serve_root(const Socket& listener, std::uint64_t number) {
  std::vector<Socket> ranks;
  std::vector<Name> names;
  std::size_t here = 0;
  do {
    Socket socket;
    accept_from(listener, socket, nullptr);
    CheckIn in;
    if (receive(socket.file(), &in, sizeof in, nullptr) != Outcome::kDone) continue;
    if (in.number != number || in.world < 1 || in.rank < 0 || in.rank >= in.world) return;
    if (ranks.empty()) {
      ranks.resize(static_cast<std::size_t>(in.world));
      names.resize(ranks.size());
    }
    const auto rank = static_cast<std::size_t>(in.rank);
    if (ranks.size() != static_cast<std::size_t>(in.world) || ranks[rank].file() >= 0) return;
    ranks[rank] = std::move(socket);
    names[rank] = in.name;
    ++here;
  } while (ranks.empty() || here < ranks.size());
  for (const Socket& s : ranks)
    send_all(s.file(), names.data(), names.size() * sizeof(Name), nullptr);
}

}  // namespace

Alarm::Alarm() : file_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  need(file_ >= 0, "eventfd");
}

Alarm::~Alarm() {
  ::close(file_);
}

void Alarm::ring() {
  rung_ = true;
  const std::uint64_t one = 1;
  need(::write(file_, &one, sizeof one) == sizeof one, "write");
}

Socket::~Socket() {
  if (file_ >= 0) ::close(file_);
}

bool Socket::other_end_lives() const {
  ucred other{};
  socklen_t size = sizeof other;
  need(::getsockopt(file_, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0, "getsockopt");
  std::ifstream stat("/proc/" + std::to_string(other.pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  // After the name, which ends with the last bracket: the state, five numbers, the kernel's flags.
  const std::size_t name = text.rfind(')');
  if (name == std::string::npos) return false;
  std::istringstream words(text.substr(name + 1));
  std::string skipped;
  unsigned flags = 0;
  for (int i = 0; i < 6; ++i) words >> skipped;
  words >> flags;
  constexpr unsigned kExiting = 0x4;  // PF_EXITING: set before the process's files are closed
  return (flags & kExiting) == 0;
}

abi::UniqueId make_root() {
  auto [listener, name] = listen_anywhere();
  IdContent content;
  content.root = name;
  need(::getrandom(&content.number, sizeof content.number, 0) == sizeof content.number,
       "getrandom");
  ++root_count;
  std::thread([own = std::move(listener), number = content.number] {
    serve_root(own, number);
    --root_count;
  }).detach();
  abi::UniqueId id{};
  std::memcpy(id.internal, &content, sizeof content);
  return id;
}

std::int64_t roots() {
  return root_count;
}

std::optional<Wires> join(const abi::UniqueId& id, int rank, int world, const Alarm& alarm) {
  IdContent content;
  std::memcpy(&content, id.internal, sizeof content);
  if (std::memcmp(content.magic, IdContent().magic, sizeof content.magic) != 0)
    return Wires{abi::kInvalidArgument, {}};
  const auto [listener, name] = listen_anywhere();
  const CheckIn own{content.number, rank, world, name};
  std::vector<Name> names(static_cast<std::size_t>(world));
  Socket root;
  Outcome outcome = dial(content.root, root, alarm);
  if (outcome == Outcome::kDone) outcome = send_all(root.file(), &own, sizeof own, &alarm);
  if (outcome == Outcome::kDone)
    outcome = receive(root.file(), names.data(), names.size() * sizeof(Name), &alarm);
  if (outcome == Outcome::kAlarm) return std::nullopt;
  if (outcome == Outcome::kEnd) return Wires{abi::kRemoteError, {}};

  Wires wires;
  wires.peers.resize(names.size());
  for (int peer = 0; peer < rank; ++peer) {
    Socket& socket = wires.peers[static_cast<std::size_t>(peer)];
    if (dial(names[static_cast<std::size_t>(peer)], socket, alarm) != Outcome::kDone)
      return std::nullopt;
    if (send_all(socket.file(), &own, sizeof own, &alarm) == Outcome::kAlarm) return std::nullopt;
  }
  for (int missing = world - 1 - rank; missing > 0;) {
    Socket socket;
    CheckIn in;
    if (accept_from(listener, socket, &alarm) != Outcome::kDone) return std::nullopt;
    outcome = receive(socket.file(), &in, sizeof in, &alarm);
    if (outcome == Outcome::kAlarm) return std::nullopt;
    if (outcome == Outcome::kEnd || in.number != content.number) continue;
    wires.peers[static_cast<std::size_t>(in.rank)] = std::move(socket);
    --missing;
  }
  return wires;
}

}  // namespace starling::collectives::fake
