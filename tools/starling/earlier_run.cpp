#include "tools/starling/earlier_run.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/exit.h"
#include "core/observe/event_reader.h"
#include "tools/starling/divergence.h"
#include "tools/starling/exit.h"
#include "tools/starling/model_file.h"
#include "tools/starling/prepared_run.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEvents = "events.jsonl";
// Beside a model; the adapter's are in its place where a script trains one (model_file.py).
constexpr std::array<std::string_view, 4> kOfModel{
    "config.json", "generation_config.json", "adapter_config.json", "adapter_model.safetensors"};
constexpr std::size_t kLookedAt = 10'000;  // entries of a folder

// A DeadRun holds the events of a run that no process writes any more. Threads: a value.
class DeadRun {
 public:
  explicit DeadRun(const fs::path& folder) {
    fd_ = ::open((folder / kEvents).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) != 0 || !still_there(folder)) return;
    std::ifstream file(folder / kEvents, std::ios::binary);
    std::string text;
    if (!std::getline(file, text)) return;
    auto line = read_event(text);
    if (!line || !line.value().event) return;
    const Event& first = *line.value().event;
    if (const auto* started = std::get_if<event::Started>(&first)) start_ = *started;
    failed_at_once_ = std::holds_alternative<event::Failed>(first);
  }
  ~DeadRun() {
    if (fd_ >= 0) ::close(fd_);
  }
  DeadRun(const DeadRun&) = delete;
  DeadRun& operator=(const DeadRun&) = delete;

  // Returns none if there is no run, it goes on, or the events are something else than a file.
  const std::optional<event::Started>& start() const { return start_; }
  // Returns whether it could not begin: its address cannot be listened at, for example.
  bool failed_at_once() const { return failed_at_once_; }

 private:
  // Whether the folder has the file that is locked: another command may have moved it away and begun.
  bool still_there(const fs::path& folder) const {
    struct stat locked {};
    struct stat there {};
    return ::fstat(fd_, &locked) == 0 && ::lstat((folder / kEvents).c_str(), &there) == 0 &&
           S_ISREG(locked.st_mode) && locked.st_dev == there.st_dev &&
           locked.st_ino == there.st_ino;
  }

  int fd_ = -1;
  std::optional<event::Started> start_;
  bool failed_at_once_ = false;
};

bool of_run(const std::string& name) {
  return name == kEvents || name == "job.toml" || name == "loss.svg" ||
         name.starts_with("coordinator-");
}

fs::path free_name(const fs::path& folder) {
  for (std::size_t i = 1;; ++i) {
    fs::path name = folder / ("run-" + std::to_string(i));
    std::error_code ignored;
    if (!fs::exists(fs::symlink_status(name, ignored))) return name;
  }
}

// Moves the run's files into a new folder beside them, `with_model` the model too. Returns that folder.
Result<std::string> put_aside(const std::string& folder, bool with_model) {
  const fs::path aside = free_name(folder);
  std::error_code error;
  fs::create_directory(aside, error);
  std::vector<fs::path> files;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (of_run(name) ||
        (with_model && (name == kModelFile || std::ranges::count(kOfModel, name) > 0)))
      files.push_back(at->path());
  }
  // The run is known by its events, so these go last: what is killed meanwhile is done again.
  std::ranges::partition(files, [](const fs::path& file) { return file.filename() != kEvents; });
  for (std::size_t i = 0; !error && i < files.size(); ++i)
    fs::rename(files[i], aside / files[i].filename(), error);
  if (error)
    return Error(Code::kBadInput, "cannot move the files of the run before to " + aside.string() +
                                      ": " + error.message());
  return aside.string();
}

