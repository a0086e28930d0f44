#pragma once
// The sending half of a bulk connection: frames in order, sealed and written as the socket takes
// them.

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "collectives/frame_sender.h"
#include "collectives/tcp/handshake.h"
#include "collectives/tcp/socket.h"
#include "core/base/mutex.h"

namespace starling::collectives {

// Owns the socket of a connection and its place in the epoll set.
//
// A frame is its header and its payload. On a connection with keys a tag of 16 bytes follows the
// header, and one the payload if there is any (frame_reader.h reads the same). Tagged frames are
// written from where they lie; encrypted ones go through a buffer of fixed size, so that the bytes
// in hand are few, whatever waits.
//
// Threads: push(), push_if_idle(), push_last() and flush() from any; the rest belongs to the
// communication thread.
class Outbox {
 public:
  // Events of the socket carry `tag`; `failed` is woken when pushing finds an error.
  Outbox(const Fd& epoll, std::uint64_t tag, const Fd& failed, std::size_t queue_bytes_max)
      : epoll_(epoll), tag_(tag), wake_(failed), queue_bytes_max_(queue_bytes_max) {}

  // Queues a whole frame and writes what the socket takes at once; if `held` only when much has
  // gathered. Dropped after push_last() and close().
  void push(const FrameHeader& whole, const Payload& payload, bool held = false);
  // Pushes only if nothing waits to be written; else the peer is about to hear of this end anyway.
  void push_if_idle(const FrameHeader& whole);
  // Writes what was held.
  void flush();
  // Queues the last frame: nothing can follow it.
  void push_last(const FrameHeader& whole);

  // The connection stands: from now on frames are written. Reading is off at first, only a hang-up
  // is told.
  void open(Fd socket, const ConnectionKeys& keys);
  void start_reading();
  // The communication thread is not woken by bytes that arrive until start_reading().
  void pause_reading();
  void on_writable();
  void close();

  int socket() const { return socket_.get(); }
  bool flushed_last() const;  // push_last() was called and all is written
  bool failed() const { return failed_; }
  std::string failure() const;

 private:
  struct Item {
    FrameHeader header;
    Payload payload;
    std::size_t sent = 0;  // of what goes over the wire
    bool tagged = false;   // the tags below are made
    AeadTag header_tag{}, payload_tag{};
    std::size_t size() const { return sizeof header + payload.size(); }
  };
  void push_locked(const FrameHeader& whole, const Payload& payload, bool held)
      STARLING_REQUIRES(mutex_);
  void flush_locked() STARLING_REQUIRES(mutex_);
  bool empty_locked() const STARLING_REQUIRES(mutex_) {
    return queue_.empty() && staged_begin_ == staged_end_;
  }
  ssize_t write_some_locked() STARLING_REQUIRES(mutex_);
  ssize_t write_items_locked() STARLING_REQUIRES(mutex_);
  ssize_t write_staged_locked() STARLING_REQUIRES(mutex_);
  void tag_locked(Item& item) STARLING_REQUIRES(mutex_);
  void stage_locked() STARLING_REQUIRES(mutex_);
  std::size_t wire_size(const Item& item) const STARLING_REQUIRES(mutex_);
  void drop_sent_locked(std::size_t n) STARLING_REQUIRES(mutex_);
  void fail_locked(std::string why) STARLING_REQUIRES(mutex_);
  void update_events_locked() STARLING_REQUIRES(mutex_);

  const Fd& epoll_;
  const std::uint64_t tag_;
  const Fd& wake_;
  const std::size_t queue_bytes_max_;
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  Fd socket_;  // written under mutex_ by the communication thread
  std::deque<Item> queue_ STARLING_GUARDED_BY(mutex_);
  std::size_t queue_bytes_ STARLING_GUARDED_BY(mutex_) = 0;
  FrameSeal seal_ STARLING_GUARDED_BY(mutex_) = FrameSeal::kPlain;
  std::optional<Aead> aead_ STARLING_GUARDED_BY(mutex_);  // none: kPlain
  Bytes staged_ STARLING_GUARDED_BY(mutex_);              // kSecret: sealed, not yet written
  std::size_t staged_begin_ STARLING_GUARDED_BY(mutex_) = 0;
  std::size_t staged_end_ STARLING_GUARDED_BY(mutex_) = 0;
  std::string failure_ STARLING_GUARDED_BY(mutex_);
  bool closed_ STARLING_GUARDED_BY(mutex_) = false;
  bool last_pushed_ STARLING_GUARDED_BY(mutex_) = false;
  // What of the socket is waited for, beside that it takes bytes.
  std::uint32_t reading_ STARLING_GUARDED_BY(mutex_) = 0;
  bool writing_ STARLING_GUARDED_BY(mutex_) = false;  // asked for writability
};

}  // namespace starling::collectives
