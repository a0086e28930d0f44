#pragma once
// Somebody in the middle of TCP connections who has no key: sits where a peer is dialled, hands on
// what both sides say, and changes what the dialler says behind the handshake.

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/socket.h"

namespace starling::collectives {

class Relay {
 public:
  // `change` gets all bytes behind the handshake that the dialler has said so far and are not yet
  // handed on; takes from it what it hands on now, changed or not.
  using Change = std::function<Bytes(Bytes& waiting)>;

  Relay(std::uint16_t target, Change change) : target_(target), change_(std::move(change)) {
    auto bound = listen_tcp("127.0.0.1", 0);
    REQUIRE(bound.has_value());
    bound_ = std::move(bound.value());
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stopping_ = true;
    thread_.join();
  }
  std::uint16_t port() const { return bound_.port; }
  // Everything that went by, both ways.
  Bytes seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  static bool ready(const Fd& fd, short what) {
    pollfd p{fd.get(), what, 0};
    return poll(&p, 1, 10) == 1;
  }
  static bool send_all(const Fd& fd, const Bytes& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<std::size_t>(n);
      if (n < 0 && errno != EAGAIN) return false;
      if (n < 0) ready(fd, POLLOUT);
    }
    return true;
  }
  // What has come, appended; false at the end.
  bool receive(const Fd& fd, Bytes& to) {
    std::uint8_t buffer[65536];
    const ssize_t n = recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    to.insert(to.end(), buffer, buffer + n);
    const std::lock_guard lock(mutex_);
    seen_.insert(seen_.end(), buffer, buffer + n);
    return true;
  }
  void run() {
    while (!stopping_) {
      if (!ready(bound_.socket, POLLIN)) continue;
      const Fd dialler(accept4(bound_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK));
      auto dialled = dial_tcp("127.0.0.1", target_);
      if (dialler && dialled) serve(dialler, dialled.value());
    }
  }
  void serve(const Fd& dialler, const Fd& acceptor) {
    while (!ready(acceptor, POLLOUT))
      if (stopping_) return;
    std::size_t handshake = sizeof(Hello) + sizeof(Proof);
    Bytes waiting;
    while (!stopping_) {
      pollfd both[] = {{dialler.get(), POLLIN, 0}, {acceptor.get(), POLLIN, 0}};
      if (poll(both, 2, 10) <= 0) continue;
      if (both[0].revents != 0 && !receive(dialler, waiting)) return;
      Bytes back;
      if (both[1].revents != 0 && !receive(acceptor, back)) return;
      const std::size_t n = std::min(handshake, waiting.size());
      Bytes on(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(n));
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(n));
      handshake -= n;
      if (handshake == 0) {
        const Bytes changed = change_(waiting);
        on.insert(on.end(), changed.begin(), changed.end());
      }
      if (!send_all(acceptor, on) || !send_all(dialler, back)) return;
    }
  }

  const std::uint16_t target_;
  const Change change_;
  Bound bound_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  Bytes seen_;  // guarded by mutex_
  std::thread thread_;
};

// Hands on everything at once.
inline Bytes unchanged(Bytes& waiting) {
  return std::exchange(waiting, {});
}

}  // namespace starling::collectives
