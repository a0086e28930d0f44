#include "kernels/device/shared_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace starling::kernels {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

SharedPages::SharedPages(std::size_t bytes) : bytes_(bytes) {
  const int file = ::memfd_create("starling", MFD_CLOEXEC);
  if (file < 0) throw std::bad_alloc();
  void* at = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(bytes)) == 0)
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) {
    ::close(file);
    throw std::bad_alloc();
  }
  place_ = {file, 0, next_id(), bytes};
  at_ = static_cast<std::byte*>(at);
}

SharedPages::~SharedPages() {
  ::munmap(at_, bytes_);
  ::close(place_.file);
}

}  // namespace starling::kernels
