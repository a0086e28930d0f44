// A library with NCCL's binary interface, over local sockets between processes and threads of one
// machine, for tests of collectives/nccl. Memory is the host's, or the emulated device's: then the
// stream is a StreamCounts (core/base/stream.h). Work is asynchronous, as on a GPU.
//
// It is as unpleasant as NCCL is. Kernels that are stopped end like others, with garbage in what they
// were to receive. A dead peer is no error: whoever waits for it waits on. A launch that is under way
// is not in the stream. The thread of an id waits for all its ranks for ever. Where NCCL would crash
// this ends the process with one line and status 70: a communicator that is used after its abort, by
// two threads at once, or with another size than its peer's; a revoke before it stands; an abort of
// one whose revoke was not seen to end. A communicator that is aborted gives memory back that its peers'
// kernels may be using, which is found by the order `fault`.
//
// FAKE_NCCL=ORDER,...        what goes wrong: fake_orders.h
// FAKE_NCCL_VERSION=NUMBER   what ncclGetVersion says, in place of 22809

#include "tests/nccl/fake_nccl.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/nccl/abi.h"
#include "core/base/stream.h"
#include "tests/nccl/fake_orders.h"
#include "tests/nccl/fake_wires.h"

namespace starling::collectives::fake {
namespace {

namespace abi = nccl::abi;

std::atomic<std::int64_t> threads{0}, begun{0}, groups{0}, hung{0}, revoked{0}, aborted{0};

void sleep_ms(std::uint32_t ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

[[noreturn]] void sleep_for_ever() {
  for (;;) sleep_ms(1'000'000);
}

// So often somebody may look at a communicator to learn that a group has ended; who looks once more
// is told the error.
constexpr int kLooks = 3;

// One ncclSend or ncclRecv: a length, so that peers that disagree are found, and the bytes.
struct Operation {
  bool send = false;
  int peer = 0;
  char* at = nullptr;
  std::uint64_t bytes = 0, other = 0;  // other: the length that is sent or was received
  std::uint64_t moved = 0;             // of the length and the bytes

  std::uint64_t all() const { return sizeof other + bytes; }
  bool done() const { return moved == all(); }
};

struct Group {
  std::vector<Operation> operations;
  StreamCounts* stream = nullptr;
  Order late, lazy, hang, error, garbage, error_later, die, fault;
};

// A communicator. Its thread makes it, and is the stream that its groups run on.
class Comm {
 public:
  Comm(const abi::UniqueId& id, int rank, int world)
      : rank_(rank), world_(world), thread_([this, id] { run(id); }) {}

  int rank() const { return rank_; }
  int world() const { return world_; }
  int state() {
    if (wants_look_.exchange(false))
      while (state_ == abi::kInProgress) std::this_thread::yield();
    if (looks_left_ > 0 && --looks_left_ == 0) state_ = abi::kRemoteError;
    return state_;
  }
  bool stands() const { return stands_; }

  // From the thread that calls NCCL.
  int launch(Group group) {
    if (stopped_) return abi::kInvalidUsage;
    if (state_ != abi::kSuccess) return abi::kInvalidArgument;
    state_ = abi::kInProgress;
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::move(group));
    changed_.notify_all();
    return abi::kInProgress;
  }

  int revoke() {
    if (!stands_) misused("ncclCommRevoke before the communicator stands");
    if (stopped_) return abi::kInvalidArgument;
    const Order slow = order("slow-revoke", rank_), hang = order("hang-revoke", rank_);
    {
      const std::lock_guard lock(mutex_);
      in_revoke_ = true;
      state_ = abi::kInProgress;
    }
    revoking_ = std::thread([this, slow, hang] {
      if (slow) sleep_ms(slow.ms);
      if (hang) sleep_for_ever();
      stop();
      state_ = abi::kSuccess;
    });
    return abi::kInProgress;
  }

  void abort() {
    if (in_revoke_ && state_ == abi::kInProgress)
      misused("ncclCommAbort before ncclCommRevoke was seen to have ended");
    const Order slow = order("slow-abort", rank_), hang = order("hang-abort", rank_);
    if (slow) sleep_ms(slow.ms);
    if (hang) sleep_for_ever();
    if (revoking_.joinable()) revoking_.join();
    stop();
    if (order("abort-waits-for-peers", rank_)) wait_for_peers();
  }

  std::atomic<bool> in_a_call{false};

 private:
  // Kernels leave, and the thread with them.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_.exchange(true)) alarm_.ring();
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  // As a thread that serves its peers' requests until they have all gone.
  void wait_for_peers() {
    for (const Socket& peer : peers_)
      if (peer.file() >= 0) ::shutdown(peer.file(), SHUT_WR);
    for (const Socket& peer : peers_) {
      char rest[4096];
      while (peer.file() >= 0) {
        pollfd file{peer.file(), POLLIN, 0};
        ::poll(&file, 1, -1);
        const ssize_t n = ::recv(peer.file(), rest, sizeof rest, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
      }
    }
  }

  void run(const abi::UniqueId& id) {
    ++threads;
    make(id);
    while (auto group = next()) perform(*group);
    --threads;
  }

  void make(const abi::UniqueId& id) {
    const Order slow = order("slow-init", rank_), fail = order("fail-init", rank_);
    const bool hang = static_cast<bool>(order("hang-init", rank_));
    if (slow) sleep_ms(slow.ms);
    if (hang) {
      ++hung;
      return;
    }
    if (fail) {
      state_ = abi::kSystemError;
      return;
    }
    auto wires = join(id, rank_, world_, alarm_);
    if (!wires) return;
    peers_ = std::move(wires->peers);
    stands_ = wires->result == abi::kSuccess;
    state_ = wires->result;
  }

  // Until one is asked for. None: the communicator has been stopped, and all of them have ended.
  std::unique_ptr<Group> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !groups_.empty(); });
    if (groups_.empty()) return nullptr;
    auto group = std::make_unique<Group>(std::move(groups_.front()));
    groups_.pop_front();
    return group;
  }

