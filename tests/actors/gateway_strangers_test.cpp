// Who comes to a gateway without a key, or with another version of the protocol.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "actors/gateway/zap.h"
#include "collectives/tcp/socket.h"
#include "core/wire/seal.h"
#include "tests/actors/gateway_rig.h"

namespace starling::actors {
namespace {

// Who speaks another version would otherwise be answered by nobody until it gives up.
TEST_CASE("gateway: a client of another version is told which one this is, and people are told") {
  std::mutex mutex;
  std::vector<std::string> lines;
  auto options = server_options(100, "tcp://127.0.0.1:0");
  options.listen->other_version = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  Peer server(std::move(options));
  RawClient client(server.gateway->port(), *ring().find("worker-1"));
  Bytes message = encode(kJob, life(5), {}, Leave{1});
  message[4] = 9;
  client.send({message});
  const Bytes answer = client.receive_bytes();
  CHECK(says_version(answer));
  CHECK(seal_version(answer) == kSealVersion);
  {
    const std::lock_guard lock(mutex);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0] ==
          "worker-1 speaks version 9 of the protocol, this one " + std::to_string(kSealVersion));
  }
  // What only says a version is not answered: two that differ would never stop.
  Bytes notice = seal(SealKind::kVersion, {});
  notice[4] = 9;
  client.send({notice});
  client.send({encode(kJob, life(5), life(99), Leave{1})});
  CHECK(!says_version(client.receive_bytes()));
}

TEST_CASE("gateway: a server of another version is recognised at its first word") {
  auto context = std::move(Context::make()).value();
  std::atomic<std::uint64_t> refused{0};
  auto zap = std::move(ZapHandler::start(context, ring().allow_list(), refused)).value();
  auto router = std::move(Socket::make(context, ZMQ_ROUTER)).value();
  REQUIRE(secure_server(router, *ring().find("coordinator-0")));
  REQUIRE(router.bind("tcp://127.0.0.1:0"));
  const std::string endpoint = router.endpoint();
  const auto worker = make_worker(
      200, static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  worker->gateway->send_to_server(0, Leave{1});
  zmq_pollitem_t item{router.handle(), 0, ZMQ_POLLIN, 0};
  REQUIRE(zmq_poll(&item, 1, std::chrono::milliseconds(kPatience).count()) == 1);
  MessagePart id, body;
  REQUIRE(id.receive(router));
  REQUIRE(body.receive(router));
  Bytes answer = seal(SealKind::kVersion, {});
  answer[4] = 9;
  zmq_send(router.handle(), id.bytes().data(), id.bytes().size(), ZMQ_SNDMORE);
  zmq_send(router.handle(), answer.data(), answer.size(), 0);
  CHECK(eventually([&] { return worker->gateway->link(0) == LinkState::kOtherVersion; }));
  CHECK(worker->gateway->other_version(0) ==
        "coordinator-0 speaks version 9 of the protocol, this one " + std::to_string(kSealVersion));
  CHECK(worker->inbox.size() == 0);
}

// Bytes of this process that are in memory.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// A stranger's connection: the greeting of ZMTP 3.0 with CURVE, and a "command" of 60 MiB, as much
// of it as the server takes.
class Flooder {
 public:
  explicit Flooder(std::uint16_t port)
      : socket_(std::move(collectives::dial_tcp("127.0.0.1", port)).value()) {
    std::string greeting = "\xff";
    greeting.append(8, '\0').append("\x7f\x03").append(1, '\0').append("CURVE");
    greeting.resize(64, '\0');
    unsent_ = greeting + '\x06' + std::string(4, '\0') + "\x03\xc0" + std::string(2, '\0');
  }
  // False: the server has closed.
  bool go_on() {
    if (unsent_.empty()) unsent_.assign(64 * 1024, 'x');
    const ssize_t n =
        ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) unsent_.erase(0, static_cast<std::size_t>(n));
    if (n > 0) sent_ += static_cast<std::size_t>(n);
    return n >= 0 || errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS;
  }
  std::size_t sent() const { return sent_; }

 private:
  Fd socket_;
  std::string unsent_;
  std::size_t sent_ = 0;
};

TEST_CASE("gateway: P8, strangers who begin large messages are cut off and take no memory") {
  const auto server = make_server(100);
  const std::size_t before = resident_bytes();
  std::size_t most = before;
  std::vector<Flooder> strangers;
  for (int i = 0; i < 20; ++i) strangers.emplace_back(server->gateway->port());
  CHECK(eventually([&] {
    bool any = false;
    for (Flooder& stranger : strangers) any = stranger.go_on() || any;
    most = std::max(most, resident_bytes());
    return !any;
  }));
  CHECK(most - before < (30u << 20));  // 1200 MiB are what they offered
  const auto worker = make_worker(200, server->gateway->port());
  worker->gateway->send_to_server(0, Leave{1});
  CHECK(server->inbox.next());
}

TEST_CASE("gateway: of connections that do not say who they are the oldest go") {
  auto options = server_options(100, "tcp://127.0.0.1:0");
  options.newcomers_max = 8;
  Peer server(std::move(options));
  std::vector<Fd> idle;
  for (int i = 0; i < 40; ++i)
    idle.push_back(std::move(collectives::dial_tcp("127.0.0.1", server.gateway->port())).value());
  CHECK(eventually([&] { return server.gateway->dropped(Drop::kNewcomer) >= 32; }));
  // All but the last ones have been closed from the other side.
  std::size_t closed = 0;
  CHECK(eventually([&] {
    closed = 0;
    for (const auto& fd : idle) {
      pollfd p{fd.get(), POLLRDHUP, 0};
      closed += poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    }
    return closed >= 32;
  }));
  const auto worker = make_worker(200, server.gateway->port());
  worker->gateway->send_to_server(0, Leave{1});
  CHECK(server.inbox.next());
}

}  // namespace
}  // namespace starling::actors
