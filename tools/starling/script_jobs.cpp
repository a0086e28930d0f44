#include "tools/starling/script_jobs.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/base/programs.h"
#include "core/base/signals.h"
#include "core/base/system_error.h"

namespace starling::tools {

namespace fs = std::filesystem;
namespace {

constexpr int kPollMs = 50;
constexpr std::size_t kLineMax = 500;  // of an error's text

// A LastLine passes on what a script writes to stderr, and keeps the last line: a traceback ends in the
// reason. Threads: belongs to one thread.
class LastLine {
 public:
  ~LastLine() {
    for (const int end : ends_)
      if (end >= 0) ::close(end);
  }
  bool open() { return ::pipe2(ends_, O_CLOEXEC) == 0; }
  int end_of_script() const { return ends_[1]; }

  // Returns the status of the process when it has ended. A process that it leaves behind may
  // keep the pipe open, so its end of file is not waited for.
  int until_end_of(pid_t pid) {
    ::close(std::exchange(ends_[1], -1));
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    int status = 0;
    for (bool open = true;;) {
      const pid_t gone = ::waitpid(pid, &status, open ? WNOHANG : 0);
      open = read();
      if (gone == pid || (gone < 0 && errno != EINTR)) return status;
      if (!open) continue;
      pollfd readable{ends_[0], POLLIN, 0};
      ::poll(&readable, 1, kPollMs);
    }
  }

  // Empty: nothing was written.
  const std::string& text() const { return line_.empty() ? last_ : line_; }

 private:
  // Reads what is there. Returns false at the end of file.
  bool read() {
    char buffer[4096];
    for (;;) {
      const ssize_t n = ::read(ends_[0], buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n < 0 && errno == EAGAIN;
      std::fwrite(buffer, 1, static_cast<std::size_t>(n), stderr);
      for (const char c : std::string_view(buffer, static_cast<std::size_t>(n))) {
        if (c == '\n' && !line_.empty()) last_ = std::exchange(line_, {});
        if (c != '\n' && c != '\r' && line_.size() < kLineMax) line_ += c;
      }
    }
  }

  int ends_[2] = {-1, -1};
  std::string line_, last_;  // unfinished; the last whole one with text
};

// Says in one line why there is no job.
Error no_job(int status, const std::string& last_line, const std::string& path) {
  if (WIFSIGNALED(status))
    return Error(Code::kBadInput, "the script was ended by " + signal_name(WTERMSIG(status)) +
                                      " before it described a job; " + path);
  if (WEXITSTATUS(status) != 0)
    return Error(Code::kBadInput, "the script ended with exit code " +
                                      std::to_string(WEXITSTATUS(status)) +
                                      " before it described a job" +
                                      (last_line.empty() ? "" : ": " + last_line) + "; " + path);
  return Error(Code::kBadInput,
               "the script has described no job: expected a call of starling.train(), or a loop "
               "over starling.Job; " +
                   path);
}

}  // namespace

ScriptJobs::~ScriptJobs() {
  for (const int fd : files_) ::close(fd);
}

Result<> ScriptJobs::take(std::string& path) {
  std::error_code error;
  if (!path.ends_with(".py")) return ok();
  if (!fs::is_regular_file(path, error))
    return Error(Code::kBadInput, "no such script; reading " + path);
  const int fd = ::memfd_create("starling-job", MFD_CLOEXEC);
  if (fd < 0) return unavailable("no memory for a job");
  files_.push_back(fd);
  // Processes of ours must find the file, too.
  const std::string file = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  ::setenv("STARLING_WRITE_JOB", file.c_str(), 1);
  std::string python = python_program();
  std::vector<std::string> words = {python, path};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  LastLine errors;
  if (!errors.open()) return unavailable("cannot make a pipe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, errors.end_of_script(), STDERR_FILENO);
  pid_t pid = 0;
  const int failed =
      ::posix_spawnp(&pid, python.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::unsetenv("STARLING_WRITE_JOB");
  if (failed != 0)
    return Error(Code::kBadInput, "cannot start " + python + ": " + std::strerror(failed));
  const int status = errors.until_end_of(pid);
  struct stat written {};
  if (::fstat(fd, &written) != 0 || written.st_size == 0)
    return no_job(status, errors.text(), path);
  path = file;
  return ok();
}

Result<> ScriptJobs::given(const std::string& script) const {
  if (arguments_.empty() || !files_.empty() || !script.empty()) return ok();
  return Error(Code::kBadInput,
               "what follows -- are the arguments of a script (.py), and none is named");
}

}  // namespace starling::tools
