#include "core/data/bytes_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/hash.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFolderBytesMax = 8ull << 30;
constexpr std::size_t kFolderFilesMax = 1 << 20;
constexpr std::uint64_t kHashedWhole = 64ull << 20;
constexpr std::size_t kAtOnce = 1ull << 20;  // milliseconds, between two looks at who waits
constexpr std::uint64_t kEnds = 1ull << 20;
constexpr std::uint64_t kPieces = 64;
constexpr std::uint64_t kPiece = 64ull << 10;

Error bad(const std::string& what, const std::string& path) {
  return Error(Code::kBadInput, what + "; reading data " + path);
}

Error failed(const std::string& path) {
  return bad(std::strerror(errno), path);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

bool wanted(const fs::path& path, const std::vector<std::string>& extensions) {
  if (extensions.empty()) return true;
  return std::find(extensions.begin(), extensions.end(), path.extension().string()) !=
         extensions.end();
}

// Regular files below a folder in the order of their paths' bytes. Links are not followed, so
// nothing comes twice and nothing from outside.
Result<std::vector<std::string>> list(const std::string& folder,
                                      const std::vector<std::string>& extensions) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error), end;
  for (; !error && it != end; it.increment(error)) {
    const auto type = it->symlink_status(error).type();
    if (error) break;
    if (type != fs::file_type::regular || !wanted(it->path(), extensions)) continue;
    files.push_back(it->path().string());
    if (files.size() > kFolderFilesMax)
      return bad("more than " + std::to_string(kFolderFilesMax) + " files, join them", folder);
  }
  if (error) return bad(error.message(), folder);
  std::sort(files.begin(), files.end());
  return files;
}

Result<> append_file(const std::string& path, Bytes& out) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) return failed(path);
  if (!S_ISREG(status.st_mode)) return bad("not a regular file", path);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes > kFolderBytesMax - out.size())
    return bad("the folder has more than 8 GiB; join its files into one, which is mapped", path);
  std::size_t at = out.size();
  out.resize(at + bytes);
  while (at < out.size()) {
    const auto n = ::read(file.get(), out.data() + at, out.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(path);
    if (n == 0) return bad("became shorter while it was read", path);
    at += static_cast<std::size_t>(n);
  }
  return ok();
}

}  // namespace

Result<std::unique_ptr<BytesSource>> BytesSource::open(const std::string& path,
                                                       const std::vector<std::string>& extensions) {
  std::unique_ptr<BytesSource> source(new BytesSource);
  source->path_ = path;
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) return failed(path);
  if (S_ISDIR(status.st_mode)) {
    STARLING_TRY(source->read_folder(path, extensions));
    return source;
  }
  if (!S_ISREG(status.st_mode)) return bad("neither a regular file nor a folder", path);
  STARLING_TRY(source->map_file(file.release(), static_cast<std::uint64_t>(status.st_size), path));
  return source;
}

BytesSource::~BytesSource() {
  if (mapped_) ::munmap(mapped_, view_.size());
  if (fd_ >= 0) ::close(fd_);
}

Result<> BytesSource::intact() const {
  if (fd_ < 0) return ok();
  struct stat status {};
  if (::fstat(fd_, &status) != 0) return failed(path_);
  if (static_cast<std::uint64_t>(status.st_size) < view_.size())
    return bad("was cut to " + std::to_string(status.st_size) + " bytes while in use, had " +
                   std::to_string(view_.size()),
               path_);
  return ok();
}

Result<> BytesSource::map_file(int fd, std::uint64_t bytes, const std::string& path) {
  fd_ = fd;
  files_ = 1;
  if (bytes == 0) return ok();  // mmap refuses it; callers say that it is too short
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED) return failed(path);
  mapped_ = mapped;
  view_ = {static_cast<const std::uint8_t*>(mapped), static_cast<std::size_t>(bytes)};
  return ok();
}

Result<> BytesSource::read_folder(const std::string& path,
                                  const std::vector<std::string>& extensions) {
  STARLING_TRY(files, list(path, extensions));
  for (const auto& file : files) {
    STARLING_TRY(append_file(file, memory_));
  }
  files_ = files.size();
  view_ = memory_;
  return ok();
}

bool is_known_whole(ByteView bytes) {
  return bytes.size() <= kHashedWhole;
}

std::optional<Digest> content_of(ByteView bytes, const std::function<bool()>& go_on) {
  Digest digest = hash128({}, bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += kAtOnce) {
    if (!go_on()) return std::nullopt;
    const auto piece = bytes.subspan(at, std::min<std::size_t>(kAtOnce, bytes.size() - at));
    digest = hash128(piece, mix64(mix64(digest[0], digest[1]), at));
  }
  return digest;
}

Digest identity_of(ByteView bytes) {
  const std::uint64_t size = bytes.size();
  if (is_known_whole(bytes)) return hash128(bytes, size);
  Digest digest = hash128(bytes.first(kEnds), size);
  // Each part's seed is its place and the parts before it: order matters.
  const auto add = [&](std::uint64_t at, std::uint64_t count) {
    const auto seed = mix64(mix64(digest[0], digest[1]), at);
    digest = hash128(bytes.subspan(at, count), seed);
  };
  add(size - kEnds, kEnds);
  for (std::uint64_t i = 0; i < kPieces; ++i) add((size - kPiece) / kPieces * i, kPiece);
  return digest;
}

}  // namespace starling
