#pragma once
// Children are a command's child processes: each has a process group, and none is left behind.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/signals.h"

namespace starling::tools {

struct ChildEnd {
  pid_t pid = 0;
  int status = 0;     // exit status, or 128 + the signal that killed it
  bool known = true;  // started by spawn(); else a descendant whose parent had died
};

// Threads: belongs to one thread. One object a process: it waits for every child.
class Children {
 public:
  // Makes this process the parent of descendants whose own parents die. `program`: what spawn()
  // starts, by default this very program; its processes begin with these signals blocked.
  explicit Children(const sigset_t& blocked = no_signals(), std::string program = "/proc/self/exe");
  static sigset_t no_signals();
  ~Children();  // kills all that are left
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Has later children get SIGINT when this process has died, however that came (STARLING_PARENT,
  // signals.h): a run ends in order, a worker at once. Call it on a thread that lives as long as
  // the process: the kernel reports the end of the thread that started a child.
  void end_with_us();

  // Starts the program with these arguments; stdin is
  // /dev/null, stdout `out_fd`, stderr `err_fd` and kMore `more_fd`
  // if >= 0. Errors: kUnavailable  no process could be started.
  Result<pid_t> spawn(const std::vector<std::string>& arguments, int out_fd = -1, int err_fd = -1,
                      int more_fd = -1);
  static constexpr int kMore = 3;

  // Starts a program with its arguments as one types them; a shell reads them, and
  // becomes that program. Errors: as spawn(); a command that is no program ends with 127.
  Result<pid_t> spawn_command(const std::string& command, int out_fd = -1, int err_fd = -1);

  // Returns children that have ended since the last call. Never waits.
  std::vector<ChildEnd> reap();
  std::size_t running() const { return running_.size(); }
  // Returns processes that have become our children, as their parents have died.
  std::vector<pid_t> adopted() const;
  void signal_all(int signal) const;
  void order_all(Order order) const;  // only those that heed orders (core/base/signals.h)
  // Waits; true: no descendant of this process is left.
  bool wait_all(std::chrono::milliseconds time);
  // Kills every descendant that is left; returns how many there were.
  std::size_t kill_rest();

 private:
  Result<pid_t> start(const char* program, const std::vector<std::string>& words, int out_fd,
                      int err_fd, int more_fd, const sigset_t& blocked, char* const* environment);

  const sigset_t blocked_;
  const std::string program_;
  bool end_with_us_ = false;
  std::vector<pid_t> running_;
};

}  // namespace starling::tools