  void perform(Group& group) {
    if (group.late) sleep_ms(group.late.ms);
    if (group.lazy) {
      wants_look_ = true;
      while (wants_look_ && !alarm_.rung()) std::this_thread::yield();
    }
    // Without a stream nobody can see that the group ends, but by the communicator.
    if (group.stream != nullptr) {
      ++group.stream->asked;
      settle(abi::kSuccess);
    }
    if (group.lazy) sleep_ms(group.lazy.ms);
    if (group.error) state_ = abi::kRemoteError;
    if (!group.hang && !group.error) transfer(group);
    if (group.hang) ++hung;
    if (group.hang || group.error) wait_for_alarm();
    spoil(group);
    if (group.stream != nullptr)
      ++group.stream->done;
    else
      settle(abi::kSuccess);
    if (group.error_later) looks_left_ = kLooks;
  }

  // A launch has been done; of a communicator that is being revoked nothing more is told.
  void settle(int state) {
    const std::lock_guard lock(mutex_);
    if (in_revoke_) return;
    int expected = abi::kInProgress;
    state_.compare_exchange_strong(expected, state);
  }

  void wait_for_alarm() {
    pollfd file{alarm_.file(), POLLIN, 0};
    while (!alarm_.rung()) ::poll(&file, 1, -1);
  }

  // A kernel that was stopped leaves anything at all in what it was to receive.
  void spoil(Group& group) {
    for (Operation& o : group.operations)
      if (!o.send && (group.garbage || !o.done()))
        for (std::uint64_t i = 0; i < o.bytes; ++i)
          o.at[i] = static_cast<char>(~o.at[i] ^ (i * 37));
  }

