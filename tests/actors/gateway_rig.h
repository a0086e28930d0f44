#pragma once
// Real gateways over loopback for tests: servers, clients, and a client without our rules.

#include <doctest/doctest.h>
#include <zmq.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "actors/gateway/gateway.h"
#include "actors/gateway/socket.h"
#include "core/wire/codec.h"
#include "tests/actors/patience.h"

namespace starling::actors {

using namespace std::chrono_literals;

inline const JobId kJob{1, 2, 3};

// What a gateway's handler got, for a test to wait for.
class Inbox {
 public:
  ArrivalHandler handler() {
    return [this](Arrival arrival) {
      const std::lock_guard lock(mutex_);
      arrivals_.push_back(std::move(arrival));
      changed_.notify_all();
    };
  }
  std::optional<Arrival> next(std::chrono::milliseconds patience = kPatience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [this] { return !arrivals_.empty(); }))
      return std::nullopt;
    Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    return arrival;
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return arrivals_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Arrival> arrivals_;
};

template <class F>
bool eventually(F holds) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

inline const KeyRing& ring() {
  static const KeyRing keys = KeyRing::generate(/*coordinators=*/2, /*workers=*/40);
  return keys;
}

inline Incarnation life(std::uint64_t nonce) {
  return {0, Nonce(nonce)};
}

inline GatewayOptions server_options(std::uint64_t nonce, const std::string& address,
                                     const std::string& name = "coordinator-0") {
  GatewayOptions options;
  options.job = kJob;
  options.self = life(nonce);
  options.key = *ring().find(name);
  options.listen = GatewayOptions::Listen{address, ring().allow_list()};
  return options;
}

inline GatewayOptions client_options(std::uint64_t nonce, std::uint16_t port, const KeyPair& key) {
  GatewayOptions options;
  options.job = kJob;
  options.self = life(nonce);
  options.key = key;
  options.servers.push_back({"coordinator-0", "tcp://127.0.0.1:" + std::to_string(port),
                             ring().find("coordinator-0")->public_key});
  return options;
}

struct Peer {
  Inbox inbox;
  std::unique_ptr<Gateway> gateway;
  explicit Peer(GatewayOptions options) {
    auto started = Gateway::start(std::move(options), inbox.handler());
    REQUIRE_MESSAGE(started, started.error().text());
    gateway = std::move(started).value();
  }
};

inline std::unique_ptr<Peer> make_server(std::uint64_t nonce, std::uint16_t port = 0) {
  return std::make_unique<Peer>(server_options(nonce, "tcp://127.0.0.1:" + std::to_string(port)));
}
inline std::unique_ptr<Peer> make_worker(std::uint64_t nonce, std::uint16_t port,
                                         const std::string& name = "worker-0") {
  return std::make_unique<Peer>(client_options(nonce, port, *ring().find(name)));
}

// A client without our rules: sends any bytes under a listed key.
class RawClient {
 public:
  RawClient(std::uint16_t port, const KeyPair& key)
      : context_(std::move(Context::make()).value()),
        socket_(std::move(Socket::make(context_, ZMQ_DEALER)).value()) {
    REQUIRE(secure_client(socket_, key, ring().find("coordinator-0")->public_key));
    REQUIRE(socket_.connect("tcp://127.0.0.1:" + std::to_string(port)));
  }
  void send(const std::vector<Bytes>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i)
      zmq_send(socket_.handle(), frames[i].data(), frames[i].size(),
               i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  }
  Bytes receive_bytes() {
    zmq_pollitem_t item{socket_.handle(), 0, ZMQ_POLLIN, 0};
    zmq_poll(&item, 1, std::chrono::milliseconds(kPatience).count());
    MessagePart frame;
    if (!frame.receive(socket_)) return {};
    return {frame.bytes().begin(), frame.bytes().end()};
  }
  std::optional<Envelope> receive() {
    zmq_pollitem_t item{socket_.handle(), 0, ZMQ_POLLIN, 0};
    zmq_poll(&item, 1, std::chrono::milliseconds(kPatience).count());
    MessagePart frame;
    if (!frame.receive(socket_)) return std::nullopt;
    auto envelope = decode(frame.bytes());
    if (!envelope) return std::nullopt;
    return std::move(envelope).value();
  }

 private:
  Context context_;
  Socket socket_;
};

}  // namespace starling::actors
