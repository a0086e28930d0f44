#include "collectives/tcp/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/thread_name.h"

namespace starling::collectives {

using Clock = std::chrono::steady_clock;

struct Listener::Pending {
  enum class Phase { kPrefix, kHello, kWaiting, kProof };
  // kWaiting: the epoch is not known here yet
  Fd fd;
  Phase phase = Phase::kPrefix;
  Clock::time_point deadline;
  std::array<std::uint8_t, sizeof(Hello)> buffer{};
  std::size_t have = 0;
  Hello hello;
  Answer answer;

  // Bytes that are to be in the buffer before anything is done.
  std::size_t expected() const {
    switch (phase) {
      case Phase::kPrefix:
        return sizeof(Prefix);
      case Phase::kHello:
        return sizeof(Hello);  // its prefix is in the buffer already
      case Phase::kWaiting:
        return 0;
      case Phase::kProof:
        return sizeof(Proof);
    }
    return 0;
  }
};

namespace {

constexpr std::chrono::milliseconds kPause{100};  // without files

void watch(const Fd& epoll, const Fd& fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd.get();
  STARLING_CHECK(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0);
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
      wake_(make_wake()),
      // The listener closes a connection whose handshake takes too long: no patience here.
      newcomers_(options.sockets_max, std::chrono::hours(24)) {
  watch(epoll_, tcp_);
  if (local_) watch(epoll_, local_);
  watch(epoll_, wake_);
  thread_ = std::thread([this] {
    name_thread("listener");
    run();
  });
}

Listener::~Listener() {
  stopping_ = true;
  wake(wake_);
  thread_.join();
  STARLING_CHECK(epochs_.empty());
}

ListenerCounters Listener::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

void Listener::add(EpochSecret secret, Adopt adopt) {
  const EpochId epoch = secret.epoch;
  {
    const MutexLock lock(mutex_);
    const bool added =
        epochs_.try_emplace(epoch, Registered{std::move(secret), std::move(adopt)}).second;
    STARLING_CHECK_MSG(added, "a second mesh of epoch " << to_string(epoch));
  }
  wake(wake_);  // a dialler may be waiting for this epoch
}

void Listener::remove(const EpochId& epoch) {
  const MutexLock lock(mutex_);
  epochs_.erase(epoch);
}

void Listener::run() {
  std::array<epoll_event, 64> events;
  while (!stopping_) {
    int timeout_ms = -1;
    const auto wake_at = [&](Clock::time_point at) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - Clock::now());
      const int ms = static_cast<int>(std::max<std::int64_t>(0, left.count()));
      timeout_ms = timeout_ms < 0 ? ms : std::min(timeout_ms, ms);
    };
    for (const auto& [fd, p] : pending_) wake_at(p->deadline);
    if (paused_until_) wake_at(*paused_until_);
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
    if (paused_until_ && *paused_until_ <= Clock::now()) pause(false);
  }
}

void Listener::accept_all(const Fd& socket) {
  // At most `sockets_max` accepts at once, so that a flood of dials cannot starve the others.
  for (std::size_t i = 0; i < options_.sockets_max; ++i) {
    Fd fd(accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (full && make_room()) continue;
      if (full) pause(true);
      return;
    }
    const auto gone = newcomers_.came({fd.get(), peer_of(fd.get())}, Clock::now());
    if (gone) evict(gone->number);
    tune(fd);
    watch(epoll_, fd);
    auto pending = std::make_unique<Pending>();
    pending->deadline = Clock::now() + options_.handshake_timeout;
    const int number = fd.get();
    pending->fd = std::move(fd);
    pending_[number] = std::move(pending);
    const MutexLock lock(mutex_);
    ++counters_.accepted;
  }
}

// File descriptors have run out: close a connection that has not shown a key.
bool Listener::make_room() {
  const auto next = newcomers_.next_to_go();
  if (next) evict(next->number);
  return next.has_value();
}

// Diallers wait in the backlog meanwhile; asking again at once would only burn time.
void Listener::pause(bool on) {
  paused_until_.reset();
  if (on) paused_until_ = Clock::now() + kPause;
  for (const Fd* socket : {&tcp_, &local_}) {
    if (!*socket) continue;
    epoll_event event{};
    event.events = on ? 0u : EPOLLIN;
    event.data.fd = socket->get();
    STARLING_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket->get(), &event) == 0);
  }
  if (!on) return;
  const MutexLock lock(mutex_);
  ++counters_.paused;
}

