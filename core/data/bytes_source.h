#pragma once
// The bytes of a data set: of one file or of many, one after the other, read where they lie.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "core/base/result.h"

namespace starling {

// Files of 64 KiB and more are mapped, so that all workers of a machine share one copy in the
// kernel's memory, and data may be larger than that. Smaller ones, and those after the first 4096
// mapped ones, are read into memory of this process.
//
// Any thread. Its bytes are immutable once it is open, unless a process writes to a mapped file.
class BytesSource {
 public:
  // The part of a file that is data: what follows its header.
  using Payload = std::function<Result<ByteView>(ByteView file, const std::string& path)>;

  // `payload`: nullptr where all bytes of a file are data. Errors (kBadInput): those of
  // data_files() and of `payload`, a file that changed while it was read, more than 8 GiB that
  // would have to be read into memory.
  static Result<std::unique_ptr<BytesSource>> open(const std::string& path,
                                                   const std::vector<std::string>& extensions,
                                                   const Payload& payload = nullptr);
  ~BytesSource();
  BytesSource(const BytesSource&) = delete;
  BytesSource& operator=(const BytesSource&) = delete;

  std::uint64_t size() const { return size_; }
  std::size_t files() const { return parts_.size(); }
  // The symbolic links of a folder, which are not followed.
  const std::vector<std::string>& links() const { return links_; }

  // `count` bytes from `at`, at + count <= size(): where they lie, or gathered in `room` if in more
  // than one file. kBadInput if a mapped file was cut since it was opened (reading past the cut
  // would raise SIGBUS).
  Result<ByteView> read(std::uint64_t at, std::size_t count, Bytes& room) const;

  // The file among those of these bytes that may have been written to since it was opened or
  // accept() was called: its size or a time of its inode is another one. Asked after the bytes
  // were copied, "none" is a proof on a local file system, since a write sets the times before it
  // changes a byte. A writer can set the time of the bytes back, and not that of the inode, which
  // also changes with mode, name and owner. kBadInput if a file cannot be looked at.
  Result<std::optional<std::string>> touched(std::uint64_t at, std::uint64_t count) const;
  // Takes all files as they are now for unchanged.
  Result<> accept() const;

 private:
  struct Stamp {  // of a mapped file
    std::int64_t size = 0, modified_s = 0, modified_ns = 0, changed_s = 0, changed_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  struct Part {
    std::string path;
    ByteView file;
    ByteView bytes;           // of the file, its payload
    std::uint64_t begin = 0;  // of `bytes` in all bytes
    int fd = -1;              // of a mapped file
    mutable Stamp stamp{};    // guarded by stamps_
    std::uint64_t end() const { return begin + bytes.size(); }
  };

  BytesSource() = default;
  Result<> add(const std::string& path, const Payload& payload);
  Result<ByteView> in_memory(int fd, std::size_t bytes, const std::string& path);
  static Result<> intact(const Part& part);
  static Result<Stamp> stamp_of(const Part& part);

  mutable Mutex stamps_;
  std::vector<Part> parts_;
  std::vector<std::string> links_;
  std::uint64_t size_ = 0;
  std::size_t mapped_ = 0;
  // Bytes of small files. Blocks do not move, since parts point into them.
  std::vector<Bytes> memory_;
  std::uint64_t in_memory_ = 0;
};

// ReadAt gives bytes of data that is too large to look at as one view. As BytesSource::read.
using ReadAt = std::function<Result<ByteView>(std::uint64_t at, std::size_t count)>;

// A digest of the size and (above 64 MiB a sample of) the content: the same however the bytes are
// cut into files. Errors: those of `read`.
Result<Digest> identity_of(std::uint64_t size, const ReadAt& read);
Digest identity_of(ByteView bytes);
// Whether identity_of() has looked at every byte.
bool is_known_whole(std::uint64_t size);
// A digest of every byte; reads in pieces and asks `go_on` before each. Nothing if it was told to
// stop, or a read failed.
std::optional<Digest> content_of(std::uint64_t size, const ReadAt& read,
                                 const std::function<bool()>& go_on);

}  // namespace starling
