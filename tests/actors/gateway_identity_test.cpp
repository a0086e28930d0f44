// Keys that are not on the list, at a server that takes identities: they may show a token, and nothing else.

#include <doctest/doctest.h>
#include <poll.h>

#include <set>

#include "actors/gateway/pieces.h"
#include "actors/gateway/strangers.h"
#include "actors/gateway/zap.h"
#include "collectives/tcp/socket.h"
#include "core/wire/seal.h"
#include "tests/actors/gateway_rig.h"

namespace starling::actors {
namespace {

// A server that takes identities, and the strangers who have shown it a token.
struct Doorkeeper {
  std::mutex mutex;
  std::deque<Stranger> shown;
  std::vector<std::string> tokens;
  std::unique_ptr<Peer> server;

  explicit Doorkeeper(std::chrono::milliseconds patience = 10s, std::size_t strangers_max = 128) {
    auto options = server_options(100, "tcp://127.0.0.1:0");
    auto& identities = options.listen->identities.emplace();
    identities.patience = patience;
    identities.strangers_max = strangers_max;
    identities.shown = [this](Stranger stranger) {
      const std::lock_guard lock(mutex);
      tokens.push_back(stranger.token);
      shown.push_back(std::move(stranger));
    };
    server = std::make_unique<Peer>(std::move(options));
  }
  Gateway& gateway() { return *server->gateway; }
  std::uint16_t port() { return gateway().port(); }
  std::uint64_t dropped(Drop reason) { return gateway().dropped(reason); }

