#include "collectives/nccl/transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "collectives/nccl/communicator.h"
#include "collectives/nccl/transport_state.h"
#include "core/base/check.h"
#include "core/base/mutex.h"
#include "core/base/thread_name.h"

namespace starling::collectives::nccl {
namespace {

using Life = TransportState::Life;
using Use = TransportState::Use;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kWarmBytes = 256;  // of one peer's block in the warm-up
constexpr milliseconds kQuietPoll{100};  // how often an error is looked for where nothing is asked
constexpr Clock::time_point kEndless = Clock::time_point::max();
constexpr const char* kGivenUp = "the transport was given up";  // an error that no callback reports

// The pause between two looks at what takes 100 us to half a minute: an eighth more at worst.
microseconds pause_after(Clock::duration waited) {
  const auto eighth = std::chrono::duration_cast<microseconds>(waited / 8);
  return std::clamp(eighth, microseconds(20), microseconds(1000));
}

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kWarmBytes - 1) / kWarmBytes * kWarmBytes;
}

// The bytes that `from` sends to `to` in the warm-up: other ones for each pair and each transport.
Bytes warm_block(ByteView id, std::uint32_t from, std::uint32_t to) {
  Bytes block(kWarmBytes);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<std::uint8_t>(id[i % id.size()] + 3 * from + 101 * to + i / id.size());
  return block;
}

std::string in_ms(std::uint32_t ms) {
  return std::to_string(ms) + " ms";
}

}  // namespace

// Threads: run() is the transport's own; other functions say which.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::shared_ptr<Shared> shared, TransportOptions options, TransportEvents events)
      : shared_(std::move(shared)),
        turns_(shared_->turns),
        ticket_(turns_.ask()),
        self_(options.self),
        connect_until_(Clock::now() + milliseconds(options.connect_ms)),
        options_(std::move(options)),
        events_(std::move(events)),
        communicator_(shared_->functions) {
    STARLING_CHECK(options_.world >= 2);
    STARLING_CHECK(options_.self < options_.world);
    STARLING_CHECK(events_.on_ready && events_.on_failed && events_.on_round);
  }

  void run();

  // Any thread.
  void doom();
  void release();  // doom(), and the owner does not look at the staging memory any more
  std::byte* staging();
  void exchange(std::vector<Transfer> sends, std::vector<Transfer> receives);
  // TransportState::over() needs no lock.
  bool over() const STARLING_NO_THREAD_SAFETY_ANALYSIS { return state_.over(); }
  bool wait_for_end();  // false: it is stuck

 private:
  struct Round {
    std::vector<Transfer> sends, receives;
  };

  Result<> serve();
  Result<> create();
  Result<> allocate();
  Result<> warm_up();
  Result<Round> next_round();
  Result<> perform(const Round& round, Clock::time_point until, const std::string& what);
  void end();
  void leave();
  Error turned_away(const std::string& otherwise) const;
  template <class Done>
  Result<> poll(Clock::time_point until, const std::string& what, Done done);
  template <class... Told, class... What>
  void tell(const std::function<void(Told...)>& event, What&&... what);
  void fail(Error why);  // tells the end of a round that was asked for, and the transport's

  // The thread's next work should end by itself by then; kEndless: it may wait for ever.
  void expect_end(Clock::time_point by);
  void enter(Life next, Clock::time_point end_by);  // and expect its end
  void watch();
  void get_stuck();
  [[noreturn]] void stay();

  const std::shared_ptr<Shared> shared_;
  Turns& turns_;
  const Turns::Ticket ticket_;
  const Rank self_;

  // The transport's thread alone.
  Clock::time_point connect_until_;  // the present part of making a transport
  TransportOptions options_;
  TransportEvents events_;
  Communicator communicator_;
  std::shared_ptr<void> keeping_;
  std::shared_ptr<std::byte> memory_;
  std::thread watcher_;

  // May come in every state, and Turns and poll() look at it without mutex_.
  std::atomic<bool> doomed_{false};
  std::recursive_mutex telling_;  // held while an event is told
  // Guarded by telling_: the watching thread had the last word. CLOSED does not say so: after a failure
  // that the transport's thread told, on_left() follows.
  bool silent_ = false;

  Mutex mutex_;
  CondVar asked_, expected_, ended_;
  std::byte* staging_ STARLING_GUARDED_BY(mutex_) = nullptr;
  TransportState state_ STARLING_GUARDED_BY(mutex_);
  std::optional<Round> round_ STARLING_GUARDED_BY(mutex_);  // asked for, and not begun
  Clock::time_point end_by_ STARLING_GUARDED_BY(mutex_) = kEndless;
  bool released_ STARLING_GUARDED_BY(mutex_) = false;  // by the owner, in any state
};