void Listener::evict(int fd) {
  {
    const MutexLock lock(mutex_);
    ++counters_.evicted;
  }
  forget(fd);
}

void Listener::forget(int fd) {
  newcomers_.settled(fd);
  pending_.erase(fd);
}

void Listener::on_readable(Pending& p) {
  const int fd = p.fd.get();
  // A peer that waits for our answer has nothing to say; it has closed, or breaks the protocol.
  const std::size_t need = p.expected();
  const ssize_t n = need == 0 ? 0 : recv(fd, p.buffer.data() + p.have, need - p.have, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    forget(fd);
    return;
  }
  p.have += static_cast<std::size_t>(n);
  if (p.have < need) return;
  if (p.phase == Pending::Phase::kPrefix) return on_prefix(p);
  p.have = 0;
  if (p.phase == Pending::Phase::kProof) return finish(p);
  std::memcpy(&p.hello, p.buffer.data(), sizeof p.hello);
  p.phase = Pending::Phase::kWaiting;
  try_answer(p);
}

// A dialler of another version is told so at once. May destroy `p`.
void Listener::on_prefix(Pending& p) {
  Prefix prefix;
  std::memcpy(&prefix, p.buffer.data(), sizeof prefix);
  Prefix ours;
  ours.seal = prefix.seal;  // how it seals is looked at when its epoch is known
  const bool stranger = prefix.magic != Prefix::kMagic;
  const std::string fault = stranger ? "it sent what is no handshake" : prefix_fault(prefix, ours);
  if (fault.empty()) {
    p.phase = Pending::Phase::kHello;
    return;
  }
  const MutexLock lock(mutex_);
  if (!stranger) send_whole(p.fd, ours);
  refuse_locked(p, fault);
}

// Destroys `p`.
void Listener::refuse_locked(Pending& p, const std::string& why) {
  ++counters_.refused;
  if (!why.empty()) counters_.last_refusal = why;
  forget(p.fd.get());
}

// Answers a hello if its epoch is known by now. May destroy `p`.
void Listener::try_answer(Pending& p) {
  if (p.phase != Pending::Phase::kWaiting) return;
  const MutexLock lock(mutex_);
  const auto found = epochs_.find(p.hello.epoch);
  if (found == epochs_.end()) return;
  const EpochSecret& secret = found->second.secret;
  if (!hello_fits(secret, p.hello)) return refuse_locked(p, {});
  const Prefix ours = prefix_of(secret);
  if (const auto fault = prefix_fault(p.hello.prefix, ours); !fault.empty()) {
    send_whole(p.fd, ours);
    return refuse_locked(p, fault);
  }
  p.answer = make_answer(secret, p.hello);
  p.phase = Pending::Phase::kProof;
  if (!send_whole(p.fd, p.answer)) forget(p.fd.get());
}

// Hands the socket to its mesh if the dialler has proved the key. Destroys `p`.
void Listener::finish(Pending& p) {
  Proof proof;
  std::memcpy(&proof, p.buffer.data(), sizeof proof);
  newcomers_.settled(p.fd.get());
  const auto owned = std::move(pending_.extract(p.fd.get()).mapped());
  const MutexLock lock(mutex_);
  const auto found = epochs_.find(owned->hello.epoch);
  if (found == epochs_.end()) return;  // the epoch has ended meanwhile
  const EpochSecret& secret = found->second.secret;
  const auto keys = proof_holds(secret, owned->hello, owned->answer, proof)
                        ? acceptor_keys(secret, owned->hello, owned->answer)
                        : std::nullopt;
  if (!keys) {
    ++counters_.refused;
    return;
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, owned->fd.get(), nullptr);
  if (!send_whole(owned->fd, kAdmit)) return;
  ++counters_.admitted;
  found->second.adopt(owned->hello.from, {std::move(owned->fd), *keys});
}

// Counts before it closes, so that a peer that sees its connection end finds it counted.
void Listener::close_expired() {
  const auto now = Clock::now();
  std::vector<int> expired;
  for (const auto& [fd, p] : pending_)
    if (p->deadline <= now) expired.push_back(fd);
  if (expired.empty()) return;
  {
    const MutexLock lock(mutex_);
    counters_.timed_out += expired.size();
  }
  for (const int fd : expired) forget(fd);
}

}  // namespace starling::collectives
