#include "tools/chaos/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/fd.h"
#include "core/base/programs.h"

extern char** environ;

namespace starling::chaos {

namespace {

constexpr std::size_t kAnswerBytesMax = 16u << 20;
constexpr const char* kSystemFolders =
    "/usr/sbin:/sbin:/usr/bin:/bin";  // PATH of many users lacks some

// Makes a file in memory: neither side ever waits for the other, as with a full pipe.
Fd memory() {
  return Fd(::memfd_create("starling-program", MFD_CLOEXEC));
}

std::string contents(const Fd& file) {
  std::string text;
  char buffer[8192];
  for (ssize_t n;
       text.size() < kAnswerBytesMax &&
       (n = ::pread(file.get(), buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

Result<int> spawn_and_wait(const std::string& path, std::vector<std::string>& words,
                           const Fd* const (&files)[3]) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (int i = 0; i < 3; ++i) ::posix_spawn_file_actions_adddup2(&actions, files[i]->get(), i);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);  // a terminal's Ctrl-C is for us
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, path.c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return Error(Code::kUnavailable, "cannot start " + path + ": " + std::strerror(error));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return Error(Code::kUnavailable, "cannot wait for " + path);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

Result<std::string> run_program(std::vector<std::string> words, const std::string& input) {
  const std::string name = words.at(0), path = find_program(name, kSystemFolders);
  if (path.empty())
    return Error(Code::kUnavailable, "there is no command `" + name + "` (package iproute2)");
  const Fd in = memory(), out = memory(), err = memory();
  if (!in || !out || !err ||
      ::pwrite(in.get(), input.data(), input.size(), 0) != static_cast<ssize_t>(input.size()))
    return Error(Code::kUnavailable,
                 std::string("no memory for a program's words: ") + std::strerror(errno));
  STARLING_TRY(status, spawn_and_wait(path, words, {&in, &out, &err}));
  if (status == 0) return contents(out);
  const std::string why = contents(err);
  return Error(Code::kUnavailable, name + ": " +
                                       (why.empty() ? "exit code " + std::to_string(status)
                                                    : why.substr(0, why.find('\n'))));
}

}  // namespace starling::chaos
