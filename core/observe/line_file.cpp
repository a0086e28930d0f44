#include "core/observe/line_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/thread_name.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBatchBytes = std::size_t{1} << 20;

}  // namespace

struct LineFile::Shared {
  Shared(int opened, Gap made, LineFileOptions chosen)
      : fd(opened), gap(std::move(made)), options(chosen) {}
  ~Shared() {
    if (fd >= 0) ::close(fd);  // gives a lock back
  }

  const int fd;
  const Gap gap;
  const LineFileOptions options;
  bool regular = false;
  std::uint64_t end = 0;  // of the last whole line; of the thread

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::string> lines;
  std::size_t bytes = 0;      // of `lines`
  std::uint64_t moved = 0;    // bytes written so far
  std::uint64_t dropped = 0;  // since the last line that was taken
  std::uint64_t missing = 0;  // in all
  std::string trouble;        // why the last write failed; empty: it did not
  std::optional<Clock::time_point> writing_since;
  bool told = false;  // that there is trouble
  std::uint64_t missing_told = 0;
  bool finishing = false;  // no line comes any more: try once more, then end
  bool closed = false, over = false;
};

LineFile::LineFile(int fd, Gap gap, LineFileOptions options)
    : shared_(std::make_shared<Shared>(fd, std::move(gap), options)) {
  struct stat status {};
  shared_->regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  if (shared_->regular) shared_->end = static_cast<std::uint64_t>(status.st_size);
  thread_ = std::thread([shared = shared_] {
    name_thread("events");
    work(shared);
  });
}

LineFile::~LineFile() {
  finish();
}

void LineFile::put(std::string line, bool minor) {
  Shared& s = *shared_;
  const std::lock_guard lock(s.mutex);
  if (s.closed) return;
  const std::size_t limit = minor ? s.options.minor_max : s.options.bytes_max;
  if (s.bytes != 0 && s.bytes + line.size() > limit) {
    ++s.dropped;
    ++s.missing;
    return;
  }
  if (s.dropped > 0) {
    std::string gap = s.gap(std::exchange(s.dropped, 0));
    s.bytes += gap.size();
    s.lines.push_back(std::move(gap));
  }
  s.bytes += line.size();
  s.lines.push_back(std::move(line));
  s.changed.notify_all();
}

bool LineFile::flush() {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  std::uint64_t moved = s.moved;
  while (s.bytes != 0 && !s.closed && !s.over) {
    const bool any = s.changed.wait_for(lock, s.options.patience, [&] {
      return s.moved != moved || s.bytes == 0 || s.closed || s.over;
    });
    if (!any) return false;
    moved = s.moved;
  }
  return s.bytes == 0;
}

std::optional<std::string> LineFile::news() {
  Shared& s = *shared_;
  const std::lock_guard lock(s.mutex);
  const bool slow = s.writing_since && Clock::now() - *s.writing_since > s.options.slow;
  const bool bad = !s.trouble.empty() || slow;
  const std::string lost =
      s.missing == 0 ? "" : "; " + std::to_string(s.missing) + " lines are missing so far";
  if (bad && !s.told) {
    s.told = true;
    return "cannot be written (" + (s.trouble.empty() ? "the disk does not answer" : s.trouble) +
           "), and what happens is kept in memory as long as there is room" + lost;
  }
  if (s.missing > 0 && s.missing_told == 0) {
    s.missing_told = s.missing;
    return "is incomplete: there is no room for what waits to be written" + lost;
  }
  if (bad || !s.told) return std::nullopt;
  s.told = false;
  s.missing_told = 0;
  return "is written again" + lost;
}

bool LineFile::closed() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->closed;
}

std::uint64_t LineFile::finish() {
  Shared& s = *shared_;
  if (!thread_.joinable()) {
    const std::lock_guard lock(s.mutex);
    return s.missing;
  }
  {
    const std::lock_guard lock(s.mutex);
    if (s.dropped > 0) {
      std::string gap = s.gap(std::exchange(s.dropped, 0));
      s.bytes += gap.size();
      s.lines.push_back(std::move(gap));
    }
    s.finishing = true;
    s.changed.notify_all();
  }
  const auto patience = flush() ? s.options.patience : std::chrono::milliseconds(0);
  std::unique_lock lock(s.mutex);
  s.missing += s.lines.size();
  const bool over = s.changed.wait_for(lock, patience, [&] { return s.over; });
  const std::uint64_t missing = s.missing;
  lock.unlock();
  // A write that hangs holds up no caller: the thread stays with its file.
  if (over)
    thread_.join();
  else
    thread_.detach();
  return missing;
}

void LineFile::work(const std::shared_ptr<Shared>& shared) {
  Shared& s = *shared;
  std::unique_lock lock(s.mutex);
  while (!s.closed) {
    s.changed.wait(lock, [&] { return s.finishing || !s.lines.empty(); });
    if (s.lines.empty()) break;
    std::string batch;
    std::vector<std::size_t> ends{0};  // of lines in the batch, which may have any bytes
    while (ends.size() <= s.lines.size() && (ends.size() == 1 || batch.size() < kBatchBytes)) {
      batch += s.lines[ends.size() - 1];
      ends.push_back(batch.size());
    }
    s.writing_since = Clock::now();
    lock.unlock();

    std::size_t at = 0;
    int error = 0;
    while (at < batch.size() && error == 0) {
      const auto n = ::write(s.fd, batch.data() + at, batch.size() - at);
      if (n > 0)
        at += static_cast<std::size_t>(n);
      else if (n == 0 || errno != EINTR)
        error = n == 0 ? EIO : errno;
    }
    // A failed write may leave part of a line: it is cut off again.
    const std::size_t kept = *std::prev(std::ranges::upper_bound(ends, at));
    s.end += kept;
    bool torn = false;
    if (error != 0 && s.regular && at > kept)
      torn = ::ftruncate(s.fd, static_cast<off_t>(s.end)) != 0;

    lock.lock();
    s.writing_since.reset();
    s.trouble = error == 0 ? "" : std::strerror(error);
    s.moved += kept;
    for (std::size_t done = 0; done < kept;) {
      done += s.lines.front().size();
      s.bytes -= s.lines.front().size();
      s.lines.pop_front();
    }
    s.closed = error != 0 && (!s.regular || torn);
    s.changed.notify_all();
    if (error == 0) continue;
    if (s.finishing) break;
    s.changed.wait_for(lock, s.options.retry, [&] { return s.finishing; });
  }
  s.over = true;
  s.changed.notify_all();
}

}  // namespace starling