// The first event of kind E in the folder's file.
template <class E>
std::optional<E> first_event(const std::string& folder) {
  std::ifstream file(fs::path(folder) / kEvents, std::ios::binary);
  for (std::string text; std::getline(file, text);) {
    const auto line = read_event(text);
    if (!line || !line.value().event) continue;
    if (const auto* event = std::get_if<E>(&*line.value().event)) return *event;
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> put_aside_earlier_run(const std::string& folder, const Job& job) {
  const DeadRun run(folder);
  if (!run.start() || !run.start()->coordinator.empty()) return std::string();
  const auto was = parse_job(run.start()->job, "/");
  if (!was || was.value().name != job.name ||
      !(may_go_on_from(job, state_hash(was.value())) ||
        may_go_on_from(was.value(), state_hash(job))))
    return std::string();
  std::error_code error;
  return put_aside(folder, fs::exists(fs::path(folder) / model_file_of(job), error));
}

Result<std::string> put_aside_run_without_steps(const std::string& folder) {
  const DeadRun run(folder);
  const bool began = run.start() && run.start()->coordinator.empty();
  if (!began && !run.failed_at_once()) return std::string();
  if (first_event<event::StepPassed>(folder) || first_event<event::Done>(folder))
    return std::string();
  return put_aside(folder, false);
}

std::optional<Version> doubt_told_in(const std::string& folder) {
  std::ifstream file(fs::path(folder) / kEvents, std::ios::binary);
  std::optional<Version> first;
  Version model_begun = 0;  // of one that keeps something: earlier runs of the job had the same
  for (std::string text; std::getline(file, text);) {
    const auto line = read_event(text);
    if (!line || !line.value().event) continue;
    const Event& event = *line.value().event;
    if (const auto* started = std::get_if<event::Started>(&event)) {
      const auto job = parse_job(started->job, "/");
      if (job && !kind_of(job.value().model).may_keep_state) model_begun = started->from;
    }
    const auto* failed = std::get_if<event::Failed>(&event);
    if (std::holds_alternative<event::Mismatch>(event) ||
        (failed && failed->code == exit_code(Code::kInternal)))
      first = std::min(first.value_or(model_begun), model_begun);
    if (const auto* tainted = std::get_if<event::Tainted>(&event))
      first = std::min(first.value_or(tainted->first), tainted->first);
  }
  return first;
}

std::optional<event::Done> finished_run(const std::string& folder, const Job& job) {
  const DeadRun run(folder);
  std::error_code error;
  if (!run.start() || !run.start()->coordinator.empty() || run.start()->job_hash != job_hash(job) ||
      !fs::is_regular_file(fs::path(folder) / model_file_of(job), error))
    return std::nullopt;
  return first_event<event::Done>(folder);
}

Version told_in(const std::string& path) {
  Version told = 0;
  std::ifstream file(path, std::ios::binary);
  constexpr std::string_view kStep = "\"ev\":\"step\"", kVersion = "\"version\":";
  for (std::string text; std::getline(file, text);) {  // perhaps of a million steps
    const std::size_t at = text.find(kVersion);
    if (at == std::string::npos || text.find(kStep) == std::string::npos) continue;
    std::uint64_t version = 0;
    std::from_chars(text.data() + at + kVersion.size(), text.data() + text.size(), version);
    told = std::max(told, Version(version) + 1);
  }
  return told;
}

int tell_finished(const event::Done& done, const std::string& folder) {
  Divergence divergence;
  std::ifstream file(fs::path(folder) / kEvents, std::ios::binary);
  for (std::string text; std::getline(file, text);) {
    const auto line = read_event(text);
    if (!line || !line.value().event) continue;
    if (const auto* started = std::get_if<event::Started>(&*line.value().event))
      divergence.begins_at(started->from);
    if (const auto* step = std::get_if<event::StepPassed>(&*line.value().event))
      divergence.take(step->record);
  }
  std::printf("done before: version %llu, digest %s, in %s\n",
              static_cast<unsigned long long>(done.version.value()), to_string(done.digest).c_str(),
              folder.c_str());
  const std::string diverged = divergence.text();
  return diverged.empty() ? kExitDone : fail(kExitRefuted, diverged);
}

std::string remove_keys_of_dead_runs(const std::string& folder) {
  constexpr std::string_view kEnd = ".keys";
  std::vector<std::string> found;
  std::size_t looked_at = 0;
  std::error_code error;
  for (fs::directory_iterator at(fs::path(folder).parent_path(), error), end;
       !error && at != end && looked_at < kLookedAt; at.increment(error), ++looked_at)
    if (at->path().extension() == kEnd) found.push_back(at->path());
  std::string removed;
  for (const std::string& path : found) {
    const DeadRun run(path.substr(0, path.size() - kEnd.size()));
    std::error_code ignored;
    const bool folder_of_keys = fs::is_directory(fs::symlink_status(path, ignored));
    if (!folder_of_keys || !run.start() || run.start()->keys != path) continue;
    fs::remove_all(path, ignored);
    removed += (removed.empty() ? "" : ", ") + path;
  }
  return removed;
}

}  // namespace starling::tools
