#include "tools/starling/script_jobs.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace starling::tools {

namespace fs = std::filesystem;

ScriptJobs::~ScriptJobs() {
  for (const int fd : files_) ::close(fd);
}

Result<> ScriptJobs::take(std::string& path) {
  std::error_code error;
  if (!path.ends_with(".py")) return ok();
  if (!fs::is_regular_file(path, error))
    return Error(Code::kBadInput, "no such script; reading " + path);
  const int fd = ::memfd_create("starling-job", MFD_CLOEXEC);
  if (fd < 0)
    return Error(Code::kUnavailable, std::string("no memory for a job: ") + std::strerror(errno));
  files_.push_back(fd);
  // Processes of ours must find the file, too.
  const std::string file = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  ::setenv("STARLING_WRITE_JOB", file.c_str(), 1);
  const char* const named = std::getenv("STARLING_PYTHON");
  std::string python = named != nullptr && *named != '\0' ? named : "python3";
  std::vector<std::string> words = {python, path};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int failed =
      ::posix_spawnp(&pid, python.c_str(), nullptr, nullptr, arguments.data(), environ);
  ::unsetenv("STARLING_WRITE_JOB");
  if (failed != 0)
    return Error(Code::kBadInput, "cannot start " + python + ": " + std::strerror(failed));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  struct stat written {};
  if (::fstat(fd, &written) != 0 || written.st_size == 0)
    return Error(Code::kBadInput,
                 "the script has described no job: expected a call of starling.train(), or a loop "
                 "over starling.Job; " +
                     path);
  path = file;
  return ok();
}

Result<> ScriptJobs::given(const std::string& script) const {
  if (arguments_.empty() || !files_.empty() || !script.empty()) return ok();
  return Error(Code::kBadInput,
               "what follows -- are the arguments of a script (.py), and none is named");
}

}  // namespace starling::tools