void Attempt::run() {
  if (auto served = serve(); !served) fail(std::move(served).error());
  end();
  turns_.give_back(ticket_);
  const MutexLock lock(mutex_);
  state_.enter(Life::kOver);
  ended_.notify_all();
}

bool Attempt::wait_for_end() {
  MutexLock lock(mutex_);
  while (!state_.over() && !state_.stuck()) ended_.wait(mutex_);
  return state_.over();
}

Result<> Attempt::serve() {
  if (!turns_.wait_to_make(ticket_, connect_until_, doomed_))
    return turned_away("NCCL: the transports before did not end within " +
                       in_ms(options_.connect_ms));
  if (options_.enter_thread) options_.enter_thread();
  enter(Life::kCreating, connect_until_);
  watcher_ = std::thread([self = shared_from_this()] {
    name_thread("nccl-watch");
    self->watch();
  });
  STARLING_TRY(create());
  enter(Life::kCreated, kEndless);
  if (!turns_.wait_to_use(ticket_, doomed_)) return turned_away(kGivenUp);
  if (options_.keep_memory) keeping_ = options_.keep_memory();
  connect_until_ = Clock::now() + milliseconds(options_.connect_ms);
  enter(Life::kWarming, connect_until_);
  STARLING_TRY(allocate());
  STARLING_TRY(warm_up());
  {
    const MutexLock lock(mutex_);
    staging_ = memory_.get();
    state_.ready();
  }
  tell(events_.on_ready);
  for (;;) {
    expect_end(kEndless);
    STARLING_TRY(round, next_round());
    const auto until = Clock::now() + milliseconds(options_.round_ms);
    expect_end(until);
    STARLING_TRY(perform(round, until, "a round took longer than " + in_ms(options_.round_ms)));
    // The watching thread sees the round's end and that it was told, or neither.
    const std::lock_guard telling(telling_);
    {
      const MutexLock lock(mutex_);
      state_.end_round();
    }
    tell(events_.on_round, Result<>(ok()));
  }
}

Error Attempt::turned_away(const std::string& otherwise) const {
  const std::string closed = turns_.closed();
  return {Code::kUnavailable, closed.empty() ? otherwise : closed};
}

Result<> Attempt::allocate() {
  // The warm-up's blocks lie behind the owner's, so that these are zeros when the transport is ready.
  const std::size_t bytes = rounded_up(options_.staging_bytes) + 2 * options_.world * kWarmBytes;
  try {
    memory_ = options_.allocate(bytes);
  } catch (const std::bad_alloc&) {
    return Error(Code::kUnavailable,
                 "NCCL: the device has no " + std::to_string(bytes) + " bytes left");
  }
  return ok();
}

Result<> Attempt::create() {
  if (options_.id.size() != abi::kIdBytes)
    return Error(Code::kCorrupt, "NCCL: an id of " + std::to_string(options_.id.size()) + " bytes");
  STARLING_TRY(communicator_.begin(options_.id, options_.self, options_.world));
  return poll(connect_until_,
              "NCCL: no communicator of " + std::to_string(options_.world) + " within " +
                  in_ms(options_.connect_ms),
              [this] { return communicator_.settled(); });
}

// Every way that rounds will take is made, and seen to carry what was sent.
Result<> Attempt::warm_up() {
  std::byte* const out = memory_.get() + rounded_up(options_.staging_bytes);
  std::byte* const in = out + options_.world * kWarmBytes;
  Round round;
  for (Rank peer = 0; peer < options_.world; ++peer) {
    if (peer == options_.self) continue;
    options_.copy_in(out + peer * kWarmBytes, warm_block(options_.id, options_.self, peer));
    round.sends.push_back({peer, out + peer * kWarmBytes, kWarmBytes});
    round.receives.push_back({peer, in + peer * kWarmBytes, kWarmBytes});
  }
  STARLING_TRY(
      perform(round, connect_until_,
              "NCCL: the first exchange was not over within " + in_ms(options_.connect_ms)));
  for (const Transfer& t : round.receives) {
    Bytes block(kWarmBytes);
    options_.copy_out(block, t.at);
    if (block != warm_block(options_.id, t.peer, options_.self))
      return Error(Code::kCorrupt, "NCCL: the first block of rank " + std::to_string(t.peer) +
                                       " is not what that rank sent");
  }
  return ok();
}

