#pragma once
// A file's bytes as they lie in the kernel's memory, which all processes of a machine share.

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/fd.h"
#include "core/base/result.h"

namespace starling {

// Its bytes are those of the file, so they change if another process writes to it, and reading behind the place where it
// was cut raises SIGBUS. Another file that takes its name changes nothing. Threads: any.
class MappedFile {
 public:
  // Of the inode. A write sets all times before it changes a byte; a writer can set `modified` back, and not `changed`,
  // which also moves with the mode, the owner and the names.
  struct Stamp {
    std::int64_t size = 0, modified_s = 0, modified_ns = 0, changed_s = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
    bool same_but_changed(const Stamp& other) const {
      return size == other.size && modified_s == other.modified_s &&
             modified_ns == other.modified_ns;
    }
  };
  // Errors: kBadInput  it cannot be opened or mapped, or is no regular file.
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  ByteView bytes() const { return bytes_; }
  // Errors: kBadInput  the inode cannot be read.
  Result<Stamp> stamp() const;

 private:
  MappedFile(Fd file, ByteView bytes) : file_(std::move(file)), bytes_(bytes) {}

  Fd file_;
  ByteView bytes_;
};

}  // namespace starling