  // Until all is done or the alarm rings. Of one peer's operations, those in each direction go one
  // after the other.
  void transfer(Group& group) {
    std::vector<std::deque<Operation*>> out(peers_.size()), in(peers_.size());
    for (Operation& o : group.operations)
      (o.send ? out : in)[static_cast<std::size_t>(o.peer)].push_back(&o);
    std::vector<bool> dead(peers_.size());
    while (!alarm_.rung()) {
      std::vector<pollfd> files{{alarm_.file(), POLLIN, 0}};
      std::vector<std::size_t> who{0};
      bool left = false;
      for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
        const bool over = out[peer].empty() && in[peer].empty();
        // A kernel looks at all of its peers' memory until its end.
        if (over && !(group.fault && peers_[peer].file() >= 0)) continue;
        left = left || !over;
        const auto events =
            static_cast<short>((out[peer].empty() ? 0 : POLLOUT) | (in[peer].empty() ? 0 : POLLIN));
        if (dead[peer]) continue;
        files.push_back({peers_[peer].file(), events, 0});
        who.push_back(peer);
      }
      if (!left) return;
      ::poll(files.data(), files.size(), -1);
      for (std::size_t i = 1; i < files.size(); ++i) {
        const std::size_t peer = who[i];
        if (files[i].revents & POLLOUT) dead[peer] = !move(peer, out[peer], group);
        if (files[i].revents & POLLIN) dead[peer] = !move(peer, in[peer], group);
        // It is gone, and there is nothing more to read. NCCL does not notice it.
        if ((files[i].revents & (POLLERR | POLLHUP)) && !(files[i].revents & POLLIN))
          dead[peer] = true;
        // A dead process's memory stays where it is mapped.
        if (dead[peer] && group.fault && !alarm_.rung() && peers_[peer].other_end_lives())
          faulted("rank " + std::to_string(peer) + " freed what a kernel of rank " +
                  std::to_string(rank_) + " works on");
      }
    }
  }

  // What goes without waiting. False: the peer is gone.
  bool move(std::size_t peer, std::deque<Operation*>& queue, const Group& group) {
    constexpr std::uint64_t kLength = sizeof(Operation::other);
    while (!queue.empty()) {
      Operation& o = *queue.front();
      if (group.die && o.send && o.moved >= (o.all() + 1) / 2) ::raise(SIGKILL);
      char* const at = o.moved < kLength ? reinterpret_cast<char*>(&o.other) + o.moved
                                         : o.at + (o.moved - kLength);
      std::uint64_t bytes = o.moved < kLength ? kLength - o.moved : o.all() - o.moved;
      if (group.die && o.send) bytes = std::min(bytes, (o.all() + 1) / 2 - o.moved);
      const int file = peers_[peer].file();
      const ssize_t n = o.send ? ::send(file, at, bytes, MSG_NOSIGNAL) : ::recv(file, at, bytes, 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (n <= 0) return false;
      o.moved += static_cast<std::uint64_t>(n);
      if (o.moved >= kLength && o.other != o.bytes)
        misused("rank " + std::to_string(peer) + " sent " + std::to_string(o.other) +
                " bytes, rank " + std::to_string(rank_) + " takes " + std::to_string(o.bytes));
      if (o.done()) queue.pop_front();
    }
    return true;
  }

  const int rank_, world_;
  std::atomic<int> state_{abi::kInProgress};
  std::atomic<bool> stands_{false};
  std::atomic<bool> wants_look_{false}, in_revoke_{false};
  std::atomic<int> looks_left_{0};  // at the communicator, until an error is told
  Alarm alarm_;
  std::vector<Socket> peers_;  // the thread's, from make() on

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Group> groups_;
  std::atomic<bool> stopped_{false};
  std::thread revoking_;  // of the thread that calls NCCL
  std::thread thread_;    // the last member: it uses all others
};

std::mutex living_mutex;
// Never destroyed: a thread that hangs in a call goes on while the process ends.
std::set<Comm*>& living = *new std::set<Comm*>;

// A communicator for the time of one call.
class Call {
 public:
  explicit Call(abi::Comm comm) : comm_(reinterpret_cast<Comm*>(comm)) {
    const std::lock_guard lock(living_mutex);
    if (living.count(comm_) == 0) misused("a communicator is used that is none, or no more");
    if (comm_->in_a_call.exchange(true)) misused("two threads are in one communicator");
  }
  ~Call() {
    if (comm_) comm_->in_a_call = false;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Comm* operator->() const { return comm_; }
  // It is nobody's any more.
  std::unique_ptr<Comm> take() {
    const std::lock_guard lock(living_mutex);
    living.erase(comm_);
    return std::unique_ptr<Comm>(std::exchange(comm_, nullptr));
  }

 private:
  Comm* comm_;
};

thread_local bool in_group = false;
thread_local abi::Comm group_comm = nullptr;
thread_local Group group;

int add(bool send, void* at, std::size_t count, int type, int peer, abi::Comm comm, void* stream) {
  const Call call(comm);
  if (!in_group) misused("ncclSend or ncclRecv outside of a group");
  if (type != abi::kInt8) misused("only bytes are known here");
  if (group_comm != nullptr && group_comm != comm) misused("two communicators in one group");
  if (peer < 0 || peer >= call->world() || peer == call->rank()) return abi::kInvalidArgument;
  group_comm = comm;
  group.stream = static_cast<StreamCounts*>(stream);
  if (group.stream != nullptr && group.stream->real) at = group.stream->real(at, count);
  group.operations.push_back({send, peer, static_cast<char*>(at), count, send ? count : 0});
  return abi::kSuccess;
}

}  // namespace
}  // namespace starling::collectives::fake

