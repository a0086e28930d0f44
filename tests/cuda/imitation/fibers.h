#pragma once
// Fibers over Boost.Context's assembly, with what the sanitizers have to be told.

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace starling::imitation {

// A stack with a guard page below it, and where it goes on. Threads: one, that which made it.
class Fiber {
 public:
  Fiber() = default;  // the calling thread's own stack
  // body(argument) never returns. index: chooses where the stack begins within its first pages, so that
  // the stacks of many fibers do not lie over each other in the processor's caches.
  Fiber(void (*body)(void*), void* argument, std::size_t index);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Leaves this fiber, which runs, for another, which does not; returns when another comes back.
  void switch_to(Fiber& other);

 private:
  static void enter(boost::context::detail::transfer_t from);
  void arrived(boost::context::detail::transfer_t from);

  boost::context::detail::fcontext_t context_ = nullptr;  // while it does not run
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::byte* memory_ = nullptr;  // with the guard
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;      // above bottom_
  Fiber* next_ = nullptr;      // the one for which it was left
  void* sanitizer_ = nullptr;  // what it calls this fiber
};

}  // namespace starling::imitation
