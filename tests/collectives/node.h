#pragma once
// Real meshes over loopback for tests: one process, ports chosen by the system, waiting with a
// deadline for what has to happen.

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/tcp/listener.h"
#include "collectives/tcp/mesh.h"
#include "core/base/mac.h"

namespace starling::collectives {

inline std::unique_ptr<Listener> open_listener(ListenerOptions options = {}) {
  auto listener = Listener::open(options);
  REQUIRE(listener.has_value());
  return std::move(listener.value());
}

// One rank: its mesh and what it was told.
class Node {
 public:
  struct Told {
    bool connected = false;
    bool drained = false;
    std::vector<std::pair<Rank, Frame>> frames;
    std::vector<Rank> left;
    std::optional<std::pair<Rank, std::string>> broken;
    LinkFault fault = LinkFault::kEnded;
    int breaks = 0;
    int callbacks = 0;
  };

  Node(const MeshOptions& options, Listener& listener,
       std::function<void(Node&, Rank, Frame&)> on_frame = {}) {
    MeshEvents events;
    events.on_connected = [this] { tell([](Told& t) { t.connected = true; }); };
    events.on_drained = [this] { tell([](Told& t) { t.drained = true; }); };
    events.on_left = [this](Rank r) { tell([&](Told& t) { t.left.push_back(r); }); };
    events.on_broken = [this](Rank r, const std::string& why, LinkFault fault) {
      if (at_break) at_break();
      tell([&](Told& t) {
        t.broken = {r, why};
        t.fault = fault;
        ++t.breaks;
      });
    };
    events.on_frame = [this, on_frame](Rank r, Frame frame) {
      if (on_frame) on_frame(*this, r, frame);
      tell([&](Told& t) { t.frames.emplace_back(r, std::move(frame)); });
    };
    mesh = std::make_unique<Mesh>(options, events, listener);
  }

  // Waits until `what` of all that was told holds; a test fails after ten seconds.
  template <class What>
  void wait(What what) {
    std::unique_lock lock(mutex_);
    const bool in_time =
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return what(told_); });
    REQUIRE(in_time);
  }
  Told told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  std::function<void()> at_break;  // set it before start()
  // For tests that count something of their own under the same lock.
  template <class Change>
  void tell(Change change) {
    const std::lock_guard lock(mutex_);
    change(told_);
    ++told_.callbacks;
    changed_.notify_all();
  }

  std::unique_ptr<Mesh> mesh;  // above: the callbacks of its thread use what is below until stop()
  ~Node() { mesh->stop(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Told told_;
};

// A whole epoch in this process.
struct MeshGroup {
  explicit MeshGroup(std::uint32_t world, EpochId id = {1, 1}) {
    options.epoch = id;
    random_bytes(options.job);
    random_bytes(options.key);
    for (Rank r = 0; r < world; ++r) {
      listeners.push_back(open_listener());
      options.peers.push_back({{r + 1, Nonce(1000 + r)}, "127.0.0.1", listeners[r]->port()});
    }
  }
  MeshOptions of(Rank rank) const {
    MeshOptions own = options;
    own.self = rank;
    return own;
  }
  void make(std::function<void(Node&, Rank, Frame&)> on_frame = {}) {
    for (Rank r = 0; r < options.peers.size(); ++r)
      nodes.push_back(std::make_unique<Node>(of(r), *listeners[r], on_frame));
  }
  void connect() {
    if (nodes.empty()) make();
    for (auto& node : nodes) node->mesh->start();
    for (auto& node : nodes) node->wait([](const Node::Told& t) { return t.connected; });
  }
  MeshOptions options;
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::unique_ptr<Node>> nodes;
};

}  // namespace starling::collectives
