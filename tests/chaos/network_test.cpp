#include "tools/chaos/network.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tools/chaos/program.h"

namespace starling::chaos {
namespace {

using Clock = std::chrono::steady_clock;

// Null, and says so, where this machine or user cannot have one.
std::unique_ptr<Network> network_or_skip() {
  auto made = Network::make();
  if (made) return std::move(made).value();
  MESSAGE("SKIPPED, no network of one's own: " << made.error().text());
  CHECK(made.error().code() == Code::kUnavailable);
  return nullptr;
}

sockaddr_in at(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = ::htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

Fd socket_in(int netns, int kind = SOCK_STREAM) {
  const Inside inside(netns);
  return Fd(::socket(AF_INET, kind | SOCK_CLOEXEC, 0));
}

bool readable(const Fd& socket, int timeout_ms) {
  pollfd polled{socket.get(), POLLIN, 0};
  return ::poll(&polled, 1, timeout_ms) > 0;
}

bool within_seconds(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + std::chrono::seconds(20); !condition(); ::usleep(1000))
    if (Clock::now() > end) return false;
  return true;
}

// A connection of two workers.
struct WorkerPair {
  Fd dialler, listener, accepted;
  WorkerPair(const Network::Home& from, const Network::Home& to)
      : dialler(socket_in(from.netns)), listener(socket_in(to.netns)) {
    const sockaddr_in address = at(to.address, 7001);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    REQUIRE(::bind(listener.get(), generic, sizeof address) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::connect(dialler.get(), generic, sizeof address) == 0);
    accepted = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(static_cast<bool>(accepted));
  }
};

}  // namespace

TEST_CASE("who is cut off in a network loses packets, not connections, and is heard again later") {
  const auto network = network_or_skip();
  if (!network) return;
  const auto one = network->home("worker-1"), two = network->home("worker-2");
  REQUIRE(one);
  REQUIRE(two);
  const WorkerPair pair(one.value(), two.value());
  CHECK(network->loss("worker-2").lost == 0);

  REQUIRE(network->cut("worker-2"));
  REQUIRE(::send(pair.dialler.get(), "a", 1, 0) == 1);
  REQUIRE(::send(pair.accepted.get(), "b", 1, 0) == 1);
  CHECK(within_seconds([&] { return network->loss("worker-2").lost >= 3; }));  // it tries again
  CHECK(network->loss("worker-2").passed == 0);
  CHECK_FALSE(readable(pair.dialler, 0));
  CHECK_FALSE(readable(pair.accepted, 0));

  REQUIRE(network->mend("worker-2"));
  CHECK(readable(pair.accepted, 20000));
  CHECK(readable(pair.dialler, 20000));
  const auto loss = network->loss("worker-2");  // as it was when it was mended
  CHECK(loss.lost >= 3);
  CHECK(loss.passed == 0);
  CHECK(network->close().empty());
}

TEST_CASE("workers that are apart hear nothing of one another, and all others hear them") {
  const auto network = network_or_skip();
  if (!network) return;
  const std::vector<std::string> all{"one", "two", "three"}, apart{"one", "two"};
  for (const std::string& worker : all) REQUIRE(network->home(worker));
  const auto heard = [&](const std::vector<std::string>& workers) {
    return network->heard(workers, std::chrono::milliseconds(150)).value();
  };
  CHECK(within_seconds([&] { return heard(all) == 6; }));
  for (const std::string& worker : apart) REQUIRE(network->set_apart(worker, true));
  CHECK(heard(apart) == 0);
  CHECK(within_seconds([&] { return heard(all) == 4; }));  // each with the third
  const auto one = network->home("one");                   // of the next worker of that name
  REQUIRE(one);
  CHECK(within_seconds([&] { return heard(all) == 6; }));
}

TEST_CASE("the next worker of a name has its home, and links as they should be") {
  const auto network = network_or_skip();
  if (!network) return;
  const auto before = network->home("worker-1");
  REQUIRE(before);
  CHECK(network->address_of("worker-1") == before.value().address);
  CHECK(network->address_of("worker-2").empty());
  REQUIRE(network->cut("worker-1"));
  const auto after = network->home("worker-1");
  REQUIRE(after);
  CHECK(after.value().address == before.value().address);
  CHECK(after.value().netns == before.value().netns);
  const auto other = network->home("worker-2");
  REQUIRE(other);
  CHECK(other.value().address != before.value().address);
  const WorkerPair reached(other.value(), after.value());
}

TEST_CASE("two networks have nothing in common, and leave nothing") {
  const auto ours = [] {
    const auto said = run_program({"ip", "-o", "link", "show"});
    return said ? said.value() : std::string();
  };
  std::string host;
  {
    const auto one = network_or_skip();
    if (!one) return;
    const auto two = network_or_skip();
    REQUIRE(two);
    host = one->host();
    CHECK(one->host() != two->host());
    const auto home = one->home("worker-1");
    REQUIRE(home);
    // From the other's namespace nobody is there.
    const auto stranger = two->home("worker-1");
    REQUIRE(stranger);
    const Fd socket = socket_in(stranger.value().netns);
    const sockaddr_in address = at(home.value().address, 7001);
    CHECK(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0);
    CHECK(ours().find("starling") != std::string::npos);
  }
  // Where nobody else has a network of this kind now, no interface has the name; the address is
  // free in any case.
  const auto said = run_program({"ip", "-j", "-4", "addr", "show"});
  REQUIRE(said);
  CHECK(said.value().find('"' + host + '"') == std::string::npos);
}

TEST_CASE("a program is run for what it says, and its first complaint is an error") {
  CHECK(run_program({"cat"}, "a\nb\n").value() == "a\nb\n");
  const auto none = run_program({"no-such-program"});
  REQUIRE_FALSE(none);
  CHECK(none.error().text().find("no-such-program") != std::string::npos);
  const auto failed = run_program({"ls", "/no/such/folder"});
  REQUIRE_FALSE(failed);
  CHECK(failed.error().text().find("/no/such/folder") != std::string::npos);
}

}  // namespace starling::chaos
