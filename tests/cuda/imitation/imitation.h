#pragma once
// What tests can ask of the imitation: in which order threads and blocks run, and what ran.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace starling::imitation {

// Of threads within a block, and of blocks within a grid. A kernel whose result depends on it lacks a
// barrier, or lets blocks wait for each other.
enum class Order : std::uint8_t { kAscending, kDescending, kShuffled };

// Of launches that begin from now on, by any thread. At first it is that of the environment variable
// STARLING_IMITATION_ORDER: ascending, descending or shuffled:SEED; ascending if it is not set.
void set_order(Order order, std::uint64_t seed = 0);

// Keeps an order for a scope.
class OrderScope {
 public:
  explicit OrderScope(Order order, std::uint64_t seed = 0);
  ~OrderScope();
  OrderScope(const OrderScope&) = delete;
  OrderScope& operator=(const OrderScope&) = delete;

 private:
  const Order before_;
  const std::uint64_t seed_before_;
};

// When a stream's work is done: as soon as it is asked for, or only when something waits for it (a
// stream, an event, a query, a copy to memory that is not pinned). What is right with CUDA is right with
// both; who reads a result without waiting for it has the old bytes with kLate. To be set while no stream
// has work. At first it is that of STARLING_IMITATION_WORK: at_once (also if it is not set) or late.
enum class Work : std::uint8_t { kAtOnce, kLate };
Work set_work(Work work);  // returns what it was

// Whether the host can follow addresses of the device's memory, as it cannot with CUDA: hidden memory ends
// with a segmentation fault who reads or writes it outside kernels, copies and sets. Of memory that is
// taken from now on. A sanitizer does not see what a kernel writes beside hidden memory. At first it is that
// of STARLING_IMITATION_MEMORY: open (also if it is not set) or hidden.
enum class View : std::uint8_t { kOpen, kHidden };
View set_view(View view);  // returns what it was

// How many bytes the device has; 0, as at first: as many as the machine.
void set_memory(std::size_t bytes);

// The device works as long as one of these is there, in any thread: hidden memory can be followed. For what
// stands for a library of the device's; launches, copies and sets have their own.
class AtWork {
 public:
  AtWork();
  ~AtWork();
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  const bool counted_;  // there was hidden memory
};

// Whether accesses of two threads of a block to one address, without a barrier in between, are reported:
// where everything is compiled with -fsanitize=thread.
bool finds_races();

struct Launches {
  std::string kernel;  // as it is declared; its address where the program has no symbols
  std::uint64_t launches = 0, blocks = 0, threads = 0;
};
// Since the beginning or the last clear_launches(), by name. Threads: any.
std::vector<Launches> launches();
void clear_launches();
// The same, a line each, and a head.
std::string launches_table();

}  // namespace starling::imitation
