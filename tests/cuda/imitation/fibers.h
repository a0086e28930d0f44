#pragma once
// Fibers over Boost.Context's assembly, with what the sanitizers have to be told. What includes this is
// compiled without -fsanitize=thread, and with STARLING_RACES where the rest has it (CMakeLists.txt): the
// thread sanitizer shall follow kernels alone, not how they are run.

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

#if defined(__SANITIZE_THREAD__)
#error "this has to be compiled with -fno-sanitize=thread -DSTARLING_RACES"
#endif
#if defined(STARLING_RACES)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace starling::imitation {

// What a fiber wrote before publish() is no race with what another one does after learn() of the same tag.
// Switching alone orders nothing.
#if defined(STARLING_RACES)
inline constexpr bool kRaces = true;
inline void publish(void* tag) {
  __tsan_release(tag);
}
inline void learn(void* tag) {
  __tsan_acquire(tag);
}
// Memory accesses in between are not those of kernels.
inline void ignore_races(bool on) {
  (on ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
  (on ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
}
#else
inline constexpr bool kRaces = false;
inline void publish(void*) {}
inline void learn(void*) {}
inline void ignore_races(bool) {}
#endif

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
