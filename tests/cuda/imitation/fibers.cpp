#include "tests/cuda/imitation/fibers.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace starling::imitation {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t kPage = 4096;
#if defined(__SANITIZE_ADDRESS__) || defined(STARLING_RACES)
constexpr std::size_t kStack = 256 * 1024;  // frames are a few times as large
#else
constexpr std::size_t kStack = 64 * 1024;
#endif
constexpr std::size_t kColours = 64, kColourBytes = 192;

// What was mapped at an address before may have been a stack, too, whose frames were never left.
void forget_frames([[maybe_unused]] void* stack) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, kPage + kStack);
#endif
}

}  // namespace

Fiber::Fiber(void (*body)(void*), void* argument, std::size_t index)
    : body_(body), argument_(argument) {
  void* at = mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED || mprotect(at, kPage, PROT_NONE) != 0) {
    std::perror("starling imitation: a fiber's stack");
    std::abort();
  }
  memory_ = static_cast<std::byte*>(at);
  forget_frames(memory_);
  bytes_ = kStack - (index % kColours) * kColourBytes;
  bottom_ = memory_ + kPage;
  context_ = context::make_fcontext(memory_ + kPage + bytes_, bytes_, &Fiber::enter);
#if defined(STARLING_RACES)
  sanitizer_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(STARLING_RACES)
  if (memory_ != nullptr) __tsan_destroy_fiber(sanitizer_);
#endif
  if (memory_ == nullptr) return;
  forget_frames(memory_);
  munmap(memory_, kPage + kStack);
}

void Fiber::switch_to(Fiber& other) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&sanitizer_, other.bottom_, other.bytes_);
#elif defined(STARLING_RACES)
  if (memory_ == nullptr) sanitizer_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(other.sanitizer_, __tsan_switch_to_fiber_no_sync);
#endif
  next_ = &other;
  arrived(context::jump_fcontext(other.context_, this));
}

void Fiber::enter(context::transfer_t from) {
  Fiber* const self = static_cast<Fiber*>(from.data)->next_;
  self->arrived(from);
  self->body_(self->argument_);
  std::abort();
}

void Fiber::arrived(context::transfer_t from) {
  Fiber* const left = static_cast<Fiber*>(from.data);
  left->context_ = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  // The bounds of a thread's own stack are learnt here, when a fiber was entered from it.
  __sanitizer_finish_switch_fiber(sanitizer_, &left->bottom_, &left->bytes_);
#endif
}

}  // namespace starling::imitation
