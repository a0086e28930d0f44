#include "tools/processes/children.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tools/processes/signals.h"

extern char** environ;

namespace starling::tools {
namespace {

using namespace std::string_literals;

// Lists processes whose parent we are: also those that spawn() does not know.
std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text);
    const auto end = text.rfind(')');  // ends the program's name, which may hold anything
    if (end == std::string::npos) continue;
    std::istringstream rest(text.substr(end + 1));
    char state = 0;
    pid_t parent = 0;
    rest >> state >> parent;
    if (parent == ::getpid() && state != 'Z') found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace

sigset_t Children::no_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  return none;
}

Children::Children(const sigset_t& blocked, std::string program)
    : blocked_(blocked), program_(std::move(program)) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Children::~Children() {
  kill_rest();
}

void Children::end_with_us() {
  end_with_us_ = true;
}

Result<pid_t> Children::spawn(const std::vector<std::string>& arguments, int out_fd, int err_fd,
                              int more_fd) {
  std::vector<std::string> words{"starling"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (!end_with_us_)
    return start(program_.c_str(), words, out_fd, err_fd, more_fd, blocked_, environ);
  std::string parent = name_of(EnvVar::kParent);
  for (const std::string& part : {"="s, std::to_string(::getpid()), " "s, std::to_string(SIGINT)})
    parent += part;
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    environment.push_back(*variable);
  environment.insert(environment.end(), {parent.data(), nullptr});
  return start(program_.c_str(), words, out_fd, err_fd, more_fd, blocked_, environment.data());
}

Result<pid_t> Children::spawn_command(const std::string& command, int out_fd, int err_fd) {
  return start("/bin/sh", {"sh", "-c", "exec " + command}, out_fd, err_fd, -1, no_signals(),
               environ);
}

Result<pid_t> Children::start(const char* program, const std::vector<std::string>& words,
                              int out_fd, int err_fd, int more_fd, const sigset_t& blocked,
                              char* const* environment) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  if (out_fd >= 0) ::posix_spawn_file_actions_adddup2(&files, out_fd, 1);
  if (err_fd >= 0) ::posix_spawn_file_actions_adddup2(&files, err_fd, 2);
  if (more_fd >= 0) ::posix_spawn_file_actions_adddup2(&files, more_fd, kMore);
  ::posix_spawn_file_actions_addclosefrom_np(&files, more_fd >= 0 ? kMore + 1 : kMore);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t all;
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &blocked);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, program, &files, &attributes, argv.data(), environment);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0)
    return Error(Code::kUnavailable,
                 std::string("cannot start a process: ") + std::strerror(error));
  running_.push_back(pid);
  return pid;
}

std::vector<ChildEnd> Children::reap() {
  std::vector<ChildEnd> ended;
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    ended.push_back({pid, code, std::erase(running_, pid) > 0});
  }
  return ended;
}

std::vector<pid_t> Children::adopted() const {
  std::vector<pid_t> others = children_of_this_process();
  std::erase_if(others, [this](pid_t pid) {
    return std::find(running_.begin(), running_.end(), pid) != running_.end();
  });
  return others;
}

void Children::order_all(Order order) const {
  for (const pid_t pid : running_) give_order(pid, order);
}

void Children::signal_all(int signal) const {
  for (const pid_t pid : running_) ::kill(pid, signal);
}

bool Children::wait_all(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    reap();
    siginfo_t any{};
    if (::waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) < 0) return true;  // no child at all
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::size_t Children::kill_rest() {
  std::set<pid_t> killed;  // a child that takes its time to die is seen again
  // Descendants of a killed child become our children: look again until there are none.
  for (int round = 0; round < 100 && !wait_all(std::chrono::milliseconds(0)); ++round) {
    const auto left = children_of_this_process();
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    killed.insert(left.begin(), left.end());
    wait_all(std::chrono::milliseconds(100));
  }
  running_.clear();
  return killed.size();
}

}  // namespace starling::tools
