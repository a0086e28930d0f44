// Who is let in, what a key lets its owner say, and what is said of those who are refused.

#include <doctest/doctest.h>

#include "actors/gateway/refusals.h"
#include "tests/actors/gateway_rig.h"

namespace starling::actors {
namespace {

// P8. Goal: the key of an observer is good for looking only, whatever its owner sends; a
// coordinator is no worker, and a worker no coordinator. Method: clients that send what they like
// under listed keys; a worker's word comes after all of theirs.
TEST_CASE("gateway: a key lets its owner say what its role needs, and nothing else") {
  const auto server = make_server(100);
  RawClient observer(server->gateway->port(), *ring().find("client"));
  Progress forged;
  forged.record.version = 3;
  const std::vector<Message> words = {forged,
                                      Join{},
                                      Report{},
                                      Heartbeat{},
                                      Leave{1},
                                      Death{},
                                      Finished{},
                                      Notice{},
                                      Ended{},
                                      Released{},
                                      ShardWritten{},
                                      RaftMessage{},
                                      Seats{{{1, "tcp://127.0.0.1:1"}}}};
  for (const Message& word : words) observer.send({encode(kJob, life(7), {}, word)});
  RawClient coordinator(server->gateway->port(), *ring().find("coordinator-1"));
  coordinator.send({encode(kJob, life(8), {}, forged)});
  RawClient intruder(server->gateway->port(), *ring().find("worker-3"));
  intruder.send({encode(kJob, life(9), {}, RaftMessage{})});
  intruder.send({encode(kJob, life(9), {}, Seats{{{1, "tcp://127.0.0.1:1"}}})});
  coordinator.send({encode(kJob, life(8), {}, Seats{})});
  const auto dropped = [&](Drop reason) { return server->gateway->dropped(reason); };
  CHECK(eventually([&] {  // one of the empty ones does not even decode
    return dropped(Drop::kWrongRole) + dropped(Drop::kMalformed) == words.size() + 4;
  }));
  CHECK(dropped(Drop::kWrongRole) > words.size());
  const auto worker = make_worker(200, server->gateway->port());
  worker->gateway->send_to_server(0, forged);
  const auto first = server->inbox.next();
  REQUIRE(first);
  CHECK(first->sender == "worker-0");
  CHECK(server->inbox.size() == 0);
  CHECK(!server->gateway->send_to(life(7), Fenced{}));  // nothing goes to who may say nothing
}

// Goal: a key that is taken off the list while its connection stands is good for nothing at once,
// and whoever has it is told. Method: two workers, of whom one is revoked, and a raw client with
// that key which does not listen.
TEST_CASE("gateway: a revoked key is cut off and refused; the others do not notice") {
  const auto server = make_server(100);
  const auto port = server->gateway->port();
  const auto good = make_worker(200, port, "worker-0");
  const auto bad = make_worker(300, port, "worker-1");
  RawClient raw(port, *ring().find("worker-1"));
  good->gateway->send_to_server(0, Leave{1});
  bad->gateway->send_to_server(0, Leave{2});
  raw.send({encode(kJob, life(400), {}, Leave{3})});
  for (int i = 0; i < 3; ++i) REQUIRE(server->inbox.next());

  KeyRing left = ring();
  left.remove("worker-1");
  server->gateway->allow(left.allow_list());
  CHECK(!server->gateway->send_to(life(300), Fenced{}));
  bad->gateway->send_to_server(0, Leave{4});
  CHECK(eventually([&] { return bad->gateway->link(0) == LinkState::kRefused; }));
  raw.send({encode(kJob, life(400), {}, Leave{5})});
  CHECK(eventually([&] { return server->gateway->dropped(Drop::kRevoked) >= 2; }));
  good->gateway->send_to_server(0, Leave{6});
  const auto next = server->inbox.next();
  REQUIRE(next);
  CHECK(next->from == life(200));
  CHECK(server->inbox.size() == 0);

  // The name is given to a new key: the old one is refused on, the new one let in.
  const KeyPair fresh = make_key_pair("worker-1");
  REQUIRE(left.add(fresh));
  server->gateway->allow(left.allow_list());
  const Peer replacement(client_options(500, port, fresh));
  replacement.gateway->send_to_server(0, Leave{7});
  const auto came = server->inbox.next();
  REQUIRE(came);
  CHECK(came->sender == "worker-1");
  CHECK(came->from == life(500));
}

TEST_CASE("gateway: who is refused is named once, with its key and where it came from") {
  std::mutex mutex;
  std::vector<std::string> lines;
  auto options = server_options(100, "tcp://127.0.0.1:0");
  options.listen->refused = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  const Peer server(std::move(options));
  const KeyPair unknown = make_key_pair("worker-0");
  std::vector<std::unique_ptr<Peer>> lives;  // one after the other, as a supervisor starts them
  for (std::uint64_t nonce = 666; nonce < 670; ++nonce)
    lives.push_back(std::make_unique<Peer>(client_options(nonce, server.gateway->port(), unknown)));
  CHECK(eventually([&] { return server.gateway->refused_handshakes() >= 3; }));
  const std::lock_guard lock(mutex);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "refused a key that is not on the list, " + unknown.public_key +
                        "; it came from 127.0.0.1");
}

TEST_CASE("gateway: however many are refused, few lines are said") {
  using namespace std::chrono_literals;
  Refusals refusals;
  const auto begin = Refusals::Clock::now();
  std::size_t lines = 0;
  for (int i = 0; i < 1000; ++i)
    if (refusals.line({"key-" + std::to_string(i), "", "10.0.0.9"}, begin + i * 1ms)) ++lines;
  CHECK(lines == Refusals::kLinesMax);
  const auto later = refusals.line({"key-5", "worker-3", "10.0.0.9"}, begin + 2min);
  REQUIRE(later);
  CHECK(later->find("worker-3") != std::string::npos);
  CHECK(later->find("992 more") != std::string::npos);
}

}  // namespace
}  // namespace starling::actors
