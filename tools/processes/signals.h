#pragma once
// SIGTERM, SIGINT and SIGHUP end a command in order: it blocks them and looks for them between
// other things. One that was ignored when the command began (nohup) stays so.

#include <signal.h>

#include <ctime>
#include <initializer_list>

namespace starling::tools {

inline sigset_t ending_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP}) {
    // A blocked signal would be queued although it is ignored.
    struct sigaction now {};
    if (::sigaction(s, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;
    ::sigaddset(&set, s);
  }
  return set;
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
