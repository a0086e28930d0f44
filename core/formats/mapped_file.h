#pragma once
// A file's bytes as they lie in the kernel's memory, which all processes of a machine share.

#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling {

// Its bytes are those of the file, so they change if another process writes to it, and reading behind the place where it
// was cut raises SIGBUS: a reader asks before whether the file has changed. Threads: any.
class MappedFile {
 public:
  // Errors: kBadInput  it cannot be opened or mapped, or is no regular file.
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  ByteView bytes() const { return bytes_; }

 private:
  explicit MappedFile(ByteView bytes) : bytes_(bytes) {}

  ByteView bytes_;
};

}  // namespace starling
