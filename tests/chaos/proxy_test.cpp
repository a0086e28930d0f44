#include "tools/chaos/proxy.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "collectives/tcp/handshake.h"

namespace starling::chaos {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPatience_ms = 20000;

sockaddr_in loopback_at(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  address.sin_port = ::htons(port);
  return address;
}

struct End {
  int fd = -1;
  ~End() {
    if (fd >= 0) ::close(fd);
  }
  void say(const std::string& text) const {
    REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size()));
  }
  // So many bytes, or fewer if the other side closes; "" if nothing comes for `ms`.
  std::string hear(std::size_t bytes, int ms = kPatience_ms) const {
    std::string text;
    while (text.size() < bytes) {
      pollfd polled{fd, POLLIN, 0};
      if (::poll(&polled, 1, ms) <= 0) break;
      char buffer[65536];
      const auto n = ::recv(fd, buffer, std::min(sizeof buffer, bytes - text.size()), 0);
      if (n <= 0) break;
      text.append(buffer, std::size_t(n));
    }
    return text;
  }
};

// A target behind a front of worker "a", and a connection through it.
struct ProxiedPair {
  Proxy& proxy;
  int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  End near, far;

  explicit ProxiedPair(Proxy& p, bool bulk = false, const std::string& worker = "a") : proxy(p) {
    sockaddr_in address = loopback_at(0);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listening, 8) == 0);
    REQUIRE(::getsockname(listening, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    auto front = proxy.add(worker, ::ntohs(address.sin_port), bulk);
    REQUIRE(front);
    address = loopback_at(front.value());
    near.fd = ::socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(::connect(near.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    pollfd polled{listening, POLLIN, 0};
    REQUIRE(::poll(&polled, 1, kPatience_ms) == 1);
    far.fd = ::accept(listening, nullptr, nullptr);
    REQUIRE(far.fd >= 0);
  }
  ~ProxiedPair() { ::close(listening); }
};

std::string hello_of(std::uint64_t id) {
  collectives::Hello hello;
  hello.from_who = {id, 5};
  return {reinterpret_cast<const char*>(&hello), sizeof hello};
}

template <class Condition>
bool eventually(Condition condition) {
  const auto end = Clock::now() + std::chrono::milliseconds(kPatience_ms);
  while (!condition())
    if (Clock::now() > end) return false;
  return true;
}

}  // namespace

TEST_CASE("bytes pass both ways, in order, and so does the end") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy);
  std::string much(3'000'000, 'x');
  for (std::size_t i = 0; i < much.size(); ++i) much[i] = char('a' + i % 23);
  pair.near.say("hello");
  CHECK(pair.far.hear(5) == "hello");
  std::string heard;
  pair.far.say(much.substr(0, 200'000));
  CHECK(pair.near.hear(200'000) == much.substr(0, 200'000));
  ::shutdown(pair.near.fd, SHUT_WR);
  CHECK(pair.far.hear(1).empty());  // end of file
  pair.far.say("bye");
  CHECK(pair.near.hear(3) == "bye");
  CHECK(proxy->counts("a").passed == 5 + 200'000 + 3);
}

TEST_CASE("a cut link passes nothing, tells no end, and goes on where it was") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy), other(*proxy, false, "b");
  proxy->set("a", {.cut = true});
  pair.near.say("late");
  ::shutdown(pair.near.fd, SHUT_WR);
  other.near.say("now");
  CHECK(other.far.hear(3) == "now");  // links of others are as they were
  CHECK(eventually([&] { return proxy->counts("a").held == 4; }));
  CHECK(proxy->counts("a").passed == 0);
  CHECK(proxy->counts("b").held == 0);
  CHECK(pair.far.hear(1, /*ms=*/1).empty());
  proxy->set("a", {});
  CHECK(pair.far.hear(10) == "late");
}

TEST_CASE("a bulk connection belongs to the worker that dialled it, too") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy, /*bulk=*/true, "owner");
  proxy->add("dialler", 1, true).value();
  proxy->set_id("dialler", 7);
  proxy->set("dialler", {.cut = true});
  const std::string hello = hello_of(7);
  pair.near.say(hello.substr(0, 50));
  pair.near.say(hello.substr(50) + "frames");
  CHECK(eventually([&] { return proxy->counts("dialler").held > 0; }));
  CHECK(pair.far.hear(1, /*ms=*/1).empty());
  proxy->set("dialler", {});
  CHECK(pair.far.hear(hello.size() + 6) == hello + "frames");
  CHECK(proxy->counts("dialler").connections == 1);
}

TEST_CASE("bulk connections of two that are apart are held back, and no others") {
  const auto proxy = Proxy::start().value();
  proxy->add("dialler", 1, true).value();
  proxy->set_id("dialler", 7);
  proxy->add("third", 1, true).value();
  proxy->set_id("third", 8);
  ProxiedPair between(*proxy, /*bulk=*/true, "owner"), of_third(*proxy, /*bulk=*/true, "owner"),
      to_third(*proxy, /*bulk=*/true, "third"), control(*proxy, /*bulk=*/false, "owner");
  for (const char* worker : {"owner", "dialler"}) proxy->set(worker, {.apart = true});
  between.near.say(hello_of(7) + "frames");
  of_third.near.say(hello_of(8) + "frames");
  to_third.near.say(hello_of(7) + "frames");
  control.near.say("a word");
  const std::size_t all = hello_of(7).size() + 6;
  CHECK(of_third.far.hear(all) == hello_of(8) + "frames");
  CHECK(to_third.far.hear(all) == hello_of(7) + "frames");
  CHECK(control.far.hear(6) == "a word");
  for (const char* worker : {"owner", "dialler"})
    CHECK(eventually([&] { return proxy->counts(worker).held == all; }));
  CHECK(proxy->counts("third").held == 0);
  CHECK(between.far.hear(1, /*ms=*/1).empty());
  proxy->set("dialler", {});  // the owner is apart from nobody now
  CHECK(between.far.hear(all) == hello_of(7) + "frames");
}

