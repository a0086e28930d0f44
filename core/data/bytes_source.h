#pragma once
// The bytes of a data set: one file, mapped, or all files below a folder, read into memory.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling {

// Immutable after it was opened; any thread. Owns the mapping, or the memory.
class BytesSource {
 public:
  // `extensions`: of files in a folder, only these (".h"; "" = files without one); empty = all.
  // Errors (kBadInput): nothing there, not a regular file, unreadable, changed while it was read,
  // folder with more than 8 GiB or 2^20 files.
  static Result<std::unique_ptr<BytesSource>> open(const std::string& path,
                                                   const std::vector<std::string>& extensions);
  ~BytesSource();
  BytesSource(const BytesSource&) = delete;
  BytesSource& operator=(const BytesSource&) = delete;

  ByteView view() const { return view_; }
  std::uint64_t files() const { return files_; }
  // Whether the mapped file still has the size it had: reading past a cut raises SIGBUS.
  Result<> intact() const;

 private:
  BytesSource() = default;
  Result<> map_file(int fd, std::uint64_t bytes, const std::string& path);
  Result<> read_folder(const std::string& path, const std::vector<std::string>& extensions);

  ByteView view_;
  Bytes memory_;            // of a folder
  void* mapped_ = nullptr;  // of a file
  int fd_ = -1;
  std::string path_;
  std::uint64_t files_ = 0;
};

// Of the size and (above 64 MiB a sample of) the content.
Digest identity_of(ByteView bytes);
// Whether that has looked at every byte.
bool is_known_whole(ByteView bytes);
// Of every byte; reads in pieces and asks `go_on` before each. Nothing if it was told to stop.
std::optional<Digest> content_of(ByteView bytes, const std::function<bool()>& go_on);

}  // namespace starling
