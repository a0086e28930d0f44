#pragma once
// The connections of one epoch (R1): one connection to every other rank, TCP or, on one machine, a
// local socket; one communication thread.
//
// The lower rank of a pair dials, and dials again until it stands or connect_timeout is over: the
// peer may not have the plan yet. A refused connection is a break at once: a worker in a plan
// listened before. Frames are delivered in the order of each connection, once, as they were sent:
// on the way they are sealed as handshake.h says, and a connection with a frame that does not hold
// is given up. Session (session.h) decides which versions are welcome.
//
// A connection may stand and carry nothing: a switch drops what goes between two machines alone, or
// the peer's communication thread hangs. So both ends say something on each connection, and one
// over which nothing comes for the tolerance (core/base/silence.h) breaks as if it had ended.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/frame_sender.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/sections.h"
#include "core/wire/frame_counts.h"

namespace starling::collectives {

class Listener;

struct MeshPeer {
  Incarnation who;
  std::string host;  // an address, or a name that is looked up in the communication thread
  std::uint16_t port = 0;
};

struct MeshOptions {
  JobId job{};
  EpochId epoch;
  EpochKey key{};
  Rank self = 0;
  std::vector<MeshPeer> peers;                        // index = rank, self included
  std::chrono::milliseconds connect_timeout{5000};    // until all connections stand
  std::chrono::milliseconds handshake_timeout{2000};  // of one attempt
  // Least time that a connection may be silent, from when all stand; longer where the others are
  // silent as well. 0: for ever. Every sixth of that time each end says that it is there.
  std::chrono::milliseconds silence{0};
  SealRule seal = SealRule::kAuto;  // the same at all ranks
  bool local_sockets = true;        // instead of TCP, to peers at a loopback address (socket.h)
  std::size_t frame_bytes_max = kFrameBytesMax;
  std::size_t queue_bytes_max = std::size_t{8} << 30;  // to one peer and not yet written; beyond it
                                                       // the connection breaks
  // The communication thread asks this before it reads a peer's bytes. While it is false the bytes
  // stay where they are, and the peer waits, until read_on().
  std::function<bool()> may_read = [] { return true; };
  std::shared_ptr<FrameCounts> counts = std::make_shared<FrameCounts>();  // of all frames, added to
};

// All run on the communication thread. They may call send() and leave(), never stop().
struct MeshEvents {
  std::function<void()> on_connected;  // all W-1 connections stand; before any frame
  std::function<void(Rank, Frame)> on_frame;
  // The first break, or a peer that did not stand in time. All connections of the epoch close when
  // it returns, so all other ranks stop within a round trip; nothing is delivered after it.
  std::function<void(Rank, std::string, LinkFault)> on_broken;
  std::function<void(Rank)> on_left;  // the peer's LEFT: its last frame
  std::function<void()> on_drained;   // after leave(): the last connection has closed
};

// Threads: all functions from any thread, unless said otherwise.
class Mesh : public FrameSender {
 public:
  // `listener` must outlive the mesh. Nothing happens before start(), so that callbacks may use
  // whatever the caller puts the mesh into.
  Mesh(MeshOptions options, MeshEvents events, Listener& listener);
  ~Mesh() override;  // stop()
  // Begins to dial and to accept. Once.
  void start();

  Rank self() const override;
  std::uint32_t world() const override;
  // Writes what the socket takes, in the caller's thread, and leaves the rest to the communication
  // thread. Frames sent before all connections stand wait. Frames to a peer that has closed after
  // LEFT, after leave() and after a break are dropped.
  void send(Rank to, FrameHeader header, Payload payload) override;
  void send_all(std::span<const Rank> to, FrameHeader header, const Payload& payload) override;

  void hold() override;
  void flush() override;

  // Leaves the epoch by a switch: LEFT is the last frame on every connection; flushing and reading
  // go on; a connection closes when the peer's LEFT or end of file is there. From then on nothing
  // counts as a break.
  void leave();
  // Ends everything at any moment: closes all connections and joins the thread. When it returns no
  // callback runs and nothing more is sent or received (R9). Not from a callback; not while holding
  // a lock that a callback takes.
  void stop();

  // Goes on with peers that were not read: may_read() is true again.
  void read_on();

  // Peers whose connection broke or does not stand now.
  std::vector<Rank> broken() const;
  bool connected() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace starling::collectives
