#include "tests/cuda/imitation/hidden.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/cuda/imitation/imitation.h"
#include "tests/cuda/imitation/order.h"

namespace starling::imitation {
namespace {

constexpr std::size_t kRange = std::size_t{1} << 38, kPage = 4096;

struct Hidden {
  std::mutex mutex;
  std::byte* range = nullptr;  // [kRange], reserved when the first piece is taken
  std::atomic<std::size_t> used = 0;
  unsigned at_work = 0;
  std::atomic<View> view =
      second_chosen("STARLING_IMITATION_MEMORY", "open", "hidden") ? View::kHidden : View::kOpen;
};
Hidden& hidden() {
  static auto* const hidden = new Hidden;
  return *hidden;
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void protect(std::byte* at, std::size_t bytes, int protection) {
  if (bytes == 0 || mprotect(at, bytes, protection) == 0) return;
  std::perror("imitated CUDA: hidden memory");
  std::abort();
}

// Everybody or nobody can read. Requires the mutex.
void show(bool open) {
  protect(hidden().range, hidden().used, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace

View set_view(View view) {
  return hidden().view.exchange(view);
}

bool hides() {
  return hidden().view == View::kHidden;
}

void* take_hidden(std::size_t bytes) {
  Hidden& all = hidden();
  const std::lock_guard guard(all.mutex);
  if (all.range == nullptr) {
    void* const range =
        mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return nullptr;
    all.range = static_cast<std::byte*>(range);
  }
  if (whole_pages(bytes) > kRange - all.used) return nullptr;
  std::byte* const at = all.range + all.used;
  all.used += whole_pages(bytes);
  if (all.at_work != 0) protect(at, whole_pages(bytes), PROT_READ | PROT_WRITE);
  return at;
}

void give_back_hidden(void* at, std::size_t bytes) {
  madvise(at, whole_pages(bytes), MADV_DONTNEED);
}

AtWork::AtWork() : counted_(hidden().used != 0) {
  if (!counted_) return;
  const std::lock_guard guard(hidden().mutex);
  if (hidden().at_work++ == 0) show(true);
}

AtWork::~AtWork() {
  if (!counted_) return;
  const std::lock_guard guard(hidden().mutex);
  if (--hidden().at_work == 0) show(false);
}

}  // namespace starling::imitation