Result<Attempt::Round> Attempt::next_round() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const auto until = Clock::now() + kQuietPoll;
      while (!round_ && !doomed_ && asked_.wait_until(mutex_, until)) continue;
      if (doomed_) return Error(Code::kStale, kGivenUp);
      if (round_) return *std::exchange(round_, std::nullopt);
    }
    STARLING_TRY(communicator_.settled());
  }
}

Result<> Attempt::perform(const Round& round, Clock::time_point until, const std::string& what) {
  if (round.sends.empty() && round.receives.empty()) return ok();
  STARLING_TRY(communicator_.launch(round.sends, round.receives, options_.stream->native()));
  // Ask NCCL before the stream: during a launch the kernel may not be in the stream yet.
  STARLING_TRY(poll(until, what, [this] { return communicator_.settled(); }));
  const auto done = [this]() -> Result<bool> {
    const bool idle = options_.stream->idle();
    // Ask NCCL after the stream: a kernel that was stopped ends like any other.
    STARLING_TRY(settled, communicator_.settled());
    return idle && settled;
  };
  return poll(until, what, done);
}

void Attempt::end() {
  enter(Life::kRevoking, Clock::now());
  turns_.ends(ticket_);
  leave();
  {
    MutexLock lock(mutex_);
    if (state_.stuck()) {
      lock.unlock();
      stay();
    }
    state_.enter(Life::kGone);
    expected_.notify_all();
    while (!released_) asked_.wait(mutex_);
  }
  if (watcher_.joinable()) watcher_.join();
  // Free what others gave back meanwhile, then the staging memory: CUDA frees when all kernels have
  // ended, and those of the next transport may not.
  keeping_.reset();
  memory_.reset();
  // Give back what the owner lent, as the transport may live longer.
  options_.stream.reset();
  options_.allocate = nullptr;
  options_.copy_in = nullptr;
  options_.copy_out = nullptr;
  options_.enter_thread = nullptr;
  options_.keep_memory = nullptr;
  options_.others_left.reset();
  events_ = {};
}

void Attempt::leave() {
  const auto begun = Clock::now();
  const bool revoked = communicator_.revoke();
  const auto left = Clock::now();
  {
    const std::lock_guard lock(telling_);
    if (!silent_ && events_.on_left) events_.on_left(revoked);
  }
  if (options_.others_left && communicator_.stood()) {
    enter(Life::kAtGate, kEndless);
    options_.others_left->wait_until(left + milliseconds(options_.leave_ms));
  }
  const auto aborting = Clock::now();
  enter(Life::kAborting, aborting);
  const bool there = communicator_.abort();
  if (there && shared_->calls.on_end) shared_->calls.on_end(left - begun, Clock::now() - aborting);
}

template <class Done>
Result<> Attempt::poll(Clock::time_point until, const std::string& what, Done done) {
  const auto since = Clock::now();
  for (;;) {
    if (doomed_) return Error(Code::kStale, kGivenUp);
    STARLING_TRY(is_done, done());
    if (is_done) return ok();
    const auto now = Clock::now();
    if (now >= until) return Error(Code::kPeerLost, what);
    std::this_thread::sleep_for(pause_after(now - since));
  }
}

template <class... Told, class... What>
void Attempt::tell(const std::function<void(Told...)>& event, What&&... what) {
  const std::lock_guard lock(telling_);
  if (!doomed_ && !silent_) event(std::forward<What>(what)...);
}

// The first call alone tells: the transport's thread and the watching thread may both come here.
void Attempt::fail(Error why) {
  const std::lock_guard lock(telling_);
  Use before;
  {
    const MutexLock state(mutex_);
    before = state_.close();
  }
  if (before == Use::kInUse) tell(events_.on_round, Result<>(Error(why.code(), why.text())));
  if (before != Use::kClosed) tell(events_.on_failed, std::move(why));
}

