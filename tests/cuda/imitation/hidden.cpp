#include "tests/cuda/imitation/hidden.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/cuda/imitation/imitation.h"
#include "tests/cuda/imitation/order.h"

namespace starling::imitation {
namespace {

constexpr std::size_t kRange = std::size_t{1} << 38, kPage = 4096;

struct Hidden {
  std::mutex mutex;
  std::byte* range = nullptr;                   // [kRange], reserved when the first piece is taken
  std::atomic<std::size_t> used = 0;            // of the range, from its beginning
  std::map<std::byte*, std::size_t> taken;      // pieces in use, to their bytes
  std::multimap<std::size_t, std::byte*> free;  // the others, by bytes
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

void protect(std::byte* at, std::size_t bytes, bool open) {
  if (bytes == 0 || mprotect(at, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0) return;
  std::perror("imitated CUDA: hidden memory");
  std::abort();
}

// All pieces in use; neighbours with one call. Requires the mutex.
void show(bool open) {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  for (const auto& [at, size] : hidden().taken) {
    if (at != begin + bytes) {
      protect(begin, bytes, open);
      begin = at;
      bytes = 0;
    }
    bytes += size;
  }
  protect(begin, bytes, open);
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
  bytes = whole_pages(bytes);
  const std::lock_guard guard(all.mutex);
  if (all.range == nullptr) {
    void* const range =
        mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return nullptr;
    all.range = static_cast<std::byte*>(range);
  }
  std::byte* at = all.range + all.used;
  if (const auto found = all.free.find(bytes); found != all.free.end()) {
    at = found->second;
    all.free.erase(found);
  } else if (bytes <= kRange - all.used) {
    all.used += bytes;
  } else {
    return nullptr;
  }
  all.taken[at] = bytes;
  if (all.at_work != 0) protect(at, bytes, true);
  return at;
}

void give_back_hidden(void* at, std::size_t bytes) {
  bytes = whole_pages(bytes);
  auto* const piece = static_cast<std::byte*>(at);
  const std::lock_guard guard(hidden().mutex);
  if (hidden().at_work != 0) protect(piece, bytes, false);
  madvise(piece, bytes, MADV_DONTNEED);
  hidden().taken.erase(piece);
  hidden().free.emplace(bytes, piece);
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
