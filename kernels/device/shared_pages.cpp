#include "kernels/device/shared_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <new>

namespace starling::kernels {
namespace {

struct Piece {
  std::size_t bytes = 0;
  int file = -1;
  std::uint64_t id = 0;
};

struct Pieces {
  std::mutex mutex;
  std::map<const std::byte*, Piece> by_address;
  std::uint64_t next_id = 1;
};

// pieces() is never destroyed: memory is given back until the very end of the process.
Pieces& pieces() {
  static Pieces* const all = new Pieces;
  return *all;
}

}  // namespace

std::byte* take_shared_pages(std::size_t bytes) {
  const int file = ::memfd_create("starling", MFD_CLOEXEC);
  if (file < 0) throw std::bad_alloc();
  void* at = MAP_FAILED;
  if (::ftruncate(file, static_cast<off_t>(bytes)) == 0)
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) {
    ::close(file);
    throw std::bad_alloc();
  }
  auto* const address = static_cast<std::byte*>(at);
  Pieces& all = pieces();
  const std::scoped_lock lock(all.mutex);
  all.by_address[address] = {bytes, file, all.next_id++};
  return address;
}

bool give_back_shared_pages(std::byte* at) {
  Pieces& all = pieces();
  Piece piece;
  {
    const std::scoped_lock lock(all.mutex);
    const auto it = all.by_address.find(at);
    if (it == all.by_address.end()) return false;
    piece = it->second;
    all.by_address.erase(it);
  }
  ::munmap(at, piece.bytes);
  ::close(piece.file);
  return true;
}

std::optional<SharedPlace> shared_place(const void* at, std::size_t bytes) {
  const auto* const address = static_cast<const std::byte*>(at);
  Pieces& all = pieces();
  const std::scoped_lock lock(all.mutex);
  auto it = all.by_address.upper_bound(address);
  if (it == all.by_address.begin()) return std::nullopt;
  --it;
  const auto offset = static_cast<std::size_t>(address - it->first);
  if (offset > it->second.bytes || bytes > it->second.bytes - offset) return std::nullopt;
  if (offset == it->second.bytes) return std::nullopt;
  return SharedPlace{it->second.file, offset, it->second.id};
}

}  // namespace starling::kernels
