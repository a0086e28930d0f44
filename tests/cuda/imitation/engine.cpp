#include "tests/cuda/imitation/engine.h"

#include <array>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/cuda/imitation/fibers.h"
#include "tests/cuda/imitation/order.h"
#include "tests/cuda/imitation/records.h"
#include "tests/cuda/imitation/tensor.h"

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

namespace starling::imitation {

thread_local unsigned char* dynamic_shared = nullptr;
thread_local std::size_t dynamic_shared_bytes = 0;

namespace {

constexpr unsigned kLanes = 32, kThreadsMax = 1024, kWarpsMax = kThreadsMax / kLanes;
constexpr int kPattern = 0xa5;
// Threads that never wait take turns on so many fibers, so that a race between any of that many neighbours
// is one of two fibers.
constexpr unsigned kFibersMin = kRaces ? kLanes + 1 : 0;

// Of publish() and learn(), for what is done again and again. Two take turns: when one is used again, all
// have left the last operation but one.
struct Tags {
  char arrived, left[2];
  unsigned turn = 0;
};

struct Warp {
  std::uint32_t lanes = 0;         // that exist
  std::uint32_t runnable = 0;      // that may run; not the one that does
  std::uint32_t started = 0;       // that have a fiber, or had one
  std::uint32_t at_operation = 0;  // that wait in meet_in_warp()
  std::uint32_t at_barrier = 0;    // that wait in meet_in_block()
  std::uint32_t done = 0;
  std::uint32_t awaited = 0;  // in the masks of the lanes that wait there
  // Of the lanes at an operation.
  std::array<void*, kLanes> slots;
  std::array<const Operation*, kLanes> operations;
  std::array<std::uint32_t, kLanes> masks;
  std::array<Tags, kLanes> tags;     // of masks that begin with that lane
  std::array<void*, kLanes> learns;  // the tag of the operation that a lane leaves
};

// Copies of one thread that were asked for and not waited for.
struct Copies {
  std::vector<LateCopy> copies;
  std::vector<std::size_t> ends;  // of closed groups, in copies
};

// One per thread of the operating system: what its launch is doing.
class Engine {
 public:
  void run(const Grid& grid);
  bool running() const { return grid_ != nullptr; }
  void meet_in_warp(const Operation& operation, std::uint32_t mask, void* slot);
  void meet_in_block();
  unsigned lane() const { return current_ % kLanes; }
  Copies& copies() { return copies_[current_]; }
  void make_copies(Copies& copies, std::size_t groups);
  [[noreturn]] void fail(const char* what);
  [[noreturn]] void fail_waiting();

 private:
  enum class Next { kFresh, kWaiting, kEnd };

  void begin_grid();
  void begin_block();
  static void body(void* engine);
  void run_threads();
  void finish_thread();
  void suspend();
  Next choose();
  static void let_learn(Warp& warp, std::uint32_t mask, Tags& tags);
  static unsigned odd_lane(const Warp& warp, unsigned lane, std::uint32_t lanes);
  static void check_lanes(const Warp& warp, unsigned lane);
  void release_barrier();
  void make_runnable(unsigned warp, std::uint32_t lanes);
  Fiber& take_fiber();
  void make_fiber();

  const Grid* grid_ = nullptr;
  GridOrder blocks_;
  ThreadOrder threads_;
  std::unique_ptr<unsigned char[]> shared_;

  unsigned current_ = 0;  // thread that runs
  unsigned count_ = 0, warps_count_ = 0;
  std::uint32_t ready_ = 0;  // warps with runnable lanes
  unsigned done_ = 0, at_barrier_ = 0;
  Tags barrier_, block_;
  std::array<Warp, kWarpsMax> warps_;
  std::array<Fiber*, kThreadsMax> waiting_;  // on which a thread waits
  std::array<uint3, kThreadsMax> indices_;
  dim3 indices_of_{0, 0, 0};  // the block for which they were made
  std::array<Copies, kThreadsMax> copies_;

