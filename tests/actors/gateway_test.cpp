#include "actors/gateway/gateway.h"

#include "actors/gateway/routes.h"
#include "actors/gateway/self_check.h"
#include "core/wire/seal.h"
#include "tests/actors/gateway_rig.h"

namespace starling::actors {
namespace {

TEST_CASE("gateway: a listed key gets through both ways, under its name") {
  const auto server = make_server(100);
  const auto worker = make_worker(200, server->gateway->port());
  Join join;
  join.who = life(200);
  join.name = "somebody else";  // what a message says of its sender does not matter
  worker->gateway->send_to_server(0, join);
  const auto up = server->inbox.next();
  REQUIRE(up);
  CHECK(up->sender == "worker-0");
  CHECK(up->from == life(200));
  CHECK(!up->server);
  CHECK(std::get<Join>(up->body).name == "somebody else");
  CHECK(server->gateway->name_of(life(200)) == "worker-0");

  CHECK(server->gateway->send_to(life(200), Welcome{{7, 200}, "steps = 1"}));
  const auto down = worker->inbox.next();
  REQUIRE(down);
  CHECK(down->sender == "coordinator-0");
  CHECK(down->from == life(100));
  CHECK(down->server == std::size_t{0});
  CHECK(std::get<Welcome>(down->body).who.counter == 7);
  CHECK(worker->gateway->link(0) == LinkState::kUp);

  worker->gateway->set_counter(7);
  worker->gateway->send_to_server(0, Leave{50});
  const auto leave = server->inbox.next();
  REQUIRE(leave);
  CHECK(leave->from.counter == 7);
}

// On most machines this name is ::1 first, at which nobody listens here, and 127.0.0.1 then.
TEST_CASE("gateway: all addresses of a server's name are dialled") {
  const auto server = make_server(100);
  GatewayOptions options = client_options(200, server->gateway->port(), *ring().find("worker-0"));
  options.servers[0].address = "tcp://localhost:" + std::to_string(server->gateway->port());
  Peer worker(std::move(options));
  worker.gateway->send_to_server(0, Leave{1});
  CHECK(server->inbox.next());
}

// P8. Method: a stranger and a listed worker speak; when the listed one has arrived, the stranger
// has been refused and nothing of it was delivered.
TEST_CASE("gateway: an unlisted key reaches no handler") {
  const auto server = make_server(100);
  Peer stranger(client_options(666, server->gateway->port(), make_key_pair("worker-0")));
  stranger.gateway->send_to_server(0, Death{life(1)});
  CHECK(eventually([&] { return stranger.gateway->link(0) == LinkState::kRefused; }));
  CHECK(server->gateway->refused_handshakes() > 0);
  const auto worker = make_worker(200, server->gateway->port());
  worker->gateway->send_to_server(0, Leave{1});
  const auto first = server->inbox.next();
  REQUIRE(first);
  CHECK(first->from == life(200));
  CHECK(server->inbox.size() == 0);
  CHECK(!server->gateway->send_to(life(666), Fenced{}));
  CHECK(server->gateway->dropped(Drop::kNoRoute) == 1);
}

TEST_CASE("gateway: a client does not speak to a server with another key") {
  const auto server = make_server(100);
  auto options = client_options(200, server->gateway->port(), *ring().find("worker-0"));
  options.servers[0].public_key = ring().find("coordinator-1")->public_key;
  Peer worker(std::move(options));
  worker.gateway->send_to_server(0, Leave{1});
  CHECK(eventually([&] { return worker.gateway->link(0) == LinkState::kWrongPeer; }));
  CHECK(server->inbox.size() == 0);
}

TEST_CASE("gateway: keys and addresses that cannot be used are refused at the start") {
  const auto code = [](GatewayOptions options) {
    auto started = Gateway::start(std::move(options), [](Arrival) {});
    return started ? Code{} : started.error().code();
  };
  auto half = client_options(1, 1, *ring().find("worker-0"));
  half.key.secret_key.clear();
  CHECK(code(half) == Code::kBadInput);
  auto wrong_key = client_options(1, 1, *ring().find("worker-0"));
  wrong_key.servers[0].public_key = "abc";
  CHECK(code(wrong_key) == Code::kBadInput);
  auto address = client_options(1, 1, *ring().find("worker-0"));
  address.servers[0].address = "nonsense";
  CHECK(code(address) == Code::kBadInput);
  const auto server = make_server(100);
  const auto taken = "tcp://127.0.0.1:" + std::to_string(server->gateway->port());
  CHECK(code(server_options(2, taken)) == Code::kBadInput);
}

// Goal: a library that lets strangers in, or a handler that lets nobody in, is found at the start.
// Method: servers with the mistakes made on purpose.
TEST_CASE("gateway: the self-check finds an open door and a closed one") {
  const KeyPair& own = *ring().find("coordinator-0");
  std::atomic<std::uint64_t> refused{0};
  auto context = std::move(Context::make()).value();
  auto zap = std::move(ZapHandler::start(context, {}, refused)).value();
  {
    // Asks nobody: encryption without authorisation.
    auto other = std::move(Context::make()).value();
    auto lonely = std::move(Socket::make(other, ZMQ_ROUTER)).value();
    REQUIRE(lonely.set(ZMQ_CURVE_SERVER, 1));
    REQUIRE(lonely.set(ZMQ_CURVE_SECRETKEY, own.secret_key));
    REQUIRE(lonely.bind("tcp://127.0.0.1:0"));
    const auto found = check_admission(context, lonely.endpoint(), own.public_key, *zap);
    REQUIRE(!found);
    CHECK(found.error().code() == Code::kInternal);
    CHECK(found.error().text().find("not on the allow list") != std::string::npos);
  }
  {
    auto server = std::move(Socket::make(context, ZMQ_ROUTER)).value();
    REQUIRE(secure_server(server, own));
    REQUIRE(server.bind("tcp://127.0.0.1:0"));
    CHECK(check_admission(context, server.endpoint(), own.public_key, *zap));
  }
  {
    // Its own handler knows nobody, and the one that is asked to admit the guest is another's.
    auto other = std::move(Context::make()).value();
    const auto deaf = std::move(ZapHandler::start(other, {}, refused)).value();
    auto server = std::move(Socket::make(other, ZMQ_ROUTER)).value();
    REQUIRE(secure_server(server, own));
    REQUIRE(server.bind("tcp://127.0.0.1:0"));
    const auto found = check_admission(context, server.endpoint(), own.public_key, *zap);
    REQUIRE(!found);
    CHECK(found.error().text().find("was not admitted") != std::string::npos);
  }
}

TEST_CASE("gateway: messages of another job, another life or no meaning are dropped") {
  const auto server = make_server(100);
  RawClient client(server->gateway->port(), *ring().find("worker-1"));
  Bytes unknown_version = encode(kJob, life(5), {}, Leave{1});
  unknown_version[4] = 9;
  const Bytes good = encode(kJob, life(5), life(100), Leave{1});
  client.send({encode(JobId{9}, life(5), {}, Leave{1})});
  client.send({encode(kJob, life(5), life(99), Leave{1})});
  client.send({Bytes{1, 2, 3}});
  client.send({Bytes{}});  // a greeting, as each connection of ours begins with
  client.send({unknown_version});
  client.send({good, good});
  client.send({good});
  const auto arrival = server->inbox.next();
  REQUIRE(arrival);
  CHECK(arrival->sender == "worker-1");
  CHECK(server->inbox.size() == 0);
  const auto& gateway = *server->gateway;
  CHECK(gateway.dropped(Drop::kWrongJob) == 1);
  CHECK(gateway.dropped(Drop::kNotForMe) == 1);
  CHECK(gateway.dropped(Drop::kMalformed) == 2);
  CHECK(gateway.dropped(Drop::kOtherVersion) == 1);
  // Who took us for our former life is told better.
  std::optional<Envelope> hint;
  while (!hint) {
    const Bytes answer = client.receive_bytes();
    REQUIRE(!answer.empty());
    if (says_version(answer)) continue;  // the answer to the other version
    hint = std::move(decode(answer)).value();
  }
  REQUIRE(hint);
  CHECK(hint->from == life(100));
  CHECK(std::get<LeaderHint>(hint->body).term == 0);
}

TEST_CASE("gateway: a life belongs to the key that it first spoke with") {
  const auto server = make_server(100);
  RawClient worker(server->gateway->port(), *ring().find("worker-1"));
  worker.send({encode(kJob, life(5), {}, Leave{1})});
  REQUIRE(server->inbox.next());
  RawClient other(server->gateway->port(), *ring().find("worker-2"));
  other.send({encode(kJob, life(5), {}, Leave{2})});
  other.send({encode(kJob, life(6), {}, Leave{3})});
  const auto next = server->inbox.next();
  REQUIRE(next);
  CHECK(next->from == life(6));
  CHECK(server->gateway->dropped(Drop::kWrongKey) == 1);
  CHECK(server->gateway->name_of(life(5)) == "worker-1");
}

TEST_CASE("gateway: routes are bounded for each key, the longest silent goes first") {
  Routes routes;
  for (std::uint64_t nonce = 1; nonce <= 16; ++nonce)
    CHECK(routes.learn(life(nonce), "a", "w", "K"));
  CHECK(routes.learn(life(1), "b", "w", "K"));   // speaks again
  CHECK(routes.learn(life(17), "c", "w", "K"));  // one too many
  CHECK(routes.learn(life(50), "d", "v", "L"));
  CHECK(routes.size() == 17);
  CHECK(!routes.find(life(2)));
  REQUIRE(routes.find(life(1)));
  CHECK(routes.find(life(1))->routing_id == "b");
  CHECK(!routes.learn(life(1), "e", "v", "L"));
  CHECK(!routes.learn(life(1), "e", "w", "L"));  // the name has another key by now
  routes.forget_all_but({{"L", "v"}});
  CHECK(routes.size() == 1);
  CHECK(routes.find(life(50)));
}

TEST_CASE("gateway: a larger message than allowed is not delivered") {
  auto options = server_options(100, "tcp://127.0.0.1:0");
  options.message_bytes_max = 4096;
  Peer server(std::move(options));
  auto small = client_options(200, server.gateway->port(), *ring().find("worker-0"));
  small.message_bytes_max = 4096;
  Peer careful(std::move(small));
  const Welcome large{{1, 2}, std::string(5000, 'x')};
  careful.gateway->send_to_server(0, large);  // is not even sent
  CHECK(eventually([&] { return careful.gateway->dropped(Drop::kOversize) == 1; }));
  const auto careless = make_worker(300, server.gateway->port(), "worker-1");
  careless->gateway->send_to_server(0, large);  // is not taken
  careful.gateway->send_to_server(0, Leave{1});
  const auto arrival = server.inbox.next();
  REQUIRE(arrival);
  CHECK(arrival->from == life(200));
}

TEST_CASE("gateway: a worker's next life is another peer, its former life hears nothing of it") {
  const auto server = make_server(100);
  auto worker = make_worker(200, server->gateway->port());
  worker->gateway->send_to_server(0, Leave{1});
  REQUIRE(server->inbox.next());
  worker.reset();
  worker = make_worker(201, server->gateway->port());
  worker->gateway->send_to_server(0, Leave{2});
  const auto again = server->inbox.next();
  REQUIRE(again);
  CHECK(again->from == life(201));
  CHECK(again->sender == "worker-0");
  server->gateway->send_to(life(200), Freeze{{1, 1}});  // its route leads nowhere
  CHECK(server->gateway->send_to(life(201), Freeze{{1, 2}}));
  const auto down = worker->inbox.next();
  REQUIRE(down);
  CHECK(std::get<Freeze>(down->body).asked == EpochId{1, 2});
}

// Goal: a coordinator that comes back is found again, and learns nothing that was meant for its
// former life. Method: the worker repeats its message, as the protocol does, until the new life has
// it.
TEST_CASE("gateway: a restarted server is found again under its new incarnation") {
  auto server = make_server(100);
  const auto port = server->gateway->port();
  const auto worker = make_worker(200, port);
  worker->gateway->send_to_server(0, Leave{1});
  REQUIRE(server->inbox.next());
  REQUIRE(server->gateway->send_to(life(200), Released{}));
  REQUIRE(worker->inbox.next());  // now it addresses incarnation 100
  server.reset();
  CHECK(eventually([&] { return worker->gateway->link(0) != LinkState::kUp; }));
  server = make_server(101, port);
  std::optional<Arrival> arrival;
  CHECK(eventually([&] {
    worker->gateway->send_to_server(0, Leave{2});
    arrival = server->inbox.next(20ms);
    return arrival.has_value();
  }));
  REQUIRE(arrival);
  CHECK(std::get<Leave>(arrival->body).notice_ms == 2);
  CHECK(server->gateway->send_to(life(200), Fenced{}));
  std::optional<Arrival> fenced;
  CHECK(eventually([&] {
    fenced = worker->inbox.next();
    return fenced && std::holds_alternative<Fenced>(fenced->body);
  }));
  CHECK(fenced->from == life(101));
}

TEST_CASE("gateway: coordinators reach each other, each by its own link") {
  const auto first = make_server(100);
  auto options = server_options(101, "tcp://127.0.0.1:0", "coordinator-1");
  options.servers = client_options(0, first->gateway->port(), *ring().find("client")).servers;
  Peer second(std::move(options));
  RaftMessage append;
  append.from = 1;
  append.entries.push_back({3, 2, encode_entry(Lost{life(5), true})});
  second.gateway->broadcast_to_servers(append);
  const auto arrival = first->inbox.next();
  REQUIRE(arrival);
  CHECK(arrival->sender == "coordinator-1");
  CHECK(std::get<RaftMessage>(arrival->body).entries == append.entries);
  CHECK(first->gateway->send_to(life(101), LeaderHint{0, 2, {}}));
  const auto reply = second.inbox.next();
  REQUIRE(reply);
  CHECK(reply->server == std::size_t{0});
}

TEST_CASE("gateway: a large plan reaches many workers, all at once") {
  constexpr std::size_t kWorkers = 40;
  const auto server = make_server(100);
  std::vector<std::unique_ptr<Peer>> workers;
  std::vector<Incarnation> lives;
  for (std::size_t i = 0; i < kWorkers; ++i) {
    lives.push_back(life(1000 + i));
    workers.push_back(
        make_worker(1000 + i, server->gateway->port(), "worker-" + std::to_string(i)));
    workers.back()->gateway->send_to_server(0, Leave{i});
  }
  for (std::size_t i = 0; i < kWorkers; ++i) {
    const auto arrival = server->inbox.next();
    REQUIRE(arrival);
    const auto n = std::get<Leave>(arrival->body).notice_ms;
    CHECK(arrival->from == life(1000 + n));
    CHECK(arrival->sender == "worker-" + std::to_string(n));
  }
  Committed committed;
  committed.plan.members.resize(kWorkers);
  committed.plan.holders.assign(65536, {0, 1, 2});
  for (const Incarnation& who : lives) CHECK(server->gateway->send_to(who, committed));
  for (auto& worker : workers) {
    const auto arrival = worker->inbox.next();
    REQUIRE(arrival);
    CHECK(std::get<Committed>(arrival->body).plan.holders == committed.plan.holders);
  }
}

TEST_CASE("gateway: messages of one sender keep their order, from any thread") {
  const auto server = make_server(100);
  const auto worker = make_worker(200, server->gateway->port());
  worker->gateway->send_to_server(0, Leave{0});
  REQUIRE(server->inbox.next());
  constexpr std::uint64_t kMessages = 500;
  std::thread other([&] {
    for (std::uint64_t i = 1; i <= kMessages; ++i) worker->gateway->send_to_server(0, Leave{i});
  });
  for (std::uint64_t i = 1; i <= kMessages; ++i) {
    const auto arrival = server->inbox.next();
    REQUIRE(arrival);
    CHECK(std::get<Leave>(arrival->body).notice_ms == i);
  }
  other.join();
}

TEST_CASE("gateway: what was sent before stop still leaves; after it nothing arrives") {
  const auto server = make_server(100);
  const auto worker = make_worker(200, server->gateway->port());
  worker->gateway->send_to_server(0, Leave{0});
  REQUIRE(server->inbox.next());
  worker->gateway->send_to_server(0, Leave{1});
  worker->gateway->stop();
  const auto last = server->inbox.next();
  REQUIRE(last);
  CHECK(std::get<Leave>(last->body).notice_ms == 1);
  worker->gateway->send_to_server(0, Leave{2});
  CHECK(worker->gateway->dropped(Drop::kQueueFull) == 1);
  worker->gateway->stop();
}

// A server that is not there costs a bounded backlog; the newest messages stay.
TEST_CASE("gateway: the backlog for an absent server is bounded") {
  std::uint16_t port = 0;
  {
    const auto server = make_server(100);
    port = server->gateway->port();
  }
  auto options = client_options(200, port, *ring().find("worker-0"));
  options.backlog_messages = 4;
  Peer worker(std::move(options));
  for (std::uint64_t i = 0; i < 10; ++i) worker.gateway->send_to_server(0, Leave{i});
  CHECK(eventually([&] { return worker.gateway->dropped(Drop::kQueueFull) == 6; }));
  const auto server = make_server(101, port);
  for (std::uint64_t i = 6; i < 10; ++i) {
    const auto arrival = server->inbox.next();
    REQUIRE(arrival);
    CHECK(std::get<Leave>(arrival->body).notice_ms == i);
  }
}

}  // namespace
}  // namespace starling::actors
