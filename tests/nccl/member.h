#pragma once
// One rank with a transport over the stand-in for NCCL, told what to do step by step.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/device_transport.h"
#include "collectives/nccl/library.h"
#include "kernels/device/device.h"

namespace starling::collectives {

// bytes[from][to]: the transfers of one round, in their order.
using Table = std::vector<std::vector<std::vector<std::size_t>>>;
Table everybody_to_everybody(std::uint32_t world, std::size_t bytes);

// Memory and streams of a rank: the device's, or the host's own, where nothing is a stream.
enum class Place { kDevice, kHost };

// The time limits are generous: no test waits for one that it does not mean.
struct MemberOptions {
  Place place = Place::kDevice;
  std::uint32_t connect_ms = 120'000, round_ms = 120'000, end_ms = 120'000, leave_ms = 120'000;
  std::function<void(const std::string&, Rank)> on_stuck;
  std::function<void(std::chrono::nanoseconds revoke, std::chrono::nanoseconds abort)> on_end;
};

// Threads: one, the test's.
class Member {
 public:
  // Opens the library that STARLING_NCCL names. `device` outlives it.
  explicit Member(kernels::Device& device, MemberOptions options = {});
  ~Member();  // waits until nothing of its transports is left

  TransportLibrary& library() { return *library_; }
  struct Seat {
    std::uint32_t rank = 0, world = 2;
  };
  // A new transport, in place of the one before.
  void connect(Seat seat, const Bytes& id, std::size_t staging_bytes);
  // The same transport's next: that before goes on until change_over().
  void connect_beside(const Bytes& id);
  void change_over() { transport_ = std::move(next_transport_); }
  // Asks for a round whose bytes are a function of `seed`.
  void exchange(const Table& table, std::uint64_t seed);
  // What was received is what the others were to send in that round.
  bool right(const Table& table, std::uint64_t seed) const;
  void doom() { transport_->doom(); }
  void drop() {
    transport_.reset();
    next_transport_.reset();
  }
  bool staging_is_zero() const;

  // What the transport told next: "ready", "round", "round: TEXT" or "failed: TEXT". Waits for it;
  // "nothing" after two minutes.
  std::string next();
  // What was told and not yet asked for; the first of it, if there is one.
  std::size_t told() const;
  std::string peek() const;
  void forget();
  // Nothing of any transport is left. Waits for it.
  void await_end();
  // Called by the transport's thread with each event, after connect() and before it is noted.
  std::function<void(const std::string&)> on_event;
  // Called when a transport's staging memory is given back, by whatever thread does it.
  std::function<void()> on_release;
  // Called by the transport's thread when its kernels have ended; the end of transports that are
  // made from now on waits for the gate.
  std::function<void(bool revoked)> on_left;
  std::shared_ptr<Gate> gate;

 private:
  std::unique_ptr<DeviceTransport> make_transport(const Bytes& id);
  void copy_out(std::span<std::uint8_t> to, const std::byte* from) const;

  kernels::Device& device_;
  const MemberOptions options_;
  const std::function<std::shared_ptr<Stream>()> make_stream_;
  Seat seat_;
  std::size_t staging_bytes_ = 0;
  std::vector<kernels::Memory> sent_;  // may be read until the library has let go

  std::mutex connecting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> events_;

  std::shared_ptr<TransportLibrary> library_;
  std::unique_ptr<DeviceTransport> transport_, next_transport_;
};

// What the stand-in does wrong from now on. Empty: nothing.
void give_orders(const std::string& orders);
struct Counts {
  std::int64_t communicators, threads, roots, begun, groups, hung, revoked, aborted;
};
Counts counts();
// Waits until a count has got there; ends the process after two minutes.
void await(std::int64_t Counts::*count, std::int64_t value);

// Of this process, as the kernel tells.
struct Figures {
  std::int64_t threads = 0, files = 0, rss_kb = 0;
};
Figures figures();

}  // namespace starling::collectives
