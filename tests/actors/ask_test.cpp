#include "actors/worker/ask.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace starling::actors {
namespace {

using namespace std::chrono_literals;

const JobId kAskedJob{4, 5, 6};

const KeyRing& ask_ring() {
  static const KeyRing keys = KeyRing::generate(/*coordinators=*/2, /*workers=*/2);
  return keys;
}

// A coordinator as far as a gateway goes; answers who asks with a job.
struct Server {
  std::unique_ptr<Gateway> gateway;
  std::atomic<Gateway*> door{nullptr};
  std::atomic<std::uint64_t> asker{0};  // its process, as it says
  explicit Server(AllowList allowed, bool answers = true) {
    GatewayOptions options;
    options.job = kAskedJob;
    options.self = {0, 100};
    options.key = *ask_ring().find("coordinator-0");
    options.listen = GatewayOptions::Listen{"tcp://127.0.0.1:0", std::move(allowed), {}};
    auto started = Gateway::start(std::move(options), [this, answers](Arrival arrival) {
      const auto* join = std::get_if<Join>(&arrival.body);
      if (join) asker = join->pid;
      if (answers && door && join && asks_for_job(*join))
        door.load()->send_to(arrival.from, Welcome{arrival.from, "the job"});
    });
    REQUIRE_MESSAGE(started, started.error().text());
    gateway = std::move(started).value();
    door = gateway.get();
  }
  ~Server() { gateway->stop(); }
};

AskOptions asking(std::uint16_t port, const KeyPair& key, const std::string& server_key) {
  AskOptions options;
  options.job_id = kAskedJob;
  options.self = {0, 7};
  options.key = key;
  options.coordinators = {{"coordinator-0", "tcp://127.0.0.1:" + std::to_string(port), server_key}};
  return options;
}

const std::string& server_key() {
  return ask_ring().find("coordinator-0")->public_key;
}

TEST_CASE("a worker is told the job by whoever coordinates it") {
  const Server server(ask_ring().allow_list());
  const auto asked =
      ask_for_job(asking(server.gateway->port(), *ask_ring().find("worker-1"), server_key()));
  REQUIRE_MESSAGE(asked, asked.error().text());
  CHECK(asked.value().job_text == "the job");
}

TEST_CASE("a worker that asks says its process, by which people find it while it prepares") {
  const Server server(ask_ring().allow_list());
  REQUIRE(ask_for_job(asking(server.gateway->port(), *ask_ring().find("worker-1"), server_key())));
  CHECK(server.asker == static_cast<std::uint64_t>(::getpid()));
}

TEST_CASE("a key that is put on the list while its worker asks is let in") {
  const KeyPair added = make_key_pair("worker-9");
  const Server server(ask_ring().allow_list());
  std::thread adder([&] {
    while (server.gateway->refused_handshakes() == 0) std::this_thread::sleep_for(5ms);
    std::this_thread::sleep_for(300ms);  // the refusal has come; asked for again in any case
    AllowList more = ask_ring().allow_list();
    more.emplace(added.public_key, added.name);
    server.gateway->allow(std::move(more));
  });
  const auto asked = ask_for_job(asking(server.gateway->port(), added, server_key()));
  adder.join();
  REQUIRE_MESSAGE(asked, asked.error().text());
  CHECK(asked.value().job_text == "the job");
}

TEST_CASE("a key that is not on the list for some seconds is said so, with its public half") {
  const Server server(ask_ring().allow_list());
  const KeyPair unknown = make_key_pair("worker-0");
  auto options = asking(server.gateway->port(), unknown, server_key());
  options.waiting = [](const std::string& line) { FAIL("nobody is silent: " << line); };
  const auto asked = ask_for_job(options);
  REQUIRE(!asked);
  CHECK(asked.error().code() == Code::kBadInput);
  CHECK(asked.error().text().find("not on the coordinators' list") != std::string::npos);
  CHECK(asked.error().text().find(unknown.public_key) != std::string::npos);
}

TEST_CASE("whoever is no coordinator of these keys is said so, not waited for") {
  const Server server(ask_ring().allow_list());
  const auto asked = ask_for_job(asking(server.gateway->port(), *ask_ring().find("worker-0"),
                                        ask_ring().find("coordinator-1")->public_key));
  REQUIRE(!asked);
  CHECK(asked.error().code() == Code::kBadInput);
  CHECK(asked.error().text().find("is not coordinator-0 of these keys") != std::string::npos);
}

TEST_CASE("silence is said while it lasts, and its cause at the end") {
  const Server server(ask_ring().allow_list(), /*answers=*/false);
  auto options = asking(server.gateway->port(), *ask_ring().find("worker-0"), server_key());
  options.patience = 2500ms;
  std::vector<std::string> said;
  options.waiting = [&](const std::string& line) { said.push_back(line); };
  const auto asked = ask_for_job(options);
  REQUIRE(!asked);
  CHECK(asked.error().code() == Code::kUnavailable);
  CHECK(said.size() == 1);
  options.give_up = [] { return true; };
  CHECK(!ask_for_job(options));
}

TEST_CASE("a link that stands, or may still be made, is hope") {
  using enum LinkState;
  AskOptions options;
  options.key.name = "worker-0";
  options.coordinators = {{"coordinator-0", "a", ""}, {"coordinator-1", "b", ""}};
  CHECK(hopeless({kUp, kRefused}, options, true).empty());
  CHECK(hopeless({kConnecting, kRefused}, options, false).empty());
  CHECK(!hopeless({kConnecting, kRefused}, options, true).empty());
  CHECK(!hopeless({kRefused, kRefused}, options, false).empty());
  CHECK(hopeless({kConnecting, kConnecting}, options, true).empty());
  CHECK(hopeless({kConnecting, kWrongPeer}, options, true).find("at b is not coordinator-1") !=
        std::string::npos);
}

}  // namespace
}  // namespace starling::actors
