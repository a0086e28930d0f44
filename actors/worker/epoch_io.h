#pragma once
// EpochIo is one epoch at one worker: its frames and the connections
// on which they go. For data_plane.cpp; it decides nothing.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/worker/epoch_transport.h"
#include "actors/worker/executor.h"
#include "collectives/tcp/mesh.h"
#include "core/base/mutex.h"
#include "core/wire/messages.h"
#include "elastic/protocol/worker.h"

namespace starling::actors {

// A RetryClock calls back once, on a thread of its own, unless it goes or begins anew before.
class RetryClock {
 public:
  void begin(std::chrono::milliseconds after, std::function<void()> call) {
    thread_ = std::jthread([after, call = std::move(call)](const std::stop_token& stop) {
      Mutex mutex;
      std::condition_variable_any over;
      MutexLock lock(mutex);
      over.wait_for(lock, stop, after, [] { return false; });
      if (!stop.stop_requested()) call();
    });
  }

 private:
  std::jthread thread_;
};

struct EpochIo {
  // `open` comes before the mesh, which must stop before the memory that it sends from goes.
  std::optional<OpenEpoch> open;
  std::unique_ptr<collectives::Mesh> mesh;
  std::unique_ptr<EpochTransport> transport;  // null in a world of one
  RetryClock retry;                           // of the transport's next attempt
};

// An epoch's communication thread reports a MeshEvent.
struct MeshEvent {
  enum class Kind : std::uint8_t { kConnected, kFrame, kBroken, kDrained };
  EpochId epoch;
  Kind kind = Kind::kFrame;
  Rank peer = 0;
  Frame frame;
  std::string why;
  LinkFault fault = LinkFault::kEnded;
};

// `say` runs on the communication thread.
inline collectives::MeshEvents events_of(const EpochId& epoch,
                                         const std::function<void(MeshEvent)>& say) {
  using Kind = MeshEvent::Kind;
  collectives::MeshEvents events;
  events.on_connected = [=] { say({epoch, Kind::kConnected, 0, {}, {}}); };
  events.on_frame = [=](Rank from, Frame frame) {
    say({epoch, Kind::kFrame, from, std::move(frame), {}});
  };
  events.on_broken = [=](Rank peer, std::string why, LinkFault fault) {
    say({epoch, Kind::kBroken, peer, {}, std::move(why), fault});
  };
  events.on_drained = [=] { say({epoch, Kind::kDrained, 0, {}, {}}); };
  return events;
}

// Returns the peers with which this rank of the plan has connections.
inline collectives::MeshOptions mesh_of(const Plan& plan, Rank self) {
  collectives::MeshOptions mesh;
  mesh.epoch = plan.id;
  mesh.key = plan.key;
  mesh.self = self;
  for (const Member& m : plan.members) mesh.peers.push_back({m.who, m.host, m.port});
  return mesh;
}

}  // namespace starling::actors
