// Servers whose address becomes known, or another one, while the gateway runs.

#include <atomic>

#include "actors/gateway/gateway.h"
#include "tests/actors/gateway_rig.h"

namespace starling::actors {
namespace {

std::string dialled_at(const Peer& server, const std::string& host = "127.0.0.1") {
  return "tcp://" + host + ":" + std::to_string(server.gateway->port());
}

// Of coordinator-0 and coordinator-1, at these addresses; empty: not known.
GatewayOptions client_of(const std::string& first, const std::string& second) {
  GatewayOptions options = client_options(200, 1, *ring().find("worker-0"));
  options.servers[0].address = first;
  options.servers.push_back({"coordinator-1", second, ring().find("coordinator-1")->public_key});
  return options;
}

std::unique_ptr<Peer> make_second(std::uint64_t nonce) {
  return std::make_unique<Peer>(server_options(nonce, "tcp://127.0.0.1:0", "coordinator-1"));
}

// The next of these messages; nothing for a failing test alone.
std::uint64_t next_leave(Peer& server) {
  const auto arrival = server.inbox.next();
  return arrival ? std::get<Leave>(arrival->body).notice_ms : 0;
}

TEST_CASE("gateway: a server without an address gets one, and is reached") {
  const auto first = make_server(100);
  const auto second = make_second(101);
  Peer worker(client_of(dialled_at(*first), ""));
  CHECK(worker.gateway->has_address(0));
  CHECK(!worker.gateway->has_address(1));
  worker.gateway->broadcast_to_servers(Leave{1});
  CHECK(next_leave(*first) == 1);
  CHECK(worker.gateway->link(0) == LinkState::kUp);
  CHECK(worker.gateway->link(1) == LinkState::kConnecting);
  CHECK(worker.gateway->dropped(Drop::kNoRoute) == 1);

  CHECK(worker.gateway->dial(1, dialled_at(*second)));
  CHECK(worker.gateway->has_address(1));
  worker.gateway->broadcast_to_servers(Leave{2});
  CHECK(next_leave(*first) == 2);
  CHECK(next_leave(*second) == 2);  // what was sent before was not kept
  CHECK(worker.gateway->link(1) == LinkState::kUp);
  CHECK(second->gateway->send_to(life(200), Released{}));
  const auto answer = worker.inbox.next();
  REQUIRE(answer);
  CHECK(answer->sender == "coordinator-1");
  CHECK(answer->server == std::size_t{1});
  CHECK(worker.gateway->dropped(Drop::kLinkBroken) == 0);
}

// Goal: one place is one process. Method: two processes with one key; the link moves from one to
// the other while the first lives and speaks on.
TEST_CASE("gateway: an address that changes moves the link, and the former process is not heard") {
  const auto former = make_server(100);
  const auto present = make_server(101);
  Peer worker(client_of(dialled_at(*former), ""));
  worker.gateway->send_to_server(0, Leave{1});
  CHECK(next_leave(*former) == 1);
  CHECK(former->gateway->send_to(life(200), Fenced{"first"}));
  REQUIRE(worker.inbox.next());

  CHECK(worker.gateway->dial(0, dialled_at(*present)));
  worker.gateway->send_to_server(0, Leave{2});
  CHECK(next_leave(*present) == 2);
  CHECK(former->inbox.size() == 0);
  for (int i = 0; i < 20; ++i) former->gateway->send_to(life(200), Fenced{"former"});
  CHECK(present->gateway->send_to(life(200), Fenced{"present"}));
  const auto answer = worker.inbox.next();
  REQUIRE(answer);
  CHECK(answer->from == life(101));
  CHECK(std::get<Fenced>(answer->body).reason == "present");
  // Its side notices that the connection has ended.
  CHECK(eventually([&] {
    former->gateway->send_to(life(200), Fenced{"former"});
    return former->gateway->dropped(Drop::kNoRoute) > 0;
  }));
  CHECK(worker.inbox.size() == 0);
  CHECK(worker.gateway->link(0) == LinkState::kUp);
}

TEST_CASE("gateway: what waits for a server goes with its former address") {
  const auto server = make_server(100);
  Peer worker(client_of("tcp://127.0.0.1:1", ""));  // nobody listens there
  for (int i = 0; i < 5; ++i) worker.gateway->send_to_server(0, Leave{1});
  CHECK(worker.gateway->dial(0, dialled_at(*server)));
  worker.gateway->send_to_server(0, Leave{2});
  CHECK(next_leave(*server) == 2);
  CHECK(worker.gateway->dropped(Drop::kLinkBroken) == 5);
}

TEST_CASE("gateway: a wrong address, or the one that is dialled, changes nothing") {
  const auto server = make_server(100);
  Peer worker(client_of(dialled_at(*server), ""));
  worker.gateway->send_to_server(0, Leave{1});
  CHECK(next_leave(*server) == 1);
  const std::string port = std::to_string(server->gateway->port());
  for (const std::string& wrong :
       {std::string(), std::string("nonsense"), "127.0.0.1:" + port, "ipc://127.0.0.1:" + port,
        std::string("tcp://127.0.0.1"), std::string("tcp://127.0.0.1:0"), "tcp://0.0.0.0:" + port,
        std::string("tcp://127.0.0.1:70000"), "tcp://a b:" + port,
        "tcp://" + std::string(300, 'a') + ":" + port}) {
    CAPTURE(wrong);
    for (const std::size_t place : {0, 1}) {
      const auto dialled = worker.gateway->dial(place, wrong);
      REQUIRE(!dialled);
      CHECK(dialled.error().code() == Code::kBadInput);
    }
  }
  CHECK(worker.gateway->dial(0, dialled_at(*server)));
  CHECK(worker.gateway->link(0) == LinkState::kUp);
  CHECK(!worker.gateway->has_address(1));
  worker.gateway->send_to_server(0, Leave{2});
  CHECK(next_leave(*server) == 2);
  CHECK(worker.gateway->dropped(Drop::kLinkBroken) == 0);
}

// On most machines this name is ::1 first, at which nobody listens here, and 127.0.0.1 then.
TEST_CASE("gateway: all addresses of a name that is said later are dialled") {
  const auto server = make_second(100);
  Peer worker(client_of("", ""));
  CHECK(worker.gateway->dial(1, dialled_at(*server, "localhost")));
  worker.gateway->send_to_server(1, Leave{1});
  CHECK(next_leave(*server) == 1);
}

// The handler runs on the gateway's thread.
TEST_CASE("gateway: the handler of arrivals may dial") {
  const auto first = make_server(100);
  const auto second = make_second(101);
  std::atomic<Gateway*> door{nullptr};
  auto started = Gateway::start(client_of(dialled_at(*first), ""), [&](const Arrival&) {
    CHECK(door.load()->dial(1, dialled_at(*second)));
    door.load()->send_to_server(1, Leave{3});
  });
  REQUIRE(started);
  door = started.value().get();
  door.load()->send_to_server(0, Leave{1});
  CHECK(next_leave(*first) == 1);
  CHECK(first->gateway->send_to(life(200), Released{}));
  CHECK(next_leave(*second) == 3);
  started.value()->stop();
}

}  // namespace
}  // namespace starling::actors
