#include "actors/scheduling.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace starling::actors {
namespace {

// SchedAttributes is as in <linux/sched/types.h>, which cannot be included beside <sched.h>.
struct SchedAttributes {
  std::uint32_t size = sizeof(SchedAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;  // of SCHED_OTHER: the slice; 0 = the usual one
  std::uint64_t deadline_ns = 0, period_ns = 0;
};
static_assert(sizeof(SchedAttributes) == 48);

// Where the kernel does not allow or know it, everything works as before, only later.
void set(int behind, std::chrono::nanoseconds slice) {
  SchedAttributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;  // another one was asked for: chrt(1)
  // The main thread has the niceness with which the process was started.
  attributes.nice =
      std::min(::getpriority(PRIO_PROCESS, static_cast<id_t>(::getpid())) + behind, 19);
  attributes.runtime_ns = static_cast<std::uint64_t>(slice.count());
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void run_promptly() {
  set(0, std::chrono::microseconds(100));
}

void run_behind() {
  set(10, std::chrono::microseconds(0));
}

}  // namespace starling::actors
