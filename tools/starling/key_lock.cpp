#include "tools/starling/key_lock.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "core/base/system_error.h"

namespace starling::tools {
namespace {

// Binds a name of the kernel that goes away with its socket. The name's present
// owner may be another user of the machine, who has no key and is ignored.
int take_name(const std::string& public_key, bool& taken) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "starling-key-" + std::to_string(::geteuid()) + "-" + public_key;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (::bind(fd, generic, size) == 0) {
    ::listen(fd, 8);
    return fd;
  }
  ucred owner{};
  socklen_t length = sizeof owner;
  const bool known = ::connect(fd, generic, size) == 0 &&
                     ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0;
  // An owner that takes no connections is not one of us; a full queue is a sign of one of us.
  taken = known ? owner.uid == ::geteuid() : errno == EAGAIN;
  return fd;
}

}  // namespace

Result<KeyLock> KeyLock::take(const std::string& path, std::size_t place,
                              const std::string& public_key) {
  const auto named = [&]() -> Result<KeyLock> {
    bool taken = false;
    KeyLock lock(take_name(public_key, taken));
    if (!lock) return system_error("cannot lock a key of", path.empty() ? "the join token" : path);
    return taken ? KeyLock() : std::move(lock);
  };
  const int file = path.empty() ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    const bool readable = path.empty() || ::access(path.c_str(), R_OK) == 0;
    if (!readable) return system_error("cannot open key file", path);
    return named();
  }
  KeyLock lock(file);
  struct flock wanted {};
  wanted.l_type = F_WRLCK;
  wanted.l_whence = SEEK_SET;
  wanted.l_start = static_cast<off_t>(place);
  wanted.l_len = 1;
  if (::fcntl(file, F_OFD_SETLK, &wanted) == 0) return lock;
  if (errno == EAGAIN || errno == EACCES) return KeyLock();
  const bool no_locks = errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP;
  if (no_locks) return named();  // of this file system
  return system_error("cannot lock key file", path);
}

KeyLock::KeyLock(KeyLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

KeyLock& KeyLock::operator=(KeyLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

KeyLock::~KeyLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace starling::tools