void Attempt::doom() {
  {
    const MutexLock lock(mutex_);
    doomed_ = true;
    if (!state_.ending()) end_by_ = std::min(end_by_, Clock::now());
    asked_.notify_all();
    expected_.notify_all();
  }
  turns_.ends(ticket_);
  const std::lock_guard told(telling_);
}

void Attempt::release() {
  doom();
  const MutexLock lock(mutex_);
  released_ = true;
  asked_.notify_all();
}

void Attempt::expect_end(Clock::time_point by) {
  const MutexLock lock(mutex_);
  end_by_ = doomed_ && !state_.ending() ? std::min(end_by_, by) : by;
  expected_.notify_all();
}

void Attempt::enter(Life next, Clock::time_point end_by) {
  {
    const MutexLock lock(mutex_);
    state_.enter(next);
  }
  expect_end(end_by);
}

void Attempt::watch() {
  MutexLock lock(mutex_);
  const milliseconds allowed(options_.end_ms);
  while (!state_.gone()) {
    if (end_by_ == kEndless) {
      expected_.wait(mutex_);
    } else if (Clock::now() < end_by_ + allowed) {
      expected_.wait_until(mutex_, end_by_ + allowed);
    } else {
      break;
    }
  }
  if (state_.gone()) return;
  state_.enter(Life::kStuck);
  ended_.notify_all();
  lock.unlock();
  get_stuck();
}

// Closes the library and touches nothing of the transport, as the transport's thread may be at work
// on it. Tells the owner the events that the transport's thread did not tell.
void Attempt::get_stuck() {
  const std::string why = "NCCL: a communicator has not ended within " + in_ms(options_.end_ms) +
                          ", so this process has no device transport any more";
  turns_.close(why);
  {
    const std::lock_guard lock(telling_);
    fail({Code::kPeerLost, why});
    silent_ = true;
  }
  if (shared_->calls.on_stuck) shared_->calls.on_stuck(why, self_);
}

// The thread stays for ever: the device may be gone by the time that a library which hung returns,
// so nothing that it holds is given back.
void Attempt::stay() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

std::byte* Attempt::staging() {
  const MutexLock lock(mutex_);
  return staging_;
}

void Attempt::exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) {
  const auto check = [this](std::vector<Transfer>& transfers) {
    std::erase_if(transfers, [](const Transfer& t) { return t.bytes == 0; });
    for (const Transfer& t : transfers) {
      STARLING_CHECK(t.peer < options_.world);
      STARLING_CHECK(t.peer != options_.self);
    }
  };
  check(sends);
  check(receives);
  const MutexLock lock(mutex_);
  if (doomed_ || state_.closed()) return;
  state_.begin_round();
  for (const Transfer& t : receives) {
    const auto offset = static_cast<std::size_t>(t.at - staging_);
    STARLING_CHECK(offset <= options_.staging_bytes);
    STARLING_CHECK(t.bytes <= options_.staging_bytes - offset);
  }
  round_ = Round{std::move(sends), std::move(receives)};
  asked_.notify_all();
}

Path::~Path() {
  attempt_->release();
}

std::byte* Path::staging() {
  return attempt_->staging();
}

void Path::exchange(std::vector<Transfer> sends, std::vector<Transfer> receives) {
  attempt_->exchange(std::move(sends), std::move(receives));
}

void Path::doom() {
  attempt_->doom();
}

TransportThread::TransportThread(std::shared_ptr<Shared> shared, TransportOptions options,
                                 TransportEvents events)
    : attempt_(std::make_shared<Attempt>(std::move(shared), std::move(options), std::move(events))),
      thread_([attempt = attempt_] {
        name_thread("nccl");
        attempt->run();
      }) {}

TransportThread::~TransportThread() {
  if (!thread_.joinable()) return;
  if (attempt_->wait_for_end())
    thread_.join();
  else
    thread_.detach();
}

std::unique_ptr<DeviceTransport> TransportThread::transport() const {
  return std::make_unique<Path>(attempt_);
}

bool TransportThread::over() const {
  return attempt_->over();
}

}  // namespace starling::collectives::nccl
