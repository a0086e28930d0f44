#include "tools/chaos/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/mutex.h"

// A hello says which worker dialled this connection. A wrong
// layout shows: a cut or flip then has no effect that is seen.
#include "collectives/tcp/handshake.h"
#include "core/base/check.h"
#include "core/base/system_error.h"

namespace starling::chaos {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kChunkBytes = 128 * 1024;
constexpr std::size_t kQueueBytesMax = 4u << 20;  // of one direction; then it is not read further
constexpr std::uint64_t kHandshakeBytes = 512;    // no flips in a connection's first bytes

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  address.sin_port = ::htons(port);
  return address;
}

struct Chunk {
  Clock::time_point due;
  std::string bytes;
  std::size_t sent = 0;
  bool delayed = false;
};

// A Direction has what one end of a connection has said and the other has not yet heard.
struct Direction {
  std::deque<Chunk> chunks;
  std::size_t bytes = 0;
  std::uint64_t passed = 0;
  bool ended = false;  // the speaker has closed
  bool told = false;   // and the listener knows
};

// Watched says what an event of the loop is about.
struct Watched {
  enum class What : std::uint8_t { kFront, kConnection, kWake };
  What what;
};

struct Front : Watched {
  std::string worker;
  Fd socket;
  sockaddr_in target{};
  bool bulk = false;
  std::optional<QuietPort> kept;  // the target, if it is ours to keep
  bool closed = false;
};

struct Connection : Watched {
  std::string owner;  // the worker of the front
  // Incarnation that dialled; 0: not a bulk connection, or not known yet.
  std::uint64_t dialler = 0;
  bool bulk = false;
  std::string hello;        // so far
  Fd near, far;             // the dialler's end and the target's
  Direction out, back;      // from near to far, and back
  std::size_t waiting = 0;  // bytes that a cut keeps from going on
  std::string damaged;      // worker for which a bit was flipped in here; empty: none
  bool broken = false;

  // True if one side has closed: the other has no more to say to it either.
  bool given_up() const { return broken || out.ended || back.ended; }
};

struct Link {
  LinkState state;
  LinkCounts counts;
  std::uint64_t id = 0;
  int flips = 0;  // due
};

class Running : public Proxy {
 public:
  Running(std::string host, Fd epoll, Fd wake)
      : host_(std::move(host)), epoll_(std::move(epoll)), wake_(std::move(wake)) {
    watch(wake_, &woken_, EPOLLIN);
    thread_ = std::thread([this] { run(); });
  }
  ~Running() override {
    stopping_ = true;
    wake();
    thread_.join();
  }

  const std::string& host() const override { return host_; }

  Result<std::uint16_t> add(const std::string& worker, QuietPort target, bool bulk) override {
    const std::uint16_t port = target.port();
    return add_front(worker, address_of(host_, port), bulk, std::move(target));
  }
  Result<std::uint16_t> add(const std::string& worker, std::uint16_t target, bool bulk) override {
    return add_front(worker, address_of(host_, target), bulk, std::nullopt);
  }
  Result<std::uint16_t> add(const std::string& worker, const std::string& host,
                            std::uint16_t target, bool bulk) override {
    return add_front(worker, address_of(host, target), bulk, std::nullopt);
  }