  Fiber own_;  // of who asked for the launch
  Fiber* fiber_ = &own_;
  // Idle ones lie between two counters, in a ring.
  std::array<std::unique_ptr<Fiber>, kThreadsMax + kFibersMin> fibers_;
  std::array<Fiber*, 2 * kThreadsMax> idle_;
  unsigned fibers_count_ = 0, idle_begin_ = 0, idle_end_ = 0;
};

Engine& engine() {
  static constinit thread_local Engine* current = nullptr;
  if (current == nullptr) {
    static thread_local std::unique_ptr<Engine> owner;
    owner = std::make_unique<Engine>();
    current = owner.get();
  }
  return *current;
}

void Engine::run(const Grid& grid) {
  grid_ = &grid;
  begin_grid();
  // What a fiber did is no race with one that it makes, so none is made later.
  while (kRaces && fibers_count_ < count_ + kFibersMin) make_fiber();
  begin_block();
  choose();
  fiber_ = &take_fiber();
  own_.switch_to(*fiber_);
  learn(&block_.arrived);
  shared_.reset();
  dynamic_shared = nullptr;
  dynamic_shared_bytes = 0;
  grid_ = nullptr;
}

void Engine::begin_grid() {
  const dim3 threads = grid_->threads;
  count_ = threads.x * threads.y * threads.z;
  warps_count_ = (count_ + kLanes - 1) / kLanes;
  if (indices_of_.x != threads.x || indices_of_.y != threads.y || indices_of_.z != threads.z) {
    indices_of_ = threads;
    for (unsigned i = 0; i < count_; ++i)
      indices_[i] = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
  }
  blockDim = threads;
  gridDim = grid_->blocks;
  // On the heap and of that size, so that a sanitizer sees what lies outside.
  shared_.reset(grid_->shared == 0 ? nullptr : new unsigned char[grid_->shared]);
  dynamic_shared = shared_.get();
  dynamic_shared_bytes = grid_->shared;
  const auto [order, seed] = current_order();
  const std::uint64_t blocks = std::uint64_t{grid_->blocks.x} * grid_->blocks.y * grid_->blocks.z;
  blocks_ = GridOrder(order, seed, blocks);
  threads_ = ThreadOrder(order, seed);
}

void Engine::begin_block() {
  learn(&block_.arrived);
  const std::uint64_t block = blocks_.next();
  const dim3 blocks = grid_->blocks;
  blockIdx = {static_cast<unsigned>(block % blocks.x),
              static_cast<unsigned>(block / blocks.x % blocks.y),
              static_cast<unsigned>(block / blocks.x / blocks.y)};
  if (grid_->shared != 0) std::memset(dynamic_shared, kPattern, grid_->shared);
  done_ = at_barrier_ = 0;
  for (unsigned w = 0; w < warps_count_; ++w) {
    Warp& warp = warps_[w];
    const unsigned left = count_ - w * kLanes;
    warp.lanes = left >= kLanes ? ~0u : (1u << left) - 1;
    warp.runnable = warp.lanes;
    warp.started = warp.at_operation = warp.at_barrier = warp.done = warp.awaited = 0;
  }
  ready_ = warps_count_ == kWarpsMax ? ~0u : (1u << warps_count_) - 1;
  current_ = threads_.first_warp(warps_count_) * kLanes;
  publish(&block_.left[0]);
}

void Engine::body(void* self) {
  static_cast<Engine*>(self)->run_threads();
}

// A fiber's life: one thread after another that has not begun. When none is left, a waiting one goes on
// and this fiber idles until it is taken again.
void Engine::run_threads() {
  for (;;) {
    Next next;
    do {
      Warp& warp = warps_[current_ / kLanes];
      warp.started |= 1u << (current_ % kLanes);
      learn(&block_.left[0]);
      grid_->run(grid_->arguments);
      finish_thread();
      if (done_ == count_ && !blocks_.at_end()) begin_block();
      next = choose();
    } while (next == Next::kFresh && !kRaces);
    Fiber& self = *fiber_;
    idle_[idle_end_++ % idle_.size()] = &self;
    fiber_ = next == Next::kEnd ? &own_ : next == Next::kFresh ? &take_fiber() : waiting_[current_];
    self.switch_to(*fiber_);
  }
}

void Engine::finish_thread() {
  Warp& warp = warps_[current_ / kLanes];
  const std::uint32_t bit = 1u << (current_ % kLanes);
  if ((warp.awaited & bit) != 0) fail("returns while lanes of its warp wait for it");
  if (Copies& left = copies(); !left.copies.empty() || !left.ends.empty()) {
    close_copies();
    finish_copies(0);
  }
  publish(&block_.arrived);
  warp.done |= bit;
  ++done_;
  if (at_barrier_ != 0 && at_barrier_ + done_ == count_) release_barrier();
}

// The thread that runs waits until somebody has made it runnable and chooses it.
void Engine::suspend() {
  const unsigned self = current_;
  Fiber& fiber = *fiber_;
  waiting_[self] = &fiber;
  switch (choose()) {
    case Next::kFresh:
      fiber_ = &take_fiber();
      break;
    case Next::kWaiting:
      if (current_ == self) return;
      fiber_ = waiting_[current_];
      break;
    case Next::kEnd:
      fail("is left alone");  // never: this thread has not returned
  }
  fiber.switch_to(*fiber_);
}

// Makes a runnable thread the current one.
Engine::Next Engine::choose() {
  if (ready_ == 0) {
    if (done_ == count_) return Next::kEnd;
    fail_waiting();
  }
  const unsigned w = threads_.warp(current_ / kLanes, ready_);
  Warp& warp = warps_[w];
  const unsigned lane = threads_.lane(warp.runnable);
  warp.runnable &= ~(1u << lane);
  if (warp.runnable == 0) ready_ &= ~(1u << w);
  current_ = w * kLanes + lane;
  threadIdx = indices_[current_];
  return (warp.started >> lane & 1) != 0 ? Next::kWaiting : Next::kFresh;
}

void Engine::meet_in_warp(const Operation& operation, std::uint32_t mask, void* slot) {
  const unsigned w = current_ / kLanes, lane = current_ % kLanes;
  Warp& warp = warps_[w];
  const std::uint32_t bit = 1u << lane, others = mask & ~bit;
  warp.slots[lane] = slot;
  warp.operations[lane] = &operation;
  warp.masks[lane] = mask;
  check_lanes(warp, lane);
  Tags& tags = warp.tags[static_cast<unsigned>(std::countr_zero(mask))];
  if (operation.orders_memory) publish(&tags.arrived);
  if ((warp.at_operation & others) == others && odd_lane(warp, lane, others) == kLanes) {
    ignore_races(true);
    operation.complete(warp.slots.data(), mask);
    ignore_races(false);
    if (operation.orders_memory) let_learn(warp, mask, tags);
    warp.at_operation &= ~mask;
    warp.awaited = 0;
    for (std::uint32_t left = warp.at_operation; left != 0; left &= left - 1)
      warp.awaited |= warp.masks[static_cast<unsigned>(std::countr_zero(left))];
    if (!threads_.shuffled()) {  // this lane goes on at once, which is one way of many
      make_runnable(w, others);
      return;
    }
    make_runnable(w, mask);
  } else {
    warp.at_operation |= bit;
    warp.awaited |= mask;
  }
  suspend();
  if (operation.orders_memory) learn(warp.learns[lane]);
}

void Engine::let_learn(Warp& warp, std::uint32_t mask, Tags& tags) {
  if (!kRaces) return;
  learn(&tags.arrived);
  char* const left = &tags.left[tags.turn++ % 2];
  publish(left);
  for (; mask != 0; mask &= mask - 1)
    warp.learns[static_cast<unsigned>(std::countr_zero(mask))] = left;
}

// The first of the lanes that waits for something else than `lane` comes for; kLanes if none does.
unsigned Engine::odd_lane(const Warp& warp, unsigned lane, std::uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto other = static_cast<unsigned>(std::countr_zero(lanes));
    if (warp.masks[other] != warp.masks[lane] || warp.operations[other] != warp.operations[lane])
      return other;
  }
  return kLanes;
}

// What can never be right, at once; the rest is seen when nothing can run. Lanes of the mask may be at
// another operation, as long as that one does not wait for this lane.
void Engine::check_lanes(const Warp& warp, unsigned lane) {
  const std::uint32_t mask = warp.masks[lane], bit = 1u << lane;
  const char* const name = warp.operations[lane]->name;
  if ((mask & bit) == 0) imitation::fail("%s: mask 0x%08x without the lane itself", name, mask);
  if (const std::uint32_t gone = mask & (warp.done | ~warp.lanes | warp.at_barrier); gone != 0)
    imitation::fail("%s: lanes 0x%08x of mask 0x%08x %s", name, gone, mask,
                    (gone & warp.done) != 0         ? "have returned"
                    : (gone & warp.at_barrier) != 0 ? "are at a barrier of the block"
                                                    : "are not in the block");
  if ((warp.awaited & bit) == 0) return;  // nobody waits for this lane yet
  // One of those who are there stands for all, mostly; for the others, see above.
  std::uint32_t there = mask & warp.at_operation & ~bit;
  if (odd_lane(warp, lane, there & (~there + 1)) == kLanes) return;
  for (;; there &= there - 1) {
    const unsigned other = odd_lane(warp, lane, there);
    if (other == kLanes) return;
    if ((warp.masks[other] & bit) != 0)
      imitation::fail("%s with mask 0x%08x, but lane %u is at %s with mask 0x%08x", name, mask,
                      other, warp.operations[other]->name, warp.masks[other]);
    there &= ~0u << other;
  }
}

void Engine::meet_in_block() {
  Warp& warp = warps_[current_ / kLanes];
  const std::uint32_t bit = 1u << (current_ % kLanes);
  if ((warp.awaited & bit) != 0)
    fail("is at a barrier of the block while lanes of its warp wait for it");
  warp.at_barrier |= bit;
  ++at_barrier_;
  char* const tag = &barrier_.left[barrier_.turn % 2];
  publish(tag);
  if (at_barrier_ + done_ == count_) release_barrier();
  suspend();
  learn(tag);
}

void Engine::release_barrier() {
  for (unsigned w = 0; w < warps_count_; ++w) {
    make_runnable(w, warps_[w].at_barrier);
    warps_[w].at_barrier = 0;
  }
  at_barrier_ = 0;
  ++barrier_.turn;
}

void Engine::make_runnable(unsigned warp, std::uint32_t lanes) {
  if (lanes == 0) return;
  warps_[warp].runnable |= lanes;
  ready_ |= 1u << warp;
}

Fiber& Engine::take_fiber() {
  if (idle_begin_ == idle_end_) make_fiber();
  // The latest is the warmest; where races are looked for, a thread shall have another one than those
  // before it.
  return *idle_[(kRaces ? idle_begin_++ : --idle_end_) % idle_.size()];
}

void Engine::make_fiber() {
  auto& made = fibers_[fibers_count_];
  made = std::make_unique<Fiber>(&Engine::body, this, fibers_count_++);
  idle_[idle_end_++ % idle_.size()] = made.get();
}

void Engine::make_copies(Copies& copies, std::size_t groups) {
  const std::size_t end = copies.ends[groups - 1];
  for (std::size_t i = 0; i < end; ++i) make_copy(copies.copies[i]);
  copies.copies.erase(copies.copies.begin(), copies.copies.begin() + static_cast<long>(end));
  copies.ends.erase(copies.ends.begin(), copies.ends.begin() + static_cast<long>(groups));
  for (std::size_t& later : copies.ends) later -= end;
}

// Nothing of the block can run.
void Engine::fail_waiting() {
  for (unsigned w = 0; w < warps_count_; ++w) {
    const Warp& warp = warps_[w];
    if (warp.at_operation == 0) continue;
    const auto lane = static_cast<unsigned>(std::countr_zero(warp.at_operation));
    threadIdx = indices_[w * kLanes + lane];
    imitation::fail("waits forever at %s with mask 0x%08x: not all of its lanes come",
                    warp.operations[lane]->name, warp.masks[lane]);
  }
  fail("waits forever");
}

void Engine::fail(const char* what) {
  const std::string kernel = grid_ == nullptr ? "none" : kernel_name(grid_->kernel);
  std::fprintf(stderr, "imitated CUDA: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n",
               kernel.c_str(), blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
               threadIdx.z, what);
  std::abort();
}

}  // namespace

void run_grid(const Grid& grid) {
  engine().run(grid);
}

void meet_in_warp(const Operation& operation, std::uint32_t mask, void* slot) {
  engine().meet_in_warp(operation, mask, slot);
}

void meet_in_block() {
  engine().meet_in_block();
}

bool finds_races() {
  return kRaces;
}

bool in_kernel() {
  return engine().running();
}

unsigned lane() {
  return engine().lane();
}

void copy_later(const LateCopy& copy) {
  engine().copies().copies.push_back(copy);
}

void close_copies() {
  Copies& copies = engine().copies();
  copies.ends.push_back(copies.copies.size());
}

void finish_copies(int left) {
  Copies& copies = engine().copies();
  const auto keep = static_cast<std::size_t>(left);
  if (copies.ends.size() > keep) engine().make_copies(copies, copies.ends.size() - keep);
}

void fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  engine().fail(text);
}

}  // namespace starling::imitation
