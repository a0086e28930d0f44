#include "collectives/tcp/handshake.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/tcp/socket.h"
#include "tests/collectives/node.h"

namespace starling::collectives {
namespace {

using Told = Node::Told;

EpochSecret secret_of(const MeshGroup& epoch, Rank self) {
  EpochSecret secret;
  secret.job = epoch.options.job;
  secret.epoch = epoch.options.epoch;
  secret.key = epoch.options.key;
  secret.self = self;
  for (const MeshPeer& peer : epoch.options.peers) {
    secret.members.push_back(peer.who);
    secret.seals.push_back(seal_of(epoch.options.seal, peer.host));
  }
  return secret;
}

// A client that speaks bytes; reads and writes block, with a deadline.
class Raw {
 public:
  explicit Raw(std::uint16_t port) {
    auto dialled = dial_tcp("127.0.0.1", port);
    REQUIRE(dialled.has_value());
    fd_ = std::move(dialled.value());
    pollfd ready{fd_.get(), POLLOUT, 0};
    REQUIRE(poll(&ready, 1, 10'000) == 1);
    REQUIRE(connect_error(fd_) == 0);
  }
  template <class T>
  void write(const T& value) {
    REQUIRE(try_write(value));
  }
  template <class T>
  bool try_write(const T& value) {
    return send(fd_.get(), &value, sizeof value, MSG_NOSIGNAL) == ssize_t{sizeof value};
  }
  // Reads a whole T; false at the end of the connection.
  template <class T>
  bool read(T& value) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(&value);
    for (std::size_t have = 0; have < sizeof value;) {
      pollfd ready{fd_.get(), POLLIN, 0};
      REQUIRE(poll(&ready, 1, 10'000) == 1);
      const ssize_t n = recv(fd_.get(), bytes + have, sizeof value - have, 0);
      if (n <= 0) return false;
      have += static_cast<std::size_t>(n);
    }
    return true;
  }
  bool closed() {
    std::uint8_t byte;
    return !read(byte);
  }

 private:
  Fd fd_;
};

TEST_CASE("handshake: both MACs need the key and cover roles, nonces and names") {
  const MeshGroup epoch(3);
  const EpochSecret dialler = secret_of(epoch, 0), acceptor = secret_of(epoch, 2);
  const Hello hello = make_hello(dialler, 2);
  CHECK(hello_fits(acceptor, hello));
  const Answer answer = make_answer(acceptor, hello);
  const auto proof = make_proof(dialler, hello, answer);
  REQUIRE(proof.has_value());
  CHECK(proof_holds(acceptor, hello, answer, *proof));

  // An answer cannot be used as a proof, nor for another hello.
  CHECK(!proof_holds(acceptor, hello, answer, Proof{answer.mac}));
  CHECK(!make_proof(dialler, make_hello(dialler, 2), answer).has_value());
  CHECK(!proof_holds(acceptor, hello, make_answer(acceptor, hello), *proof));
  EpochSecret stranger = acceptor;
  stranger.key[31] ^= 1;
  CHECK(!make_proof(dialler, hello, make_answer(stranger, hello)).has_value());
  CHECK(!proof_holds(stranger, hello, answer, *proof));

  using Change = void (*)(Hello&);
  const Change changes[] = {
      [](Hello& h) { ++h.prefix.magic; }, [](Hello& h) { ++h.prefix.version; },
      [](Hello& h) { ++h.job[0]; },       [](Hello& h) { ++h.epoch.counter; },
      [](Hello& h) { ++h.epoch.term; },   [](Hello& h) { h.from = 1; },
      [](Hello& h) { h.from = 2; },       [](Hello& h) { h.from = 99; },
      [](Hello& h) { h.to = 1; },         [](Hello& h) { ++h.from_who.nonce; },
      [](Hello& h) { ++h.to_who.nonce; }};
  for (const Change change : changes) {
    Hello other = hello;
    change(other);
    CHECK(!hello_fits(acceptor, other));
    CHECK(!make_proof(dialler, other, answer).has_value());
  }
  // How frames are sealed, and the halves of the key exchange, are what both have seen.
  Hello weaker = hello;
  weaker.prefix.seal = FrameSeal::kPlain;
  Hello exchanged = hello;
  exchanged.exchange[3] ^= 1;
  for (const Hello& other : {weaker, exchanged})
    CHECK(!make_proof(dialler, hello, make_answer(acceptor, other)).has_value());
  Answer meek = answer;
  meek.prefix.seal = FrameSeal::kPlain;
  CHECK(!make_proof(dialler, hello, meek).has_value());
}

TEST_CASE("handshake: both ends have the same keys, one for each way, and nobody else has") {
  for (const SealRule rule : {SealRule::kOn, SealRule::kAuto}) {
    MeshGroup epoch(3);
    epoch.options.seal = rule;
    const EpochSecret dialler = secret_of(epoch, 0), acceptor = secret_of(epoch, 2);
    const Hello hello = make_hello(dialler, 2);
    const Answer answer = make_answer(acceptor, hello);
    const auto there = dialler_keys(dialler, hello, answer);
    const auto here = acceptor_keys(acceptor, hello, answer);
    REQUIRE(there.has_value());
    REQUIRE(here.has_value());
    CHECK(there->seal == (rule == SealRule::kOn ? FrameSeal::kSecret : FrameSeal::kTagged));
    CHECK(here->seal == there->seal);
    CHECK(here->receive == there->send);
    CHECK(here->send == there->receive);
    CHECK(here->send != here->receive);
    const auto later = dialler_keys(dialler, hello, make_answer(acceptor, hello));
    CHECK(later->send != there->send);
    // Who knows the epoch's key and has recorded the handshake, but took no part in it.
    if (rule == SealRule::kOn)
      CHECK(dialler_keys(secret_of(epoch, 0), hello, answer)->send != there->send);
  }
}

TEST_CASE("handshake: between machines frames are encrypted, on one machine they are tagged") {
  CHECK(seal_of(SealRule::kAuto, "127.0.0.1") == FrameSeal::kTagged);
  CHECK(seal_of(SealRule::kAuto, "::1") == FrameSeal::kTagged);
  CHECK(seal_of(SealRule::kAuto, "10.0.0.7") == FrameSeal::kSecret);
  CHECK(seal_of(SealRule::kOn, "127.0.0.1") == FrameSeal::kSecret);
  CHECK(seal_of(SealRule::kOff, "10.0.0.7") == FrameSeal::kPlain);
}

// Whoever speaks another version is told so at once, and tells it.
TEST_CASE("listener: another version of the protocol is answered with this one's") {
  MeshGroup epoch(2);
  Raw raw(epoch.listeners[1]->port());
  Hello hello = make_hello(secret_of(epoch, 0), 1);
  hello.prefix.version = 77;
  raw.write(hello.prefix);
  Prefix answer;
  REQUIRE(raw.read(answer));
  CHECK(answer.magic == Prefix::kMagic);
  CHECK(answer.version == Prefix::kVersion);
  CHECK(raw.closed());
  CHECK(epoch.listeners[1]->counters().last_refusal.find("it speaks version 77") !=
        std::string::npos);
}

TEST_CASE("mesh: a peer of another version is named at once, with both versions") {
  MeshGroup epoch(2);
  epoch.options.connect_timeout = std::chrono::hours(1);
  epoch.options.local_sockets = false;
  auto bound = listen_tcp("127.0.0.1", 0);
  REQUIRE(bound.has_value());
  epoch.options.peers[1].port = bound.value().port;
  Node node(epoch.of(0), *epoch.listeners[0]);
  node.mesh->start();
  pollfd ready{bound.value().socket.get(), POLLIN, 0};
  REQUIRE(poll(&ready, 1, 10'000) == 1);
  const Fd peer(accept4(bound.value().socket.get(), nullptr, nullptr, 0));
  Prefix other;
  other.version = Prefix::kVersion + 1;
  REQUIRE(send(peer.get(), &other, sizeof other, MSG_NOSIGNAL) == ssize_t{sizeof other});
  node.wait([](const Told& t) { return t.broken.has_value(); });
  CHECK(node.told().broken->second.find("it speaks version " +
                                        std::to_string(Prefix::kVersion + 1)) != std::string::npos);
}

// P8: whoever does not know the key ends in the handshake, whatever it sends, and the epoch that
// runs does not notice.
TEST_CASE("listener: P8, nobody without the epoch's key gets in") {
  MeshGroup epoch(2);
  epoch.connect();
  Listener& listener = *epoch.listeners[1];

  SUBCASE("garbage") {
    Raw raw(listener.port());
    std::array<std::uint8_t, sizeof(Hello)> garbage;
    garbage.fill(0x5a);
    raw.write(garbage);
    CHECK(raw.closed());
    CHECK(listener.counters().refused == 1);
  }
  SUBCASE("a good hello and a guessed proof") {
    Raw raw(listener.port());
    raw.write(make_hello(secret_of(epoch, 0), 1));
    Answer answer;
    REQUIRE(raw.read(answer));
    raw.write(Proof{answer.mac});
    CHECK(raw.closed());
    CHECK(listener.counters().refused == 1);
  }
  SUBCASE("a worker of another life") {
    EpochSecret secret = secret_of(epoch, 0);
    ++secret.members[0].nonce;
    Raw raw(listener.port());
    raw.write(make_hello(secret, 1));
    CHECK(raw.closed());
    CHECK(listener.counters().refused == 1);
  }
  SUBCASE("a second connection of a member changes nothing") {
    const EpochSecret secret = secret_of(epoch, 0);
    const Hello hello = make_hello(secret, 1);
    Raw raw(listener.port());
    raw.write(hello);
    Answer answer;
    REQUIRE(raw.read(answer));
    raw.write(*make_proof(secret, hello, answer));
    std::uint8_t admitted = 0;
    CHECK(raw.read(admitted));
    CHECK(raw.closed());
  }
  epoch.nodes[0]->mesh->send(1, {}, share(Bytes(10)));
  epoch.nodes[1]->wait([](const Told& t) { return t.frames.size() == 1; });
  CHECK(!epoch.nodes[1]->told().broken.has_value());
}

TEST_CASE("listener: who is slow, silent or waits for an unknown epoch is closed in time") {
  ListenerOptions options;
  options.handshake_timeout = std::chrono::milliseconds(200);
  const auto listener = open_listener(options);
  Raw silent(listener->port()), slow(listener->port()), unknown(listener->port());
  // On a busy machine the time may be over before these are sent; closed in time all the same.
  slow.try_write(std::uint8_t{1});
  unknown.try_write(make_hello(secret_of(MeshGroup(2), 0), 1));
  CHECK(silent.closed());
  CHECK(slow.closed());
  CHECK(unknown.closed());
  CHECK(listener->counters().timed_out == 3);
}

TEST_CASE("listener: waiting sockets are bounded in number, the oldest gives way") {
  ListenerOptions options;
  options.sockets_max = 4;
  const auto listener = open_listener(options);
  std::vector<std::unique_ptr<Raw>> clients;
  for (int i = 0; i < 7; ++i) clients.push_back(std::make_unique<Raw>(listener->port()));
  for (int i = 0; i < 3; ++i) CHECK(clients[static_cast<std::size_t>(i)]->closed());
  CHECK(listener->counters().evicted == 3);
}

// A listening socket stays readable as long as somebody waits in its backlog, so that asking it
// again and again would take a core for nothing.
TEST_CASE("listener: without files to open it waits instead of spinning, and goes on when it can") {
  const auto files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto listener = open_listener();
  const auto alone = files();
  std::optional<Raw> client(listener->port());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (listener->counters().accepted == 0) REQUIRE(std::chrono::steady_clock::now() < until);
  client.reset();  // so that there is nobody who could give a file up
  while (files() > alone) REQUIRE(std::chrono::steady_clock::now() < until);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit tight = before;
  Fd dialling(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // its file is there already
  const Fd last(dup(dialling.get()));
  tight.rlim_cur = static_cast<rlim_t>(last.get()) + 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(listener->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  std::vector<Fd> fill;  // numbers below that are free
  for (int fd = dup(dialling.get()); fd >= 0; fd = dup(dialling.get())) fill.emplace_back(fd);
  const int connected =
      connect(dialling.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  while (listener->counters().paused == 0 && std::chrono::steady_clock::now() < until) {
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  const std::uint64_t paused = listener->counters().paused;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(connected == 0);
  CHECK(paused >= 1);
  CHECK(paused <= 1 + (std::chrono::steady_clock::now() - until + std::chrono::seconds(60)) /
                          std::chrono::milliseconds(100));
  while (listener->counters().accepted < 2) REQUIRE(std::chrono::steady_clock::now() < until);
}

TEST_CASE("listener: an address that cannot be bound is bad input") {
  const auto first = open_listener();
  ListenerOptions options;
  options.port = first->port();
  const auto second = Listener::open(options);
  REQUIRE(!second.has_value());
  CHECK(second.error().code() == Code::kBadInput);
  CHECK(second.error().text().find(std::to_string(first->port())) != std::string::npos);
}

// The name is not proof of anything: if a stranger sits under it, the handshake fails there and TCP
// is next.
TEST_CASE("mesh: a stranger under a peer's local name does not keep it from standing") {
  MeshGroup epoch(2);
  epoch.options.handshake_timeout = std::chrono::milliseconds(50);
  epoch.listeners[1].reset();  // and with it its local name
  const Fd stranger = listen_local(epoch.options.peers[1].port);
  REQUIRE(static_cast<bool>(stranger));
  ListenerOptions same;
  same.port = epoch.options.peers[1].port;
  epoch.listeners[1] = open_listener(same);
  epoch.connect();
}

TEST_CASE("mesh: P8, with another key or epoch it does not stand, and says why") {
  MeshGroup epoch(2);
  epoch.options.connect_timeout = std::chrono::milliseconds(4000);
  epoch.options.handshake_timeout = std::chrono::milliseconds(1500);
  MeshOptions other = epoch.of(1);
  std::vector<const char*> says;
  SUBCASE("key") {
    other.key[0] ^= 1;
    says = {"it does not know the epoch's key"};
  }
  SUBCASE("epoch") {
    ++other.epoch.counter;
    // Both ends have the same patience: on a busy machine the other one's is over first.
    says = {"no answer in time", "it closed during the handshake"};
  }
  Node a(epoch.of(0), *epoch.listeners[0]), b(other, *epoch.listeners[1]);
  a.mesh->start();
  b.mesh->start();
  for (Node* node : {&a, &b}) {
    node->wait([](const Told& t) { return t.broken.has_value(); });
    CHECK(!node->told().connected);
  }
  const std::string why = a.told().broken->second;
  CHECK_MESSAGE(std::ranges::any_of(
                    says, [&](const char* said) { return why.find(said) != std::string::npos; }),
                why);
}

// Behind the handshake the peer is a member, but its bytes are still checked.
TEST_CASE("mesh: bytes that are no frame, and frames with a wrong checksum, break the connection") {
  MeshGroup epoch(2);
  epoch.options.seal = SealRule::kOff;
  Node node(epoch.of(1), *epoch.listeners[1]);
  node.mesh->start();
  const EpochSecret secret = secret_of(epoch, 0);
  const Hello hello = make_hello(secret, 1);
  Raw raw(epoch.listeners[1]->port());
  raw.write(hello);
  Answer answer;
  REQUIRE(raw.read(answer));
  raw.write(*make_proof(secret, hello, answer));
  std::uint8_t admitted = 0;
  REQUIRE(raw.read(admitted));
  CHECK(admitted == kAdmit);
  node.wait([](const Told& t) { return t.connected; });

  FrameHeader header = checked({}, share(Bytes(8)));
  const char* says = nullptr;
  SUBCASE("no magic") {
    header.magic = 1;
    says = "what is no frame";
  }
  SUBCASE("no such kind") {
    header.kind = static_cast<FrameKind>(77);
    says = "what is no frame";
  }
  SUBCASE("a changed header") {
    header.version = 3;
    says = "checksum";
  }
  SUBCASE("a frame without end") {
    header.length = ~std::uint64_t{0};
    header.check = header_check(header);
    says = "at most";
  }
  SUBCASE("a changed length, that its bytes would be waited for") {
    header.length += 8;
    says = "header does not hold";
  }
  SUBCASE("a frame after LEFT ends the connection quietly") {
    FrameHeader left;
    left.kind = FrameKind::kLeft;
    raw.write(checked(left, {}));
  }
  raw.write(header);
  raw.write(std::uint64_t{0});
  if (says != nullptr) {
    node.wait([](const Told& t) { return t.broken.has_value(); });
    CHECK(node.told().broken->first == 0);
    CHECK_MESSAGE(node.told().broken->second.find(says) != std::string::npos,
                  node.told().broken->second);
  } else {
    CHECK(raw.closed());
    CHECK(node.told().left == std::vector<Rank>{0});
  }
  CHECK(node.told().frames.empty());
}

}  // namespace
}  // namespace starling::collectives