  Result<std::uint16_t> add_front(const std::string& worker, const sockaddr_in& target, bool bulk,
                                  std::optional<QuietPort> kept) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address = address_of(host_, 0);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (socket.get() < 0 || ::bind(socket.get(), generic, size) != 0 ||
        ::listen(socket.get(), 128) != 0 || ::getsockname(socket.get(), generic, &size) != 0)
      return unavailable("no port for the proxy");
    const MutexLock lock(mutex_);
    links_[worker];
    Front& front = fronts_.emplace_back(
        Front{{Watched::What::kFront}, worker, std::move(socket), target, bulk, std::move(kept)});
    watch(front.socket, &front, EPOLLIN);
    return ::ntohs(address.sin_port);
  }

  void forget(const std::string& worker) override {
    const MutexLock lock(mutex_);
    for (Front& front : fronts_)
      if (front.worker == worker) front.closed = true;
    for (Connection& c : connections_)
      if (c.owner == worker) c.broken = true;
    links_.erase(worker);
    wake();
  }

  void set_id(const std::string& worker, std::uint64_t id) override {
    const MutexLock lock(mutex_);
    links_[worker].id = id;
  }
  void set(const std::string& worker, const LinkState& state) override {
    const MutexLock lock(mutex_);
    links_[worker].state = state;
    wake();
  }
  void flip(const std::string& worker) override {
    const MutexLock lock(mutex_);
    ++links_[worker].flips;
  }
  LinkCounts counts(const std::string& worker) const override {
    const MutexLock lock(mutex_);
    const auto it = links_.find(worker);
    if (it == links_.end()) return {};
    LinkCounts counts = it->second.counts;
    for (const Connection& c : connections_)
      counts.connections += c.owner == worker || (c.dialler != 0 && c.dialler == it->second.id);
    return counts;
  }

 private:
  void watch(const Fd& socket, Watched* what, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = what;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event);
  }
  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
  }

  // Looks at what an event is about; after a command or a delay, at all. Removes fronts and
  // connections only at the end of a round, so that no event is about one that is gone.
  void run() {
    std::array<epoll_event, 64> events;
    int timeout_ms = -1;
    while (!stopping_) {
      const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
      const MutexLock lock(mutex_);
      const auto now = Clock::now();
      bool all = n <= 0;
      if (now >= next_due_) all = true;
      for (int i = 0; i < n; ++i) {
        auto* about = static_cast<Watched*>(events[static_cast<std::size_t>(i)].data.ptr);
        if (about->what == Watched::What::kConnection) {
          move_all(*static_cast<Connection*>(about), now);
        } else if (about->what == Watched::What::kFront) {
          accept_all(*static_cast<Front*>(about));
        } else {
          std::uint64_t count = 0;
          [[maybe_unused]] const auto taken = ::read(wake_.get(), &count, sizeof count);
          all = true;
        }
      }
      if (all) {
        next_due_ = now + std::chrono::hours(1);
        for (Connection& c : connections_) move_all(c, now);
        fronts_.remove_if([](const Front& front) { return front.closed; });
      }
      for (Connection& c : connections_)
        if (!c.damaged.empty() && c.given_up()) {
          if (const auto it = links_.find(c.damaged); it != links_.end())
            ++it->second.counts.given_up;
          c.damaged.clear();
        }
      connections_.remove_if(
          [](const Connection& c) { return c.broken || (c.out.told && c.back.told); });
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(next_due_ - Clock::now()).count();
      timeout_ms = left < 3'000'000 ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1;
    }
  }

  void accept_all(Front& front) STARLING_REQUIRES(mutex_) {
    if (front.closed) return;
    for (;;) {
      Fd near(::accept4(front.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (near.get() < 0) return;
      Fd far(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const int on = 1;
      for (const Fd* s : {&near, &far})
        ::setsockopt(s->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      Connection& c = connections_.emplace_back();
      c.what = Watched::What::kConnection;
      c.owner = front.worker;
      c.bulk = front.bulk;
      c.broken =
          far.get() < 0 || (::connect(far.get(), reinterpret_cast<const sockaddr*>(&front.target),
                                      sizeof front.target) != 0 &&
                            errno != EINPROGRESS);
      c.near = std::move(near);
      c.far = std::move(far);
      watch(c.near, &c, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      watch(c.far, &c, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
  }

  // Returns the links that this connection goes over: the owner's, and the dialler's if known.
  std::array<Link*, 2> links_of(const Connection& c) STARLING_REQUIRES(mutex_) {
    std::array<Link*, 2> found{};
    if (const auto it = links_.find(c.owner); it != links_.end()) found[0] = &it->second;
    if (c.dialler != 0)
      for (auto& [name, link] : links_)
        if (link.id == c.dialler && &link != found[0]) found[1] = &link;
    return found;
  }

  static bool are_apart(const std::array<Link*, 2>& links) {
    return links[0] && links[1] && links[0]->state.apart && links[1]->state.apart;
  }

  void move_all(Connection& c, Clock::time_point now) STARLING_REQUIRES(mutex_) {
    // Moves as long as one side gives and the other takes; edges are told once. Bytes
    // may say which worker dialled, so look at the links anew before passing them on.
    for (bool moved = true; moved && !c.broken;) {
      double delay_s = 0;
      const auto links = links_of(c);
      bool held = are_apart(links);
      for (const Link* link : links)
        if (link) {
          held = held || link->state.cut;
          delay_s += link->state.delay_s;
        }
      if (held) return hold(c, links);  // the ends of connections wait too
      c.waiting = 0;
      const auto due =
          now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(delay_s));
      moved = tell(c, c.out, c.far, now, links);
      moved = tell(c, c.back, c.near, now, links) || moved;
      moved = hear(c, c.near, c.out, due, true) || moved;
      moved = hear(c, c.far, c.back, due, false) || moved;
    }
  }

  void hold(Connection& c, const std::array<Link*, 2>& links) {
    std::size_t waiting = c.out.bytes + c.back.bytes;
    for (const Fd* s : {&c.near, &c.far}) {
      int unread = 0;
      if (::ioctl(s->get(), FIONREAD, &unread) == 0) waiting += static_cast<std::size_t>(unread);
    }
    if (waiting <= c.waiting) return;
    for (Link* link : links)
      if (link && (link->state.cut || are_apart(links))) link->counts.held += waiting - c.waiting;
    c.waiting = waiting;
  }

  bool hear(Connection& c, const Fd& speaker, Direction& d, Clock::time_point due, bool dialler) {
    if (d.ended || d.bytes >= kQueueBytesMax) return false;
    std::string bytes(kChunkBytes, '\0');
    const auto n = ::recv(speaker.get(), bytes.data(), bytes.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return false;
    if (n <= 0) {
      d.ended = true;
      if (n < 0) c.broken = true;  // reset: the other side's end goes with it
      return true;
    }
    bytes.resize(static_cast<std::size_t>(n));
    if (dialler && c.bulk && c.hello.size() < sizeof(collectives::Hello)) {
      c.hello.append(bytes, 0, sizeof(collectives::Hello) - c.hello.size());
      if (c.hello.size() == sizeof(collectives::Hello)) {
        collectives::Hello hello;
        std::memcpy(&hello, c.hello.data(), sizeof hello);
        c.dialler = hello.from_who.counter;
      }
    }
    d.bytes += bytes.size();
    d.chunks.push_back({due, std::move(bytes)});
    return true;
  }

  bool tell(Connection& c, Direction& d, const Fd& listener, Clock::time_point now,
            const std::array<Link*, 2>& links) STARLING_REQUIRES(mutex_) {
    // Without a whole hello the dialling worker is not known, and might be cut off.
    if (c.bulk && &d == &c.out && c.hello.size() < sizeof(collectives::Hello) && !d.ended)
      return false;
    bool moved = false;
    while (!d.chunks.empty()) {
      Chunk& chunk = d.chunks.front();
      if (chunk.due > now) {
        chunk.delayed = true;
        next_due_ = std::min(next_due_, chunk.due);
        return moved;
      }
      flip_if_due(c, d, chunk, links);
      const auto n = ::send(listener.get(), chunk.bytes.data() + chunk.sent,
                            chunk.bytes.size() - chunk.sent, MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return moved;
      if (n < 0) {
        c.broken = true;
        return true;
      }
      moved = true;
      chunk.sent += static_cast<std::size_t>(n);
      d.bytes -= static_cast<std::size_t>(n);
      d.passed += static_cast<std::uint64_t>(n);
      for (Link* link : links) {
        if (!link) continue;
        link->counts.passed += static_cast<std::uint64_t>(n);
        if (chunk.delayed) link->counts.delayed += static_cast<std::uint64_t>(n);
      }
      if (chunk.sent == chunk.bytes.size()) d.chunks.pop_front();
    }
    if (d.ended && !d.told) {
      ::shutdown(listener.get(), SHUT_WR);
      d.told = true;
      moved = true;
    }
    return moved;
  }

  void flip_if_due(Connection& c, const Direction& d, Chunk& chunk,
                   const std::array<Link*, 2>& links) STARLING_REQUIRES(mutex_) {
    if (!c.bulk || d.passed < kHandshakeBytes || chunk.sent != 0) return;
    for (auto& [name, link] : links_)
      if (link.flips > 0 && (&link == links[0] || &link == links[1])) {
        --link.flips;
        ++link.counts.flipped;
        c.damaged = name;
        chunk.bytes[chunk.bytes.size() / 2] =
            static_cast<char>(chunk.bytes[chunk.bytes.size() / 2] ^ 0x10);
      }
  }

  const std::string host_;
  Fd epoll_, wake_;
  Watched woken_{Watched::What::kWake};
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::list<Front> fronts_ STARLING_GUARDED_BY(mutex_);
  std::list<Connection> connections_ STARLING_GUARDED_BY(mutex_);
  std::map<std::string, Link> links_ STARLING_GUARDED_BY(mutex_);
  Clock::time_point next_due_ STARLING_GUARDED_BY(mutex_) = Clock::now();
};

}  // namespace

Result<std::unique_ptr<Proxy>> Proxy::start(std::string host) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC)), wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (epoll.get() < 0 || wake.get() < 0) return unavailable("no proxy");
  return std::unique_ptr<Proxy>(
      std::make_unique<Running>(std::move(host), std::move(epoll), std::move(wake)));
}

}  // namespace starling::chaos
