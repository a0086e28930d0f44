#pragma once
// Threads have names, by which people find out which one of a process computes, waits or hangs
// (`starling diagnose`, top -H, gdb).

#include <sys/prctl.h>

#include <cstddef>

namespace starling {

// Names the calling thread. The kernel keeps 15 characters.
template <std::size_t N>
void name_thread(const char (&name)[N]) {
  static_assert(N <= 16, "a thread's name has 15 characters at most");
  ::prctl(PR_SET_NAME, name);
}

}  // namespace starling
