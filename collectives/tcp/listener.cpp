#include "collectives/tcp/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace starling::collectives {

using Clock = std::chrono::steady_clock;

struct Listener::Pending {
  enum class Phase { kHello, kWaiting, kProof };  // kWaiting: the epoch is not known here yet
  Fd fd;
  Phase phase = Phase::kHello;
  Clock::time_point deadline;
  std::array<std::uint8_t, sizeof(Hello)> buffer{};
  std::size_t have = 0;
  Hello hello;
  Answer answer;
};

namespace {

void watch(const Fd& epoll, const Fd& fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd.get();
  STARLING_CHECK(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0);
}

template <class T>
bool send_whole(const Fd& fd, const T& value) {
  return send(fd.get(), &value, sizeof value, MSG_NOSIGNAL) == ssize_t{sizeof value};
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const ListenerOptions& options) {
  STARLING_TRY(bound, listen_tcp(options.host, options.port));
  return std::unique_ptr<Listener>(new Listener(options, std::move(bound)));
}

Listener::Listener(const ListenerOptions& options, Bound bound)
    : options_(options),
      port_(bound.port),
      tcp_(std::move(bound.socket)),
      local_(listen_local(port_)),
      epoll_(make_epoll()),
      wake_(make_wake()) {
  watch(epoll_, tcp_);
  if (local_) watch(epoll_, local_);
  watch(epoll_, wake_);
  thread_ = std::thread([this] { run(); });
}

Listener::~Listener() {
  stopping_ = true;
  wake(wake_);
  thread_.join();
  STARLING_CHECK(epochs_.empty());
}

ListenerCounters Listener::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Listener::add(EpochSecret secret, Adopt adopt) {
  const EpochId epoch = secret.epoch;
  {
    const std::lock_guard lock(mutex_);
    const bool added =
        epochs_.try_emplace(epoch, Registered{std::move(secret), std::move(adopt)}).second;
    STARLING_CHECK_MSG(added, "a second mesh of epoch " << to_string(epoch));
  }
  wake(wake_);  // somebody may be waiting for it
}

void Listener::remove(const EpochId& epoch) {
  const std::lock_guard lock(mutex_);
  epochs_.erase(epoch);
}

void Listener::run() {
  std::array<epoll_event, 64> events;
  while (!stopping_) {
    int timeout_ms = -1;
    for (const auto& [fd, p] : pending_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(p->deadline - Clock::now());
      const int ms = static_cast<int>(std::max<std::int64_t>(0, left.count()));
      timeout_ms = timeout_ms < 0 ? ms : std::min(timeout_ms, ms);
    }
    const int n = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      if (fd == tcp_.get() || fd == local_.get()) {
        accept_all(fd == tcp_.get() ? tcp_ : local_);
      } else if (fd == wake_.get()) {
        drain_wake(wake_);
        for (auto it = pending_.begin(); it != pending_.end();) try_answer(*(it++)->second);
      } else if (const auto it = pending_.find(fd); it != pending_.end()) {
        on_readable(*it->second);
      }
    }
    close_expired();
  }
}

void Listener::accept_all(const Fd& socket) {
  // Not more at once than wait at most, so that a flood of dials cannot starve the others.
  for (std::size_t i = 0; i < options_.sockets_max; ++i) {
    Fd fd(accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    if (pending_.size() >= options_.sockets_max) {
      const auto older = [](const auto& a, const auto& b) {
        return a.second->deadline < b.second->deadline;
      };
      {
        const std::lock_guard lock(mutex_);
        ++counters_.evicted;
      }
      pending_.erase(std::min_element(pending_.begin(), pending_.end(), older));
    }
    tune(fd);
    watch(epoll_, fd);
    auto pending = std::make_unique<Pending>();
    pending->deadline = Clock::now() + options_.handshake_timeout;
    const int number = fd.get();
    pending->fd = std::move(fd);
    pending_[number] = std::move(pending);
    const std::lock_guard lock(mutex_);
    ++counters_.accepted;
  }
}

void Listener::on_readable(Pending& p) {
  const int fd = p.fd.get();
  const bool hello = p.phase == Pending::Phase::kHello;
  // A peer that waits for our answer has nothing to say; it has closed, or breaks the protocol.
  const std::size_t need =
      p.phase == Pending::Phase::kWaiting ? 0 : (hello ? sizeof(Hello) : sizeof(Proof));
  const ssize_t n = need == 0 ? 0 : recv(fd, p.buffer.data() + p.have, need - p.have, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    pending_.erase(fd);
    return;
  }
  p.have += static_cast<std::size_t>(n);
  if (p.have < need) return;
  p.have = 0;
  if (!hello) return finish(p);
  std::memcpy(&p.hello, p.buffer.data(), sizeof p.hello);
  p.phase = Pending::Phase::kWaiting;
  try_answer(p);
}

// Answers a hello if its epoch is known by now. May destroy `p`.
void Listener::try_answer(Pending& p) {
  if (p.phase != Pending::Phase::kWaiting) return;
  const std::lock_guard lock(mutex_);
  const auto found = epochs_.find(p.hello.epoch);
  if (found == epochs_.end() && p.hello.magic == Hello::kMagic) return;
  if (found == epochs_.end() || !hello_fits(found->second.secret, p.hello)) {
    ++counters_.refused;
    pending_.erase(p.fd.get());
    return;
  }
  p.answer = make_answer(found->second.secret, p.hello);
  p.phase = Pending::Phase::kProof;
  if (!send_whole(p.fd, p.answer)) pending_.erase(p.fd.get());
}

// Hands the socket to its mesh if the dialler has proved the key. Destroys `p`.
void Listener::finish(Pending& p) {
  Proof proof;
  std::memcpy(&proof, p.buffer.data(), sizeof proof);
  const auto owned = std::move(pending_.extract(p.fd.get()).mapped());
  const std::lock_guard lock(mutex_);
  const auto found = epochs_.find(owned->hello.epoch);
  if (found == epochs_.end()) return;  // the epoch has ended meanwhile
  if (!proof_holds(found->second.secret, owned->hello, owned->answer, proof)) {
    ++counters_.refused;
    return;
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, owned->fd.get(), nullptr);
  if (!send_whole(owned->fd, kAdmit)) return;
  ++counters_.admitted;
  found->second.adopt(owned->hello.from, std::move(owned->fd));
}

// Counts before it closes, so that who sees the end of its connection finds it counted.
void Listener::close_expired() {
  const auto now = Clock::now();
  const auto expired = [&](const auto& entry) { return entry.second->deadline <= now; };
  const auto n = std::count_if(pending_.begin(), pending_.end(), expired);
  if (n == 0) return;
  {
    const std::lock_guard lock(mutex_);
    counters_.timed_out += static_cast<std::uint64_t>(n);
  }
  std::erase_if(pending_, expired);
}

}  // namespace starling::collectives
