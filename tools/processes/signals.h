#pragma once
// A command that ends in order blocks the signals that end it and looks for them between other
// things.

#include "core/base/signals.h"

namespace starling::tools {

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
