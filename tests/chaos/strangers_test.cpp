#include "tools/chaos/strangers.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace starling::chaos {
namespace {

// Accepts `visitors` one after the other, reads a little, says `words`, closes.
class House {
 public:
  House(int visitors, std::string words) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(socket_, generic, size) == 0);
    REQUIRE(::listen(socket_, 8) == 0);
    REQUIRE(::getsockname(socket_, generic, &size) == 0);
    port_ = ::ntohs(address.sin_port);
    thread_ = std::thread([this, visitors, words] {
      for (int i = 0; i < visitors; ++i) {
        const int visitor = ::accept(socket_, nullptr, nullptr);
        char buffer[8192];
        [[maybe_unused]] auto n = ::recv(visitor, buffer, sizeof buffer, 0);
        n = ::send(visitor, words.data(), words.size(), MSG_NOSIGNAL);
        ::close(visitor);
      }
    });
  }
  ~House() {
    thread_.join();
    ::close(socket_);
  }
  std::uint16_t port() const { return port_; }

 private:
  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_CASE("who is closed on has been refused, who is talked to has not") {
  for (const bool talks : {false, true}) {
    CAPTURE(talks);
    const House coordinator(2, std::string(talks ? 200 : 64, 'x'));
    const House worker(2, talks ? "come in" : "");
    Doors doors;
    doors.coordinators = {"127.0.0.1:" + std::to_string(coordinator.port())};
    doors.bulk = {worker.port()};
    const auto strangers = knock(doors);
    REQUIRE(strangers.size() == 5);
    for (const judge::Stranger& stranger : strangers) {
      const bool nobody_there = stranger.how.find("local socket") != std::string::npos;
      CHECK_MESSAGE(stranger.refused == (nobody_there || !talks),
                    stranger.how << ": " << stranger.seen);
      CHECK(stranger.met == !nobody_there);
    }
  }
}

TEST_CASE("a stranger's keys: the coordinators' public halves, and one of its own") {
  const KeyRing ring = KeyRing::generate(3, 2);
  auto keys = stranger_keys(ring);
  REQUIRE(keys);
  CHECK(keys.value().numbered("coordinator").size() == 3);
  for (const KeyPair& pair : keys.value().pairs()) {
    const bool coordinator = pair.name.rfind("coordinator", 0) == 0;
    CHECK(pair.secret_key.empty() == coordinator);
    CHECK((ring.allow_list().count(pair.public_key) > 0) == coordinator);
  }
}

TEST_CASE("addresses of coordinators") {
  CHECK(addresses_in("tcp://a:1,b:2") == std::vector<std::string>{"a:1", "b:2"});
  CHECK(addresses_in("").empty());
}

}  // namespace starling::chaos
