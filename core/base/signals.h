#pragma once
// The signals by which people, supervisors and schedulers end a command in order, and the one by
// which `starling run` orders the processes that it has started.

#include <signal.h>

#include <cstring>
#include <ctime>
#include <string>

namespace starling {

// SIGUSR1 and SIGUSR2 too: Slurm (--signal) and submitit send them before the time is over.
inline constexpr int kEndingSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

// The ending signals without those that were ignored when the command began (nohup): they stay so.
inline sigset_t ending_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : kEndingSignals) {
    // A blocked signal would be queued although it is ignored.
    struct sigaction now {};
    if (::sigaction(s, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;
    ::sigaddset(&set, s);
  }
  return set;
}

// "SIGTERM"
inline std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

// A supervisor may send its signal to every process of a run (systemd, Slurm, docker). Processes
// that `starling run` has started must then outlive the last checkpoint, so they end by its orders
// alone: a real-time signal that no other process sends, whose value says what is to be done.
enum class Order : int {
  kStop = 0,  // end now; also what the kernel sends when `run` has died
  kAskCheckpoint = 1,
  kEndRun = 2,  // in order; in the bits above the lowest eight: the signal that `run` has got
};
inline int order_signal() {
  return SIGRTMIN;
}
inline void give_order(pid_t pid, Order order, int value = 0) {
  ::sigqueue(pid, order_signal(), sigval{.sival_int = static_cast<int>(order) | value << 8});
}
struct Ordered {
  Order order = Order::kStop;
  int value = 0;
};
inline Ordered order_of(const siginfo_t& info) {
  const int all = info.si_code == SI_QUEUE ? info.si_value.sival_int : 0;
  return {static_cast<Order>(all & 0xff), all >> 8};
}

// The signals that are blocked at the start of a process that `run` has started, so that none ends
// it before it can look for any.
inline sigset_t blocked_in_children() {
  sigset_t set = ending_signals();
  ::sigaddset(&set, order_signal());
  return set;
}

}  // namespace starling
