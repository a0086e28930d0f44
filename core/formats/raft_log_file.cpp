#include "core/formats/raft_log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "core/base/fd.h"
#include "core/base/file_system.h"

namespace starling {

namespace {

Error log_file_error(const std::string& what, const std::string& name) {
  return Error(Code::kUnavailable, what + ": " + std::strerror(errno) + "; " + name);
}

Result<> write_all_at(int fd, std::uint64_t offset, ByteView bytes, const std::string& name) {
  while (!bytes.empty()) {
    const auto n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return log_file_error("cannot write", name);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return ok();
}

// A name is durable only when its directory is.
Result<> sync_directory(const std::filesystem::path& dir) {
  const auto name = dir.empty() ? std::string(".") : dir.string();
  const Fd fd(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || !sync_folder(fd.get())) return log_file_error("cannot sync directory", name);
  return ok();
}

// Whether this name leads to the file that is open as `fd`.
bool same_file(int fd, const std::string& name) {
  struct stat open_file, named;
  return ::fstat(fd, &open_file) == 0 && ::stat(name.c_str(), &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

class PosixRaftLogFile final : public RaftLogFile {
 public:
  PosixRaftLogFile(int fd, std::filesystem::path dir)
      : fd_(fd),
        dir_(std::move(dir)),
        name_((dir_ / "raft.log").string()),
        mark_(::open((name_ + ".mark").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}

  std::string name() const override { return name_; }

  Result<Bytes> read() override {
    struct stat info;
    if (::fstat(fd_.get(), &info) != 0) return log_file_error("cannot read", name_);
    const auto size = static_cast<std::uint64_t>(info.st_size);
    if (size > RaftLog::kFileBytesMax + kSlack) {
      return Error(Code::kCorrupt,
                   "raft log is too large: " + std::to_string(size) + " bytes; " + name_);
    }
    Bytes bytes(size);
    std::size_t done = 0;
    while (done < size) {
      const auto n = ::pread(fd_.get(), bytes.data() + done, size - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return log_file_error("cannot read", name_);
      if (n == 0) return Error(Code::kUnavailable, "file shrank while it was read; " + name_);
      done += static_cast<std::size_t>(n);
    }
    return bytes;
  }

  Result<> write(std::uint64_t offset, ByteView bytes) override {
    return write_all_at(fd_.get(), offset, bytes, name_);
  }

  Result<> sync() override {
    STARLING_TRY(check());
    if (::fdatasync(fd_.get()) != 0) return log_file_error("cannot sync", name_);
    return ok();
  }

  Result<> resize(std::uint64_t bytes) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
      return log_file_error("cannot resize", name_);
    }
    return ok();
  }

  // Overwrites one file: only the last accident is of interest.
  Result<> keep_aside(ByteView bytes) override {
    const auto name = name_ + ".torn";
    const Fd copy(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (copy.get() < 0) return log_file_error("cannot create", name);
    STARLING_TRY(write_all_at(copy.get(), 0, bytes, name));
    if (::fsync(copy.get()) != 0) return log_file_error("cannot sync", name);
    return sync_directory(dir_);
  }

  Result<> replace(ByteView bytes) override {
    const auto name = name_ + ".new";
    Fd next(::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (next.get() < 0) return log_file_error("cannot create", name);
    // The file is locked before it has the name by which another process would find it.
    STARLING_TRY(locked, lock_file(next.get(), name));
    if (!locked) return Error(Code::kUnavailable, "another process has locked " + name);
    STARLING_TRY(write_all_at(next.get(), 0, bytes, name));
    if (::fsync(next.get()) != 0) return log_file_error("cannot sync", name);
    STARLING_TRY(check());
    if (::rename(name.c_str(), name_.c_str()) != 0) return log_file_error("cannot rename", name);
    std::swap(fd_, next);
    return sync_directory(dir_);
  }

  Result<> check() override {
    if (same_file(fd_.get(), name_)) return ok();
    return Error(Code::kUnavailable, "the raft log was removed or replaced while in use; " + name_);
  }

  Result<> write_mark(ByteView bytes) override {
    if (mark_.get() < 0) return log_file_error("cannot open", name_ + ".mark");
    return write_all_at(mark_.get(), 0, bytes, name_ + ".mark");
  }

  Bytes read_mark() override {
    Bytes bytes(kMarkBytesMax);
    const auto n = ::pread(mark_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return bytes;
  }

 private:
  static constexpr std::size_t kMarkBytesMax = 64;
  static constexpr std::uint64_t kSlack = 1024 * 1024;  // preallocation beyond the last record

  Fd fd_;
  const std::filesystem::path dir_;
  const std::string name_;
  const Fd mark_;
};

// The file with its lock; null: another process has it.
Result<std::unique_ptr<PosixRaftLogFile>> lock_raft_log(const std::filesystem::path& path) {
  const auto name = (path / "raft.log").string();
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return log_file_error("cannot open", name);
  auto file = std::make_unique<PosixRaftLogFile>(fd, path);
  // Two processes with one identity would vote twice.
  STARLING_TRY(locked, lock_file(fd, name));
  if (!locked) return std::unique_ptr<PosixRaftLogFile>();
  // The lock's last owner may have put a new file in its place between the two calls.
  if (!same_file(fd, name)) return std::unique_ptr<PosixRaftLogFile>();
  return file;
}

}  // namespace

Result<std::unique_ptr<RaftLogFile>> open_raft_log_file(const std::string& dir,
                                                        std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kLookAgain{10};
  const std::filesystem::path path(dir);
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
    return log_file_error("cannot create", dir);
  const auto until = std::chrono::steady_clock::now() + patience;
  STARLING_TRY(file, lock_raft_log(path));
  while (!file) {
    if (std::chrono::steady_clock::now() >= until)
      return Error(Code::kUnavailable,
                   "another process has this raft log open; " + (path / "raft.log").string());
    std::this_thread::sleep_for(kLookAgain);
    STARLING_TRY(again, lock_raft_log(path));
    file = std::move(again);
  }
  // Sync each time: the life that created the file may have ended before it came here.
  STARLING_TRY(sync_directory(path));
  STARLING_TRY(sync_directory(std::filesystem::absolute(path).parent_path()));
  return std::unique_ptr<RaftLogFile>(std::move(file));
}

}  // namespace starling
