#pragma once
// Lines to a file or pipe, written by a thread of its own: a caller never waits for a disk. What
// waits is bounded; beyond that lines are dropped and counted, and a line of the file
// says where. The file has whole lines at any time.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace starling {

struct LineFileOptions {
  std::size_t bytes_max = std::size_t{8} << 20;  // that wait
  std::size_t minor_max = std::size_t{6} << 20;  // of all lines, before minor ones are dropped
  std::chrono::milliseconds retry{500};          // after a failed write
  std::chrono::milliseconds slow{5000};          // a write that takes longer is told
  std::chrono::milliseconds patience{5000};      // at the end, for a file that takes nothing
};

// Threads: belongs to one thread; its own does the writing.
class LineFile {
 public:
  // Makes the line, with its end, that says how many are missing in its place. Called on either
  // thread.
  using Gap = std::function<std::string(std::uint64_t lines)>;

  // Takes the descriptor. Of a regular file, opened for appending, what a failed write left of a
  // line is cut off again; a failed write to anything else is its end.
  LineFile(int fd, Gap gap, LineFileOptions options = {});
  // The destructor calls finish().
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // `line` with its end; or a record of any bytes. Minor lines are dropped first when there is no room.
  void put(std::string line, bool minor);
  // Waits until all is written, or nothing has moved for `patience`. True: all is.
  bool flush();
  // What people should know, once: that the file takes nothing and why, and that it does again.
  std::optional<std::string> news();
  // Whether the reader of the pipe has gone: nothing more is written then.
  bool closed() const;
  // Flushes and ends; returns how many lines are missing in all.
  std::uint64_t finish();

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace starling
