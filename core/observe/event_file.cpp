// Where events go and come from: a folder that is new, or one that is gone on with; a pipe; lines
// of another writer.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "core/observe/event_line.h"
#include "core/observe/events.h"

namespace starling {
namespace {

using Json = EventJson;

// Null is what a number that is not finite was written as; all of those are one NaN here.
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

EpochId epoch_of(const Json& line, const char* key = "epoch") {
  const std::string text = line.at(key).get<std::string>();
  std::size_t dot = 0;
  EpochId epoch;
  epoch.term = std::stoull(text, &dot);
  epoch.counter = std::stoull(text.substr(dot + 1));  // throws where it is missing
  return epoch;
}

StepRecord record_of(const Json& line) {
  StepRecord record;
  record.version = line.at("version").get<Version>();
  record.loss = number_of(line.at("loss"));
  record.norm = number_of(line.at("norm"));
  record.tokens = line.at("tokens").get<std::uint64_t>();
  record.skipped = line.at("skipped").get<bool>();
  record.ledger_hash = std::stoull(line.at("ledger_hash").get<std::string>(), nullptr, 16);
  if (line.contains("digest")) {
    const std::string digest = line.at("digest").get<std::string>();  // the high word first
    record.digest = {std::stoull(digest.substr(16), nullptr, 16),
                     std::stoull(digest.substr(0, 16), nullptr, 16)};
  }
  return record;
}

struct Opening {
  std::string job_name, job_hash, coordinator;
  std::int64_t began_us = 0;
};

// Of the first line; nothing if it is no `start`.
std::optional<Opening> opening_of(const std::string& text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object() || line.value("ev", "") != "start") return std::nullopt;
  return Opening{line.value("name", ""), line.value("job_hash", ""), line.value("coordinator", ""),
                 utc_of(line.value("time", ""))};
}

}  // namespace

Result<std::unique_ptr<EventWriter>> EventWriter::open(const std::string& folder,
                                                       const std::optional<Owner>& owner) {
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
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    return close_and(refused("is in use by another run, expected one of its own"));
  // Asked again under the lock: a run may have written and ended in between.
  const bool there = ::fstat(fd, &status) != 0 || status.st_size != 0;
  if (there && !owner)
    return close_and(refused("already holds a run (events.jsonl), expected a new or empty one"));
  writer->opened_ns_ = monotonic_ns();
  if (there)
    if (auto read = writer->go_on(fd, *owner); !read) return close_and(std::move(read).error());
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
    return event_line("dropped", Json{{"lines", lines}, {"why", "they could not be written"}},
                      began);
  });
}

// Learns what is there, as if it were told again, and cuts a last line off that is not whole.
Result<> EventWriter::go_on(int fd, const Owner& owner) {
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  std::uint64_t whole = 0, size = 0;
  double t = 0;
  std::optional<Opening> opening;
  for (bool first = true; std::getline(file, line); first = false) {
    size += line.size();
    if (file.eof()) break;  // no end of line follows it
    whole = ++size;
    if (first) opening = opening_of(line);
    char hash[17];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(owner.job_hash));
    const bool own =
        opening && opening->job_hash == hash && opening->coordinator == owner.coordinator;
    if (first && !own) {
      const std::string what =
          !opening ? "of something else"
                   : "of job " + opening->job_name +
                         (opening->job_hash == hash ? "" : " (another one by its keys)") +
                         (opening->coordinator.empty() ? ", by `starling run`"
                                                       : " at " + opening->coordinator);
      return Error(Code::kBadInput, path_ + " holds events " + what + ", expected those of job " +
                                        owner.job_name + " at " + owner.coordinator +
                                        "; choose another output directory");
    }
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object() && parsed.contains("t") && parsed["t"].is_number())
      t = std::max(t, parsed["t"].get<double>());
    (void)copy(line);  // what is no event, audit says
  }
  if (file.bad()) return Error(Code::kBadInput, "cannot read " + path_);
  cut_bytes_ = size - whole;
  if (size != whole && ::ftruncate(fd, static_cast<off_t>(whole)) != 0)
    return Error(Code::kBadInput,
                 "cannot cut the last line of " + path_ + " (" + std::strerror(errno) + ")");
  if (whole == 0) cut_bytes_.reset();  // there was not even a `start`
  const double since = opening ? double(utc_us() - opening->began_us) / 1e6 : 0;
  opened_ns_ = monotonic_ns() - static_cast<std::int64_t>(std::max(t, since) * 1e9);
  return ok();
}

Result<bool> EventWriter::copy(const std::string& text) {
  try {  // at() and get() throw where a line lacks something
    Json line = Json::parse(text);
    const std::string kind = line.at("ev").get<std::string>();
    if (kind == "step") {
      const double ms = number_of(line.at("ms"));
      const auto world = line.at("world").get<std::uint32_t>();
      return step(record_of(line), epoch_of(line), world, ms);
    }
    if (kind == "ledger")
      return ledger({line.at("version").get<Version>(), epoch_of(line),
                     line.at("workers").get<EventMemory::Workers>()});
    if (kind == "restart")
      return restart(line.at("version").get<Version>(), epoch_of(line, "lost"),
                     line.at("cause").get<std::string>());
    line.erase("t");
    line.erase("time");
    line.erase("ev");
    const bool first = kind == "worker"  ? first_of_worker(line.at("id").get<std::uint64_t>(),
                                                           line.at("what").get<std::string>())
                       : kind == "epoch" ? first_of_epoch(line.at("id").get<std::string>())
                                         : memory_.first(kind + line.dump());
    if (!first) return false;
    return write(kind.c_str(), std::move(line));
  } catch (const std::exception& error) {
    return Error(Code::kBadInput,
                 std::string("not a line of events (") + error.what() + "); " + text.substr(0, 80));
  }
}

}  // namespace starling
