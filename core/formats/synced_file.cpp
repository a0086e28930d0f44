#include "core/formats/synced_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "core/base/file_system.h"
#include "core/base/system_error.h"

namespace starling {
namespace {

Result<> write_all(int file, const std::string& path, ByteView data) {
  while (!data.empty()) {
    const ssize_t n = ::write(file, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("cannot write", path);
    data = data.subspan(static_cast<std::size_t>(n));
  }
  return ok();
}

Result<> write_synced(int file, const std::string& path, std::span<const ByteView> pieces) {
  for (const ByteView piece : pieces) {
    STARLING_TRY(write_all(file, path, piece));
  }
  if (::fsync(file) != 0) return system_error("cannot sync", path);
  return ok();
}

Result<> sync_folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return system_error("cannot open", folder);
  const bool synced = sync_folder(file);
  const int reason = errno;
  ::close(file);
  errno = reason;
  if (!synced) return system_error("cannot sync", folder);
  return ok();
}

// Writes a synced file beside `path` and returns its name.
Result<std::string> write_beside(const std::string& path, std::span<const ByteView> pieces) {
  static std::atomic<std::uint64_t> counter{0};
  std::string temporary;
  int file = -1;
  // A killed process of this number may have left its files: in a container every one has number 1.
  do {
    temporary = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (file < 0 && errno == EEXIST);
  if (file < 0) return system_error("cannot create", temporary);
  auto written = write_synced(file, temporary, pieces);
  // Network file systems report late errors here.
  if (::close(file) != 0 && written) written = system_error("cannot close", temporary);
  if (written) return temporary;
  ::unlink(temporary.c_str());
  return std::move(written).error();
}

Result<bool> write_in_place(const std::string& path, ByteView data) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0 && errno == EEXIST) return false;
  if (file < 0) return system_error("cannot create", path);
  auto written = write_synced(file, path, std::span<const ByteView>(&data, 1));
  if (::close(file) != 0 && written) written = system_error("cannot close", path);
  if (written) return true;
  ::unlink(path.c_str());
  return std::move(written).error();
}

}  // namespace

Result<> write_synced_file(const std::string& path, std::span<const ByteView> pieces) {
  STARLING_TRY(temporary, write_beside(path, pieces));
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    auto error = system_error("cannot rename to", path);
    ::unlink(temporary.c_str());
    return error;
  }
  return sync_folder_of(path);
}

Result<bool> write_new_synced_file(const std::string& path, ByteView data) {
  STARLING_TRY(temporary, write_beside(path, std::span<const ByteView>(&data, 1)));
  const bool linked = ::link(temporary.c_str(), path.c_str()) == 0;
  const bool there = !linked && errno == EEXIST;
  ::unlink(temporary.c_str());
  if (there) return false;
  if (!linked) return write_in_place(path, data);
  STARLING_TRY(sync_folder_of(path));
  return true;
}

}  // namespace starling