  Stranger next() {
    REQUIRE(eventually([this] {
      const std::lock_guard lock(mutex);
      return !shown.empty();
    }));
    const std::lock_guard lock(mutex);
    Stranger stranger = std::move(shown.front());
    shown.pop_front();
    return stranger;
  }
};

GatewayOptions stranger_options(std::uint64_t nonce, std::uint16_t port, const KeyPair& key,
                                std::function<Result<std::string>()> token) {
  auto options = client_options(nonce, port, key);
  options.enrols = GatewayOptions::Enrols{std::move(token)};
  return options;
}

KeyPair fresh_key() {
  KeyPair key = make_key_pair("worker");
  key.name = enrolled_name(key.public_key);
  return key;
}

TEST_CASE(
    "gateway: a stranger whose token holds is a worker from then on, over the same connection") {
  Doorkeeper door;
  const KeyPair key = fresh_key();
  Peer worker(stranger_options(200, door.port(), key, [] { return std::string("token"); }));
  worker.gateway->send_to_server(0, Leave{1});  // waits until it is let in
  const Stranger stranger = door.next();
  CHECK(stranger.token == "token");
  CHECK(stranger.public_key == key.public_key);
  CHECK(stranger.host == "127.0.0.1");
  CHECK(worker.gateway->link(0) == LinkState::kConnecting);
  CHECK(!door.gateway().name_of(life(200)));
  CHECK(door.gateway().enrol(stranger).value() == key.name);
  const auto first = door.server->inbox.next();
  REQUIRE(first);
  CHECK(std::get<Leave>(first->body).notice_ms == 1);
  CHECK(first->sender == key.name);
  CHECK(first->from == life(200));
  CHECK(worker.gateway->link(0) == LinkState::kUp);
  CHECK(worker.gateway->refusal(0).empty());
  CHECK(door.gateway().send_to(life(200), Noted{7}));
  const auto answer = worker.inbox.next();
  REQUIRE(answer);
  CHECK(std::get<Noted>(answer->body).version == 7);
  // Its guard has the same key, and is let in without a look at its token.
  Peer guard(stranger_options(300, door.port(), key, [] { return std::string("expired"); }));
  guard.gateway->send_to_server(0, Leave{2});
  const auto second = door.server->inbox.next();
  REQUIRE(second);
  CHECK(second->sender == key.name);
  CHECK(door.tokens == std::vector<std::string>{"token"});
  // As a worker it says nothing that another role says.
  worker.gateway->send_to_server(0, RaftMessage{});
  CHECK(eventually([&] { return door.dropped(Drop::kWrongRole) == 1; }));
}

// P8. Goal: before its token was taken, a stranger reaches nothing but the reader of that message. Method: every kind
// of message, pieces, noise and another job's envelopes under keys that nobody knows; each ends its connection.
TEST_CASE(
    "gateway: P8, a stranger reaches nothing but Enrol, and anything else ends its connection") {
  Doorkeeper door;
  std::vector<Bytes> words = {Bytes(1, 0),
                              Bytes(200, 0xff),
                              encode(kJob, life(7), {}, Join{}),
                              encode(kJob, life(7), {}, Heartbeat{}),
                              encode(kJob, life(7), {}, Progress{}),
                              encode(kJob, life(7), {}, RaftMessage{}),
                              encode(kJob, life(7), {}, AdminAsked{}),
                              encode(kJob, life(7), {}, Enrolled{"worker-1", {}, false}),
                              encode(kJob, life(7), {}, Seats{{{1, "tcp://127.0.0.1:1"}}}),
                              encode(JobId{9}, life(7), {}, Enrol{"x"}),
                              piece_of(Bytes(kPieceBytes + 1, 1), 0)};
  Bytes damaged = encode(kJob, life(7), {}, Enrol{"x"});
  damaged.back() ^= 1;
  words.push_back(damaged);
  for (const Bytes& word : words) {
    const auto cut = door.dropped(Drop::kStranger) + door.dropped(Drop::kWrongJob);
    RawClient client(door.port(), fresh_key());
    client.send({word});
    CHECK(eventually(
        [&] { return door.dropped(Drop::kStranger) + door.dropped(Drop::kWrongJob) > cut; }));
  }
  CHECK(door.dropped(Drop::kMalformed) == 0);  // no other reader has seen them
  CHECK(door.server->inbox.size() == 0);
  CHECK(door.tokens.empty());
  CHECK(!door.gateway().send_to(life(7), Fenced{}));
  // Known keys are heard as ever, and their greeting counts as no message.
  const auto worker = make_worker(200, door.port());
  worker->gateway->send_to_server(0, Leave{1});
  REQUIRE(door.server->inbox.next());
  CHECK(door.dropped(Drop::kMalformed) == 0);
}

TEST_CASE("gateway: a refused stranger hears why, shows its token again, and is refused anew") {
  Doorkeeper door;
  std::atomic<int> reads{0};
  Peer worker(stranger_options(200, door.port(), fresh_key(),
                               [&] { return "token-" + std::to_string(++reads); }));
  worker.gateway->send_to_server(0, Leave{1});
  const Stranger first = door.next();
  CHECK(first.token == "token-1");
  door.gateway().refuse(first, Error(Code::kBadInput, "identity: no"));
  CHECK(eventually([&] { return worker.gateway->link(0) == LinkState::kRefused; }));
  CHECK(worker.gateway->refusal(0) == "identity: no");
  const Stranger second = door.next();
  CHECK(second.token == "token-2");  // as it is by then
  door.gateway().refuse(second, Error(Code::kUnavailable, "identity: later"));
  CHECK(eventually([&] { return worker.gateway->refusal(0) == "identity: later"; }));
  CHECK(worker.gateway->link(0) == LinkState::kConnecting);
  CHECK(door.server->inbox.size() == 0);
  CHECK(door.gateway().enrol(door.next()));
  CHECK(door.server->inbox.next());
  CHECK(eventually([&] { return worker.gateway->refusal(0).empty(); }));
}

TEST_CASE(
    "gateway: a worker and its guard show a token each, and neither waits for the other's answer") {
  Doorkeeper door;
  const KeyPair key = fresh_key();
  const auto token = [] { return std::string("token"); };
  Peer guard(stranger_options(200, door.port(), key, token));
  const Stranger first = door.next();
  Peer worker(stranger_options(300, door.port(), key, token));
  const Stranger second = door.next();  // while the first is looked at
  CHECK(first.who == life(200));
  CHECK(second.who == life(300));
  door.gateway().refuse(second, Error(Code::kUnavailable, "identity: later"));
  CHECK(eventually([&] { return worker.gateway->refusal(0) == "identity: later"; }));
  CHECK(door.gateway().enrol(first).value() == key.name);
  CHECK(eventually(
      [&] { return worker.gateway->link(0) == LinkState::kUp; }));  // it is known by then
  CHECK(eventually([&] { return guard.gateway->link(0) == LinkState::kUp; }));
}

TEST_CASE("gateway: a token that cannot be read is told, and is read again") {
  Doorkeeper door;
  std::atomic<bool> there{false};
  Peer worker(stranger_options(200, door.port(), fresh_key(), [&]() -> Result<std::string> {
    if (!there) return Error(Code::kBadInput, "identity: cannot read");
    return std::string("token");
  }));
  CHECK(eventually([&] { return worker.gateway->link(0) == LinkState::kRefused; }));
  CHECK(worker.gateway->refusal(0) == "identity: cannot read");
  there = true;
  CHECK(door.gateway().enrol(door.next()));
  CHECK(eventually([&] { return worker.gateway->link(0) == LinkState::kUp; }));
}

TEST_CASE(
    "gateway: a server that begins again knows no enrolled key, and is shown the token anew") {
  auto door = std::make_unique<Doorkeeper>();
  const auto port = door->port();
  const KeyPair key = fresh_key();
  std::atomic<int> reads{0};
  Peer worker(stranger_options(200, port, key, [&] { return std::to_string(++reads); }));
  REQUIRE(door->gateway().enrol(door->next()));
  CHECK(eventually([&] { return worker.gateway->link(0) == LinkState::kUp; }));
  door.reset();
  CHECK(eventually([&] { return worker.gateway->link(0) != LinkState::kUp; }));
  std::mutex mutex;
  std::deque<Stranger> shown;
  auto options = server_options(500, "tcp://127.0.0.1:" + std::to_string(port));
  options.listen->identities.emplace().shown = [&](Stranger stranger) {
    const std::lock_guard lock(mutex);
    shown.push_back(std::move(stranger));
  };
  Peer again(std::move(options));
  CHECK(eventually([&] {
    const std::lock_guard lock(mutex);
    return !shown.empty();
  }));
  worker.gateway->send_to_server(0, Leave{5});
  REQUIRE(again.gateway->enrol(shown.front()));
  const auto heard = again.inbox.next();
  REQUIRE(heard);
  CHECK(heard->sender == key.name);
  CHECK(shown.front().token == std::to_string(reads.load()));
}

TEST_CASE(
    "gateway: a change of the list leaves enrolled keys in, and lets no revoked one in by a "
    "token") {
  Doorkeeper door;
  const KeyPair key = fresh_key(), revoked = *ring().find("worker-1");
  Peer worker(stranger_options(200, door.port(), key, [] { return std::string("token"); }));
  REQUIRE(door.gateway().enrol(door.next()));
  worker.gateway->send_to_server(0, Leave{1});
  REQUIRE(door.server->inbox.next());
  KeyRing left = ring();
  left.remove("worker-1");
  door.gateway().allow(left.allow_list());
  CHECK(door.gateway().name_of(life(200)) == key.name);
  worker.gateway->send_to_server(0, Leave{2});
  REQUIRE(door.server->inbox.next());
  CHECK(door.gateway().send_to(life(200), Noted{1}));
  Peer out(stranger_options(300, door.port(), revoked, [] { return std::string("token"); }));
  CHECK(eventually([&] { return out.gateway->link(0) == LinkState::kRefused; }));
  CHECK(door.tokens.size() == 1);
  CHECK(door.gateway().refused_handshakes() > 0);
  const auto enrolled = door.gateway().enrol({revoked.public_key, "", "", "", life(1)});
  REQUIRE(!enrolled);
  CHECK(enrolled.error().text() == "identity: the key of worker-1 was revoked");
  // A key that is listed after it had come as a stranger's is its owner's by that.
  const KeyPair late = make_key_pair("worker-77");
  Peer listed(client_options(400, door.port(), late));
  listed.gateway->send_to_server(0, Leave{3});
  CHECK(eventually([&] { return door.dropped(Drop::kStranger) > 0; }));
  REQUIRE(left.add({late.name, late.public_key, ""}));
  door.gateway().allow(left.allow_list());
  CHECK(eventually([&] {
    listed.gateway->send_to_server(0, Leave{4});
    return door.server->inbox.next(50ms).has_value();
  }));
}

// Whether the other end has closed.
bool is_closed(const Fd& fd) {
  pollfd p{fd.get(), POLLRDHUP, 0};
  return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

TEST_CASE(
    "gateway: connections that say nothing, and strangers who show nothing, are closed in time") {
  Doorkeeper door(300ms);
  std::vector<Fd> idle;
  for (int i = 0; i < 5; ++i)
    idle.push_back(std::move(collectives::dial_tcp("127.0.0.1", door.port())).value());
  std::vector<std::unique_ptr<Peer>> silent;  // their sockets greet, and no more
  for (std::uint64_t i = 0; i < 5; ++i)
    silent.push_back(std::make_unique<Peer>(client_options(300 + i, door.port(), fresh_key())));
  CHECK(eventually([&] { return door.dropped(Drop::kStranger) >= 10; }));
  CHECK(eventually([&] { return std::all_of(idle.begin(), idle.end(), is_closed); }));
  // A known one that says nothing stays.
  const auto known = make_worker(200, door.port());
  CHECK(eventually([&] { return known->gateway->link(0) == LinkState::kUp; }));
  const auto before = door.dropped(Drop::kStranger);
  silent.clear();
  std::this_thread::sleep_for(1s);
  CHECK(known->gateway->link(0) == LinkState::kUp);
  CHECK(door.dropped(Drop::kStranger) <= before + 5);
}

TEST_CASE("gateway: of too many strangers the oldest go, and known peers do not") {
  Doorkeeper door(60s, 4);
  const auto known = make_worker(200, door.port());
  known->gateway->send_to_server(0, Leave{1});
  REQUIRE(door.server->inbox.next());
  std::vector<std::unique_ptr<RawClient>> strangers;
  for (std::uint64_t i = 0; i < 12; ++i) {
    strangers.push_back(std::make_unique<RawClient>(door.port(), fresh_key()));
    strangers.back()->send({encode(kJob, life(300 + i), {}, Enrol{std::to_string(i)})});
  }
  CHECK(eventually([&] { return door.dropped(Drop::kNewcomer) >= 8; }));
  known->gateway->send_to_server(0, Leave{2});
  CHECK(door.server->inbox.next());
  CHECK(known->gateway->link(0) == LinkState::kUp);
}

TEST_CASE(
    "gateway: a server that takes no identities refuses a stranger with a token as any other") {
  const auto server = make_server(100);
  Peer worker(stranger_options(200, server->gateway->port(), fresh_key(),
                               [] { return std::string("token"); }));
  CHECK(eventually([&] { return worker.gateway->link(0) == LinkState::kRefused; }));
  CHECK(server->gateway->refused_handshakes() > 0);
  CHECK(server->inbox.size() == 0);
  // A worker of the list that shows a token all the same is not answered, and loses nothing.
  Peer listed(client_options(300, server->gateway->port(), *ring().find("worker-1")));
  listed.gateway->send_to_server(0, Enrol{"token"});
  listed.gateway->send_to_server(0, Leave{1});
  const auto heard = server->inbox.next();
  REQUIRE(heard);
  CHECK(std::holds_alternative<Leave>(heard->body));
}

TEST_CASE("gateway: a stranger of another version is told which one this is") {
  Doorkeeper door;
  RawClient client(door.port(), fresh_key());
  Bytes message = encode(kJob, life(5), {}, Enrol{"token"});
  message[4] = 9;
  client.send({message});
  CHECK(says_version(client.receive_bytes()));
  CHECK(door.tokens.empty());
}

TEST_CASE("zap: so many keys are enrolled, and the one that was silent longest goes for another") {
  auto context = std::move(Context::make()).value();
  std::atomic<std::uint64_t> refused{0};
  auto zap = std::move(ZapHandler::start(context, ring().allow_list(), refused)).value();
  std::set<std::string> names;
  for (std::size_t i = 0; i < ZapHandler::kEnrolledMax; ++i)
    names.insert(zap->enrol("key-" + std::to_string(i)).value());
  CHECK(names.size() == ZapHandler::kEnrolledMax);
  CHECK(zap->enrol("key-7").value() == enrolled_name("key-7"));  // it is let in already
  const auto full = zap->enrol("one-more");
  REQUIRE(!full);
  CHECK(full.error().code() == Code::kUnavailable);  // all were heard a moment ago
  CHECK(zap->name_now("key-7") == enrolled_name("key-7"));
  CHECK(zap->name_now("one-more").empty());
  CHECK(zap->all().size() == ring().pairs().size() + ZapHandler::kEnrolledMax);
}

}  // namespace
}  // namespace starling::actors
