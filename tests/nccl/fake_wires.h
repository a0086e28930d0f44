#pragma once
// How the ranks of a stand-in communicator find each other: NCCL's bootstrap over local sockets.

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/nccl/abi.h"

namespace starling::collectives::fake {

// Set once, by whoever ends a communicator; what waits for a socket waits for this, too.
class Alarm {
 public:
  Alarm();
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  void ring();
  bool rung() const { return rung_; }
  int file() const { return file_; }  // readable from then on

 private:
  std::atomic<bool> rung_{false};
  const int file_;
};

// A socket's file; closed in the end.
class Socket {
 public:
  explicit Socket(int file = -1) : file_(file) {}
  ~Socket();
  Socket(Socket&& o) noexcept : file_(std::exchange(o.file_, -1)) {}
  Socket& operator=(Socket&& o) noexcept {
    std::swap(file_, o.file_);
    return *this;
  }
  int file() const { return file_; }
  // The process at the other end is there, and does not end: it has closed its end because it wanted to.
  bool other_end_lives() const;

 private:
  int file_;
};

// Begins a root: a thread that waits for ever until all ranks have checked in, as NCCL's does.
nccl::abi::UniqueId make_root();
std::int64_t roots();

struct Wires {
  int result = nccl::abi::kSuccess;
  std::vector<Socket> peers;  // by rank, own one empty; they do not block
};
// Blocks until all stand, an error is seen or the alarm rings: then nothing. A peer or a root that is
// not there any more is waited for, as NCCL dials it again and again.
std::optional<Wires> join(const nccl::abi::UniqueId& id, int rank, int world, const Alarm& alarm);

}  // namespace starling::collectives::fake
