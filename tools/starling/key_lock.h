#pragma once
// A KeyLock keeps two processes of a machine from using one key.

#include <string>

#include "core/base/keys.h"
#include "core/base/result.h"

namespace starling::tools {

// The process that took it and its forks hold it; exec gives it back.
class KeyLock {
 public:
  // Locks byte `place` of the key file. Where the file cannot be written, as a mounted
  // secret, and for a key that is in no file (`path` is empty), locks a name of the key
  // instead, for this machine and user, among the processes that share its network. Returns
  // an empty lock if another process holds it. Errors: kBadInput  the file cannot be opened.
  static Result<KeyLock> take(const std::string& path, std::size_t place,
                              const std::string& public_key);
  KeyLock() = default;
  KeyLock(KeyLock&& other) noexcept;
  KeyLock& operator=(KeyLock&& other) noexcept;
  ~KeyLock();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  explicit KeyLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace starling::tools
