#include "core/data/bytes_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/data_files.h"
#include "core/base/fd.h"
#include "core/base/hash.h"

namespace starling {
namespace {

constexpr std::uint64_t kInMemoryMax = 8ull << 30;
constexpr std::uint64_t kMappedFrom = 64ull << 10;  // a page's rest is little of that
constexpr std::size_t kMappedMax = 4096;  // each keeps a descriptor, and a mapping of 65530
constexpr std::size_t kMemoryBlock = 4ull << 20;
constexpr std::uint64_t kHashedWhole = 64ull << 20;
constexpr std::size_t kAtOnce = 1ull << 20;  // milliseconds, between two calls of `go_on`
constexpr std::uint64_t kEnds = 1ull << 20;
constexpr std::uint64_t kPieces = 64;
constexpr std::uint64_t kPiece = 64ull << 10;

Error unreadable_file(const std::string& path) {
  return bad_data(std::strerror(errno), path);
}

}  // namespace

Result<std::unique_ptr<BytesSource>> BytesSource::open(const std::string& path,
                                                       const std::vector<std::string>& extensions,
                                                       const Payload& payload) {
  std::unique_ptr<BytesSource> source(new BytesSource);
  STARLING_TRY(found, data_files(path, extensions));
  source->parts_.reserve(found.files.size());
  source->links_ = std::move(found.links);
  for (const auto& file : found.files) {
    STARLING_TRY(source->add(file, payload));
  }
  return source;
}

BytesSource::~BytesSource() {
  for (const auto& part : parts_) {
    if (part.fd < 0) continue;
    ::munmap(const_cast<std::uint8_t*>(part.file.data()), part.file.size());
    ::close(part.fd);
  }
}

Result<> BytesSource::add(const std::string& path, const Payload& payload) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) return unreadable_file(path);
  if (!S_ISREG(status.st_mode)) return bad_data("not a regular file", path);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  parts_.push_back({.path = path, .begin = size_});
  Part& part = parts_.back();
  if (bytes < kMappedFrom || mapped_ == kMappedMax) {
    STARLING_TRY(view, in_memory(file.get(), bytes, path));
    part.file = view;
  } else {
    const void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) return unreadable_file(path);
    ++mapped_;
    part.file = {static_cast<const std::uint8_t*>(mapped), bytes};
    part.fd = file.release();
    STARLING_TRY(stamp, stamp_of(part));
    part.stamp = stamp;
  }
  part.bytes = part.file;
  if (payload) {
    STARLING_TRY(view, payload(part.file, path));
    part.bytes = view;
  }
  size_ += part.bytes.size();
  return ok();
}

Result<ByteView> BytesSource::in_memory(int fd, std::size_t bytes, const std::string& path) {
  if (bytes > kInMemoryMax - in_memory_)
    return bad_data(
        "more than 8 GiB of files that are not mapped (those below 64 KiB, and all after the "
        "first 4096 larger ones); join some of them",
        path);
  in_memory_ += bytes;
  if (memory_.empty() || memory_.back().capacity() - memory_.back().size() < bytes)
    memory_.emplace_back().reserve(std::max(bytes, kMemoryBlock));
  Bytes& block = memory_.back();
  const std::size_t begin = block.size();
  block.resize(begin + bytes);
  for (std::size_t at = begin; at < block.size();) {
    const auto n = ::read(fd, block.data() + at, block.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable_file(path);
    if (n == 0) return bad_data("became shorter while it was read", path);
    at += static_cast<std::size_t>(n);
  }
  return ByteView(block).subspan(begin, bytes);
}

Result<> BytesSource::intact(const Part& part) {
  if (part.fd < 0) return ok();
  struct stat status {};
  if (::fstat(part.fd, &status) != 0) return unreadable_file(part.path);
  if (static_cast<std::uint64_t>(status.st_size) < part.file.size())
    return bad_data("was cut to " + std::to_string(status.st_size) + " bytes while in use, had " +
                        std::to_string(part.file.size()),
                    part.path);
  return ok();
}

Result<BytesSource::Stamp> BytesSource::stamp_of(const Part& part) {
  struct stat status {};
  if (::fstat(part.fd, &status) != 0) return unreadable_file(part.path);
  return Stamp{status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
               status.st_ctim.tv_nsec};
}

Result<std::optional<std::string>> BytesSource::touched(std::uint64_t at,
                                                        std::uint64_t count) const {
  auto part = std::partition_point(parts_.begin(), parts_.end(),
                                   [&](const Part& p) { return p.end() <= at; });
  for (; part != parts_.end() && part->begin < at + count; ++part) {
    if (part->fd < 0) continue;
    STARLING_TRY(now, stamp_of(*part));
    const MutexLock lock(stamps_);
    if (!(now == part->stamp)) return std::optional(part->path);
  }
  return std::optional<std::string>();
}

Result<> BytesSource::accept() const {
  for (const Part& part : parts_) {
    if (part.fd < 0) continue;
    STARLING_TRY(now, stamp_of(part));
    const MutexLock lock(stamps_);
    part.stamp = now;
  }
  return ok();
}

Result<ByteView> BytesSource::read(std::uint64_t at, std::size_t count, Bytes& room) const {
  STARLING_CHECK(at <= size_ && count <= size_ - at);
  if (count == 0) return ByteView();
  auto part = std::partition_point(parts_.begin(), parts_.end(),
                                   [&](const Part& p) { return p.end() <= at; });
  STARLING_TRY(intact(*part));
  if (at + count <= part->end()) return part->bytes.subspan(at - part->begin, count);
  room.clear();
  room.reserve(count);
  for (; room.size() < count; ++part) {
    STARLING_TRY(intact(*part));
    const auto here = part->bytes.subspan(at + room.size() - part->begin);
    const auto taken = here.first(std::min(here.size(), count - room.size()));
    room.insert(room.end(), taken.begin(), taken.end());
  }
  return ByteView(room);
}

bool is_known_whole(std::uint64_t size) {
  return size <= kHashedWhole;
}

std::optional<Digest> content_of(std::uint64_t size, const ReadAt& read,
                                 const std::function<bool()>& go_on) {
  Digest digest = hash128({}, size);
  for (std::uint64_t at = 0; at < size; at += kAtOnce) {
    if (!go_on()) return std::nullopt;
    const auto piece = read(at, std::min<std::uint64_t>(kAtOnce, size - at));
    if (!piece) return std::nullopt;
    digest = hash128(piece.value(), mix64(mix64(digest[0], digest[1]), at));
  }
  return digest;
}

Result<Digest> identity_of(std::uint64_t size, const ReadAt& read) {
  if (is_known_whole(size)) {
    STARLING_TRY(all, read(0, size));
    return hash128(all, size);
  }
  STARLING_TRY(first, read(0, kEnds));
  Digest digest = hash128(first, size);
  // Each part's seed is its place and the parts before it: order matters.
  const auto add = [&](std::uint64_t at, std::uint64_t count) -> Result<> {
    const auto seed = mix64(mix64(digest[0], digest[1]), at);
    STARLING_TRY(piece, read(at, count));
    digest = hash128(piece, seed);
    return ok();
  };
  STARLING_TRY(add(size - kEnds, kEnds));
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    STARLING_TRY(add((size - kPiece) / kPieces * i, kPiece));
  }
  return digest;
}

Digest identity_of(ByteView bytes) {
  return identity_of(bytes.size(),
                     [&](std::uint64_t at, std::size_t count) {
                       return Result<ByteView>(bytes.subspan(at, count));
                     })
      .value();
}

}  // namespace starling
