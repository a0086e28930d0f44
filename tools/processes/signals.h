#pragma once
// A command that ends in order blocks the signals that
// end it, and looks for them between its other work.

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/environment.h"
#include "core/base/signals.h"

namespace starling::tools {

// STARLING_PARENT has the pid of the process that has started this command
// and waits for it, a script or a command that runs others; after a space
// the number of the signal that ends this command, if not SIGTERM.
// Sends that signal when that process ends, however it does. Call it before any thread starts.
inline void end_with_the_parent(const Environment& environment) {
  if (!environment.is_set(EnvVar::kParent)) return;
  char* end = nullptr;
  const long parent = std::strtol(environment.value(EnvVar::kParent).c_str(), &end, 10);
  const int signal = *end == ' ' ? std::atoi(end) : SIGTERM;
  ::unsetenv(name_of(EnvVar::kParent));
  if (::prctl(PR_SET_PDEATHSIG, signal) == 0 && ::getppid() != parent) ::raise(signal);
}

// A script sends this signal to the run that it has started when its stop= was true: the script
// goes back and ends the job itself.
inline int script_stop_signal() {
  return SIGRTMIN + 1;
}

inline sigset_t signals_that_end() {
  sigset_t set = ending_signals();
  ::sigaddset(&set, script_stop_signal());
  return set;
}

// Blocks them in the calling thread and those that it starts.
inline void block_ending_signals() {
  const sigset_t set = signals_that_end();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

// Returns a signal that has come since the last call; 0 if none.
inline int pending_signal() {
  const sigset_t set = signals_that_end();
  const timespec now{};
  const int signal = ::sigtimedwait(&set, nullptr, &now);
  return signal > 0 ? signal : 0;
}

}  // namespace starling::tools