TEST_CASE("nothing passes a cut, whenever the dialler's name comes") {
  const auto proxy = Proxy::start().value();
  proxy->add("dialler", 1, true).value();
  proxy->set_id("dialler", 7);
  proxy->set("dialler", {.cut = true});
  const std::string hello = hello_of(7);
  for (int i = 0; i < 300; ++i) {
    ProxiedPair pair(*proxy, /*bulk=*/true, "owner");
    const int on = 1;
    ::setsockopt(pair.near.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const auto held = proxy->counts("dialler").held;
    pair.near.say(hello.substr(0, 50));
    const auto gap = Clock::now() + std::chrono::nanoseconds(i * 300);
    while (Clock::now() < gap) std::this_thread::yield();
    pair.near.say(hello.substr(50));
    REQUIRE(eventually([&] { return proxy->counts("dialler").held > held; }));
  }
  CHECK(proxy->counts("dialler").passed == 0);
}

TEST_CASE("one bit is flipped, beyond the handshake, once") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy, /*bulk=*/true);
  const std::string start = hello_of(3) + std::string(1000, 'h');
  pair.near.say(start);
  CHECK(pair.far.hear(start.size()) == start);
  proxy->flip("a");
  const std::string frame(100, 'f');
  pair.near.say(frame);
  const std::string heard = pair.far.hear(frame.size());
  REQUIRE(heard.size() == frame.size());
  int differing = 0;
  for (std::size_t i = 0; i < frame.size(); ++i) differing += heard[i] != frame[i];
  CHECK(differing == 1);
  CHECK(proxy->counts("a").flipped == 1);
  pair.near.say(frame);
  CHECK(pair.far.hear(frame.size()) == frame);
  CHECK(proxy->counts("a").given_up == 0);
  ::shutdown(pair.far.fd, SHUT_RDWR);
  CHECK(eventually([&] { return proxy->counts("a").given_up == 1; }));
}

TEST_CASE("a connection without a flipped bit is not given up, however it ends") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy, /*bulk=*/true);
  pair.near.say(hello_of(3));
  CHECK(pair.far.hear(hello_of(3).size()) == hello_of(3));
  ::shutdown(pair.far.fd, SHUT_RDWR);
  CHECK(pair.near.hear(1).empty());
  ::shutdown(pair.near.fd, SHUT_RDWR);
  CHECK(eventually([&] { return proxy->counts("a").connections == 0; }));
  CHECK(proxy->counts("a").given_up == 0);
}

TEST_CASE("a cut without traffic holds nothing") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy);
  proxy->set("a", {.cut = true});
  proxy->set("a", {});
  pair.near.say("on");
  CHECK(pair.far.hear(2) == "on");
  CHECK(proxy->counts("a").held == 0);
}

TEST_CASE("a slow link delays each way") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy);
  proxy->set("a", {.delay_s = 0.05});
  const auto begun = Clock::now();
  pair.near.say("ping");
  CHECK(pair.far.hear(4) == "ping");
  pair.far.say("pong");
  CHECK(pair.near.hear(4) == "pong");
  CHECK(Clock::now() - begun >= std::chrono::milliseconds(100));  // never less
  CHECK(proxy->counts("a").delayed == 8);
  proxy->set("a", {});
  pair.near.say("ping");
  CHECK(pair.far.hear(4) == "ping");
  CHECK(proxy->counts("a").delayed == 8);
}

TEST_CASE("a forgotten worker has no front and no connection") {
  const auto proxy = Proxy::start().value();
  ProxiedPair pair(*proxy);
  proxy->forget("a");
  CHECK(pair.near.hear(1).empty());
  CHECK(proxy->counts("a").connections == 0);
}

TEST_CASE("ports for workers are free and not dialled from") {
  const auto one = QuietPort::take("127.0.0.1").value(), two = QuietPort::take("127.0.0.1").value();
  CHECK(one.port() != two.port());
  CHECK(one.port() >= 18000);
  CHECK(two.port() < 32768);
}

TEST_CASE("the port of a front is its worker's alone, of one life after the other") {
  const auto proxy = Proxy::start().value();
  auto taken = QuietPort::take("127.0.0.1").value();
  const sockaddr_in address = loopback_at(taken.port());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  REQUIRE(proxy->add("a", std::move(taken), true));
  const auto listen_there = [&](bool reuse) {
    const End end{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int on = reuse;
    ::setsockopt(end.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return ::bind(end.fd, generic, sizeof address) == 0 && ::listen(end.fd, 8) == 0;
  };
  CHECK(listen_there(true));
  CHECK(listen_there(true));
  CHECK_FALSE(listen_there(false));  // as another run asks for a port
  proxy->forget("a");
  CHECK(eventually([&] { return listen_there(false); }));
}

}  // namespace starling::chaos
