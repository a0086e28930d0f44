#pragma once
// The device transport of one epoch carries bytes from device to device, without the hosts between
// them (docs/design.md, section 4). It checks nothing: the caller of exchange() proves what arrived
// with frames of the epoch's connections, as the staging memory of a failed round holds anything at
// all.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/stream.h"

namespace starling::collectives {

// Bytes to or from one rank, in the device's memory.
struct Transfer {
  Rank peer = 0;
  std::byte* at = nullptr;
  std::size_t bytes = 0;
};

// DeviceTransport is one epoch's transport from device to device; each attempt makes a new object.
// Threads: the owner's, but for doom().
class DeviceTransport {
 public:
  // The destructor is doom(). The library frees the rest, staging memory too, once it has let go of
  // it: the owner may read the staging memory until here, and never waits.
  virtual ~DeviceTransport() = default;

  // Memory of the device that belongs to the transport, TransportOptions::staging_bytes, zeros at
  // first. Receives go nowhere else. Null before the transport is ready; there until the transport
  // is destroyed, as garbage after doom() or an error.
  virtual std::byte* staging() = 0;
  // Starts all transfers of one round. What two ranks ask of each other in their rounds, in order,
  // must match: as many transfers, as large. One round at a time, from on_ready() to on_round().
  // What is sent must not change until then or, after doom(), may be read a while longer.
  virtual void exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) = 0;
  // Gives the transport up at once, on any thread; only on_left() may follow. It waits for a
  // running callback, not for the library: hold no lock of a callback's. A callback may call it.
  virtual void doom() = 0;
};

// The owner of a transport opens its Gate when the kernels of all other members have ended, so that
// the memory that they may work on can be taken apart. Threads: any.
class Gate {
 public:
  void open() {
    const MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait_until(std::chrono::steady_clock::time_point deadline) {
    const MutexLock lock(mutex_);
    while (!open_ && changed_.wait_until(mutex_, deadline)) continue;
    return open_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ STARLING_GUARDED_BY(mutex_) = false;
};

// Called on a thread of the transport's, one at a time, the first one perhaps before connect() has
// returned, and none but on_left() after doom() has returned. They may call exchange() and doom(),
// and end the transport.
struct TransportEvents {
  std::function<void()> on_ready;          // once, or
  std::function<void(Error)> on_failed;    // once; before or after on_ready. Nothing more is told
  std::function<void(Result<>)> on_round;  // one for each exchange(); an error: staging memory is
                                           // garbage, and on_failed follows
  // Called once at the end, also after doom(), so it outlives the transport's owner; may be empty. The
  // transport's kernels have ended here; `revoked` false: unknown. Not called if the library hangs.
  std::function<void(bool revoked)> on_left;
};

struct TransportOptions {
  Rank self = 0;
  std::uint32_t world = 2;        // at least 2
  Bytes id;                       // make_id() of rank 0
  std::size_t staging_bytes = 0;  // of this rank
  // Allocates zeroed device memory; the last owner frees it on any thread. Throws std::bad_alloc.
  std::function<std::shared_ptr<std::byte>(std::size_t)> allocate;
  // Copies between host and device memory; done when it returns. Called on the transport's thread.
  std::function<void(std::byte* to, ByteView from)> copy_in;
  std::function<void(std::span<std::uint8_t> to, const std::byte* from)> copy_out;
  // The stream belongs to the transport, which uses it on its thread.
  std::shared_ptr<Stream> stream;
  // Called first on the transport's thread, for a device that is chosen by thread. May be empty.
  std::function<void()> enter_thread;
  // Called before the first kernel. The transport drops the result when the library has let go, and
  // never if the library hangs. May be empty. See kernels::Device::keep_memory().
  std::function<std::shared_ptr<void>()> keep_memory;
  // The transport waits for this gate before it frees memory, for `leave_ms` at most. Null: no wait.
  std::shared_ptr<Gate> others_left;
  // Limits: until the transport is ready, for a round, for each part of the library's own end
  // (beyond it the transport stays as it is for ever, TransportLibrary::closed()), and for the
  // gate.
  std::uint32_t connect_ms = 30'000, round_ms = 30'000, end_ms = 10'000, leave_ms = 2'000;
};

// A TransportLibrary makes transports: a library that was opened, and whether it fits this
// process's device. It outlives its transports. Threads: any.
class TransportLibrary {
 public:
  // The destructor waits until nothing of any transport is left, for leave_ms and end_ms at most:
  // from then on the device, the streams and sent memory may go. It does not wait for a transport
  // that hangs: that one keeps its staging memory, uses nothing else of its owner's, and ends with
  // the process.
  virtual ~TransportLibrary() = default;
  // Members of one epoch compare these names: equal names can be joined by a transport. "nccl 2.28.9"
  virtual const std::string& name() const = 0;
  // How the library is set up, for people.
  virtual std::string settings() const { return {}; }
  // Why this process can have no transport any more, as one hangs; empty: it can.
  virtual std::string closed() const { return {}; }
  // Rank 0 makes the id of a new transport, for one attempt of one epoch, while this process lives.
  virtual Result<Bytes> make_id() = 0;
  // Does not block. A library that can have one transport at a time makes the next one when the one
  // before is gone; that time counts as connect_ms.
  virtual std::unique_ptr<DeviceTransport> connect(TransportOptions options,
                                                   TransportEvents events) = 0;
};

}  // namespace starling::collectives
