#include "core/observe/line_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
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

  Mutex mutex;
  CondVar changed;
  std::deque<std::string> lines STARLING_GUARDED_BY(mutex);
  std::size_t bytes STARLING_GUARDED_BY(mutex) = 0;      // of `lines`
  std::uint64_t moved STARLING_GUARDED_BY(mutex) = 0;    // bytes written so far
  std::uint64_t dropped STARLING_GUARDED_BY(mutex) = 0;  // since the last line that was taken
  std::uint64_t missing STARLING_GUARDED_BY(mutex) = 0;  // in all
  std::string trouble STARLING_GUARDED_BY(mutex);  // why the last write failed; empty: it did not
  std::optional<Clock::time_point> writing_since STARLING_GUARDED_BY(mutex);
  bool told STARLING_GUARDED_BY(mutex) = false;  // that there is trouble
  std::uint64_t missing_told STARLING_GUARDED_BY(mutex) = 0;
  // No line comes any more: try once more, then end.
  bool finishing STARLING_GUARDED_BY(mutex) = false;
  bool closed STARLING_GUARDED_BY(mutex) = false;
  bool over STARLING_GUARDED_BY(mutex) = false;
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
  const MutexLock lock(s.mutex);
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
  const MutexLock lock(s.mutex);
  std::uint64_t moved = s.moved;
  auto until = Clock::now() + s.options.patience;
  while (s.bytes != 0 && !s.closed && !s.over) {
    const bool in_time = s.changed.wait_until(s.mutex, until);
    if (s.moved == moved && !in_time) break;
    if (s.moved != moved) until = Clock::now() + s.options.patience;
    moved = s.moved;
  }
  return s.bytes == 0;
}

std::optional<std::string> LineFile::news() {
  Shared& s = *shared_;
  const MutexLock lock(s.mutex);
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
  const MutexLock lock(shared_->mutex);
  return shared_->closed;
}

std::uint64_t LineFile::finish() {
  Shared& s = *shared_;
  if (!thread_.joinable()) {
    const MutexLock lock(s.mutex);
    return s.missing;
  }
  {
    const MutexLock lock(s.mutex);
    if (s.dropped > 0) {
      std::string gap = s.gap(std::exchange(s.dropped, 0));
      s.bytes += gap.size();
      s.lines.push_back(std::move(gap));
    }
    s.finishing = true;
    s.changed.notify_all();
  }
  const auto patience = flush() ? s.options.patience : std::chrono::milliseconds(0);
  MutexLock lock(s.mutex);
  s.missing += s.lines.size();
  const auto until = Clock::now() + patience;
  while (!s.over && s.changed.wait_until(s.mutex, until)) continue;
  const bool over = s.over;
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
  MutexLock lock(s.mutex);
  while (!s.closed) {
    while (!s.finishing && s.lines.empty()) s.changed.wait(s.mutex);
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
    const auto again = Clock::now() + s.options.retry;
    while (!s.finishing && s.changed.wait_until(s.mutex, again)) continue;
  }
  s.over = true;
  s.changed.notify_all();
}

}  // namespace starling
