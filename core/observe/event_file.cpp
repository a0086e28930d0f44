// The places where events go: a folder that is new, or one that is gone on with; a pipe.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/base/file_system.h"
#include "core/observe/event_line.h"
#include "core/observe/event_reader.h"
#include "core/observe/events.h"

namespace starling {
namespace {

// Names the run that wrote these events, for an error of a run that cannot go on with them.
std::string told_by(const event::Started& started, bool same_job) {
  return "of job " + started.name + (same_job ? "" : " (another one by its keys)") +
         (started.coordinator.empty() ? ", by `starling run`" : " at " + started.coordinator);
}

}  // namespace

Result<std::unique_ptr<EventWriter>> EventWriter::open(
    const std::string& folder, const std::optional<Owner>& owner,
    const std::function<void(const Event&)>& earlier) {
  const auto refused = [&](const std::string& why) {
    return Error(Code::kBadInput, "output directory " + why + "; " + folder);
  };
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return refused("cannot be made (" + error.message() + ")");

  std::unique_ptr<EventWriter> writer(new EventWriter);
  writer->path_ = (std::filesystem::path(folder) / "events.jsonl").string();
  const int fd = ::open(writer->path_.c_str(),
                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    const int why = errno;
    if (fd >= 0) ::close(fd);
    return refused(std::string("cannot be written (") + std::strerror(why) + ")");
  }
  const auto close_and = [fd](Error refusal) {
    ::close(fd);
    return refusal;
  };
  if (!S_ISREG(status.st_mode))
    return close_and(refused("has an events.jsonl that is not a regular file"));
  auto locked = lock_file(fd, folder);
  if (!locked) return close_and(std::move(locked).error());
  if (!locked.value())
    return close_and(refused("is in use by another run, expected one of its own"));
  // Look again under the lock: a run may have written and ended in between.
  const bool there = ::fstat(fd, &status) != 0 || status.st_size != 0;
  if (there && !owner)
    return close_and(refused("already holds a run (events.jsonl), expected a new or empty one"));
  writer->opened_ns_ = monotonic_ns();
  if (there)
    if (auto read = writer->go_on(fd, *owner, earlier); !read)
      return close_and(std::move(read).error());
  writer->begin_file(fd);
  return writer;
}

std::unique_ptr<EventWriter> EventWriter::into(int fd) {
  std::unique_ptr<EventWriter> writer(new EventWriter);
  writer->path_ = "a pipe";
  writer->opened_ns_ = monotonic_ns();
  writer->begin_file(fd);
  return writer;
}

void EventWriter::begin_file(int fd) {
  file_ = std::make_unique<LineFile>(fd, [began = opened_ns_](std::uint64_t lines) {
    return event_line(event::Dropped{lines, "they could not be written"}, began);
  });
}

// Learns what is there, as if it were told again, and cuts a last line off that is not whole.
Result<> EventWriter::go_on(int fd, const Owner& owner,
                            const std::function<void(const Event&)>& earlier) {
  std::ifstream file(path_, std::ios::binary);
  std::string text;
  std::uint64_t whole = 0, size = 0;
  double t = 0, since = 0;
  for (bool first = true; std::getline(file, text); first = false) {
    size += text.size();
    if (file.eof()) break;  // no end of line follows it
    whole = ++size;
    const auto line = read_event(text);
    const bool event = line && line.value().event;
    if (first) {
      const auto* started = event ? std::get_if<event::Started>(&*line.value().event) : nullptr;
      const bool same_job = started && started->job_hash == owner.job_hash;
      if (!same_job || started->coordinator != owner.coordinator)
        return Error(Code::kBadInput,
                     path_ + " holds events " +
                         (started ? told_by(*started, same_job) : "of something else") +
                         ", expected those of job " + owner.job_name + " at " + owner.coordinator +
                         "; choose another output directory");
      since = double(utc_us() - utc_of(line.value().time)) / 1e6;
    }
    if (line) t = std::max(t, line.value().t);
    if (!event) continue;  // audit says what it is
    if (earlier) earlier(*line.value().event);
    (void)copy(*line.value().event);
  }
  if (file.bad()) return Error(Code::kBadInput, "cannot read " + path_);
  cut_bytes_ = size - whole;
  if (size != whole && ::ftruncate(fd, static_cast<off_t>(whole)) != 0)
    return Error(Code::kBadInput,
                 "cannot cut the last line of " + path_ + " (" + std::strerror(errno) + ")");
  if (whole == 0) cut_bytes_.reset();  // there was not even a `start`
  opened_ns_ = monotonic_ns() - static_cast<std::int64_t>(std::max(t, since) * 1e9);
  return ok();
}

}  // namespace starling
