#include "core/data/chunk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/base/fd.h"
#include "core/base/hash.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".chunk";
constexpr const char* kPart = ".part";

// Reads or writes all of a span; false: the system does not, or the file is shorter.
bool read_all(int fd, std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const ssize_t n = ::read(fd, out.data(), out.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

bool write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

struct Found {
  fs::path path;
  std::uint64_t bytes = 0;
  fs::file_time_type read;
};

// Whether a name begins with a digest and its ending: nothing else in the folder is ours.
bool is_of_chunk(const std::string& name) {
  constexpr std::string_view kHex = "0123456789abcdef";
  return name.size() >= 32 + std::string_view(kEnding).size() &&
         name.find_first_not_of(kHex) == 32 && name.compare(32, 6, kEnding) == 0;
}

// The chunks of a folder. Parts of writers that were killed an hour ago and more are removed.
std::vector<Found> found_in(const std::string& folder) {
  std::vector<Found> all;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!is_of_chunk(it->path().filename().string())) continue;
    std::error_code gone;
    Found found{it->path(), it->file_size(gone), {}};
    if (!gone) found.read = it->last_write_time(gone);
    if (gone) continue;
    const std::string ending = it->path().extension().string();
    if (ending == kEnding)
      all.push_back(std::move(found));
    else if (ending == kPart && now - found.read > std::chrono::hours(1))
      fs::remove(it->path(), gone);
  }
  return all;
}

}  // namespace

ChunkCache::ChunkCache(std::string folder, std::uint64_t bytes_max)
    : folder_(std::move(folder)), bytes_max_(bytes_max) {}

std::string ChunkCache::path(const Digest& digest) const {
  return (fs::path(folder_) / (to_string(digest) + kEnding)).string();
}

std::vector<std::string> ChunkCache::take_news() {
  const MutexLock lock(mutex_);
  if (const std::uint64_t more = std::exchange(damaged_, 0))
    news_.push_back((more == 1 ? "a cached chunk is damaged, and is read from the store again: "
                               : std::to_string(more) +
                                     " cached chunks are damaged, and are read from the store "
                                     "again, the first of them ") +
                    first_damaged_);
  return std::exchange(news_, {});
}

std::optional<Bytes> ChunkCache::get(const Digest& digest, std::uint64_t size) {
  const std::string file = path(digest);
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return std::nullopt;
  struct stat status {};
  Bytes bytes;
  if (::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) &&
      static_cast<std::uint64_t>(status.st_size) == size) {
    bytes.resize(size);
    if (read_all(fd.get(), bytes) && hash128(bytes) == digest) {
      ::futimens(fd.get(), nullptr);  // read last now
      return bytes;
    }
  }
  std::error_code ignored;
  fs::remove(file, ignored);
  const MutexLock lock(mutex_);
  if (damaged_++ == 0) first_damaged_ = file;
  return std::nullopt;
}

void ChunkCache::put(const Digest& digest, ByteView bytes) {
  static std::atomic<std::uint64_t> count = 0;
  const std::string file = path(digest);
  const std::string part =
      file + "." + std::to_string(::getpid()) + "-" + std::to_string(count++) + kPart;
  std::error_code error;
  fs::create_directories(folder_, error);
  bool written = false;
  {
    const Fd fd(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    written = fd && write_all(fd.get(), bytes);
  }
  const int number = errno;
  if (written) {
    fs::rename(part, file, error);
    written = !error;
  }
  if (!written) {
    fs::remove(part, error);
    const MutexLock lock(mutex_);
    if (!std::exchange(refused_, true))
      news_.push_back("no chunk can be kept in the cache of data (" +
                      std::string(std::strerror(number)) + "); " + folder_);
    return;
  }
  const MutexLock lock(mutex_);
  // Other processes write here as well, so what is there is counted anew now and then.
  written_ += bytes.size();
  if (!counted_ || written_ > bytes_max_ / 16) make_room();
}

void ChunkCache::make_room() {
  std::vector<Found> all = found_in(folder_);
  std::uint64_t used = 0;
  for (const Found& found : all) used += found.bytes;
  if (used > bytes_max_) {
    std::ranges::sort(all, {}, &Found::read);
    for (const Found& found : all) {
      if (used <= bytes_max_ - bytes_max_ / 8) break;
      std::error_code ignored;
      fs::remove(found.path, ignored);
      used -= found.bytes;
    }
  }
  counted_ = true;
  written_ = 0;
}

}  // namespace starling