using starling::collectives::fake::begun;
using starling::collectives::fake::Call;
using starling::collectives::fake::Comm;
using starling::collectives::fake::order;
namespace fake = starling::collectives::fake;
namespace abi = starling::collectives::nccl::abi;

extern "C" {

int ncclGetVersion(int* version) {
  const char* const told = std::getenv("FAKE_NCCL_VERSION");
  *version = told ? std::atoi(told) : 22809;
  return abi::kSuccess;
}

int ncclGetUniqueId(abi::UniqueId* id) {
  *id = fake::make_root();
  return abi::kSuccess;
}

const char* ncclGetErrorString(int result) {
  return result == abi::kRemoteError ? "remote process exited or there was a network error"
                                     : "an error of the stand-in";
}

const char* ncclGetLastError(abi::Comm) {
  return "details of it\nand more of them";
}

int ncclCommInitRankConfig(abi::Comm* comm, int world, abi::UniqueId id, int rank,
                           abi::Config* config) {
  if (config->size != sizeof(abi::Config) || config->magic != 0xcafebeef || config->blocking != 0 ||
      config->max_ctas < 1)
    return abi::kInvalidArgument;
  if (world < 1 || rank < 0 || rank >= world) return abi::kInvalidArgument;
  if (order("refuse-init", rank)) return abi::kUnhandledCudaError;
  ++begun;
  auto* const made = new Comm(id, rank, world);
  const std::lock_guard lock(fake::living_mutex);
  fake::living.insert(made);
  *comm = reinterpret_cast<abi::Comm>(made);
  return abi::kInProgress;
}

int ncclCommGetAsyncError(abi::Comm comm, int* state) {
  const Call call(comm);
  *state = call->state();
  return abi::kSuccess;
}

int ncclCommAbort(abi::Comm comm) {
  if (comm == nullptr) return abi::kSuccess;
  ++fake::aborted;
  Call call(comm);
  call->abort();
  call.take();
  return abi::kSuccess;
}

#ifndef FAKE_NCCL_IS_OLD
int ncclCommRevoke(abi::Comm comm, int flags) {
  ++fake::revoked;
  const Call call(comm);
  return flags == 0 ? call->revoke() : abi::kInvalidArgument;
}
#endif

int ncclGroupStart() {
  fake::in_group = true;
  return abi::kSuccess;
}

int ncclGroupEnd() {
  if (!std::exchange(fake::in_group, false)) fake::misused("ncclGroupEnd without a start");
  if (fake::group_comm == nullptr) return abi::kSuccess;
  const Call call(std::exchange(fake::group_comm, nullptr));
  fake::Group group = std::exchange(fake::group, fake::Group());
  const int rank = call->rank();
  const bool refuse = static_cast<bool>(order("refuse", rank));
  const bool hang_call = static_cast<bool>(order("hang-call", rank));
  group.late = order("late", rank);
  group.lazy = order("lazy", rank);
  group.hang = order("hang", rank);
  group.error = order("error", rank);
  group.garbage = order("garbage", rank);
  group.error_later = order("error-later", rank);
  group.die = order("die", rank);
  group.fault = order("fault", rank);
  ++fake::groups;
  if (hang_call) fake::sleep_for_ever();
  if (refuse) return abi::kInternalError;
  return call->launch(std::move(group));
}

int ncclSend(const void* at, std::size_t count, int type, int peer, abi::Comm comm, void* stream) {
  return fake::add(true, const_cast<void*>(at), count, type, peer, comm, stream);
}

int ncclRecv(void* at, std::size_t count, int type, int peer, abi::Comm comm, void* stream) {
  return fake::add(false, at, count, type, peer, comm, stream);
}

void fake_nccl_orders(const char* text) {
  fake::set_orders(text);
  begun = 0;
  fake::groups = 0;
  fake::hung = 0;
  fake::revoked = 0;
  fake::aborted = 0;
}

void fake_nccl_counts(FakeNcclCounts* counts) {
  const std::lock_guard lock(fake::living_mutex);
  *counts = {static_cast<std::int64_t>(fake::living.size()),
             fake::threads,
             fake::roots(),
             begun,
             fake::groups,
             fake::hung,
             fake::revoked,
             fake::aborted};
}

}  // extern "C"
