#pragma once
// A command that ends in order blocks the signals that end it and looks for them between other
// things.

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/base/signals.h"

namespace starling::tools {

// STARLING_PARENT has the pid of a script that has started this command and waits for it: SIGTERM comes
// when that process ends, however it does. Threads: before others are started.
inline void end_with_the_script() {
  const char* const named = std::getenv("STARLING_PARENT");
  if (named == nullptr) return;
  const std::string parent = named;
  ::unsetenv("STARLING_PARENT");
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && std::to_string(::getppid()) != parent)
    ::raise(SIGTERM);
}

// Of the calling thread and those that it starts.
inline void block_ending_signals() {
  const sigset_t set = ending_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

// One that has come since the last call; 0 if none.
inline int pending_signal() {
  const sigset_t set = ending_signals();
  const timespec now{};
  const int signal = ::sigtimedwait(&set, nullptr, &now);
  return signal > 0 ? signal : 0;
}

}  // namespace starling::tools
