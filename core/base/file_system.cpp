#include "core/base/file_system.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace starling {

Result<bool> lock_of(int error, const std::string& path) {
  if (error == 0) return true;
  if (error == EWOULDBLOCK) return false;
  const std::string why = std::string("flock: ") + std::strerror(error);
  if (error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP || error == EINVAL)
    return Error(Code::kBadInput, "this file system has no file locks (" + why +
                                      "), expected one that has: a local disk, Lustre mounted with "
                                      "-o flock, NFS with its lock service; " +
                                      path);
  return Error(Code::kBadInput, "cannot be locked (" + why + "); " + path);
}

Result<bool> lock_file(int fd, const std::string& path) {
  int error = 0;
  do {
    error = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  } while (error == EINTR);
  return lock_of(error, path);
}

Result<> is_file(const std::string& path, const std::string& expected) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) return ok();
  return Error(Code::kBadInput,
               "no such file or not a regular file, expected " + expected + "; reading " + path);
}

bool folders_are_not_synced(int error) {
  return error == EINVAL || error == EOPNOTSUPP;
}

bool is_open_to_others(const struct stat& file, uid_t reader) {
  return (file.st_mode & (file.st_uid == reader ? 077 : 027)) != 0;
}

bool sync_folder(int fd) {
  return ::fsync(fd) == 0 || folders_are_not_synced(errno);
}

}  // namespace starling
