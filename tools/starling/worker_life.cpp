#include "tools/starling/worker_life.h"

#include <signal.h>

#include <chrono>
#include <optional>

#include "actors/guard/status.h"
#include "core/base/exit.h"
#include "core/base/signals.h"
#include "core/observe/progress.h"
#include "tools/starling/spectator.h"
#include "tools/starling/watchdog.h"

namespace starling::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kWorkerPoll{50};
// A terminal or a process group may send a signal to both worker and guard, which passes it on.
constexpr milliseconds kWorkerSameSignal{500};

}  // namespace

Asked asked_by_signal(const WorkerCommand& command) {
  const sigset_t set = blocked_in_children();
  const timespec now{};
  siginfo_t info{};
  const int signal = ::sigtimedwait(&set, &info, &now);
  if (signal <= 0) return {};
  if (signal == order_signal()) return {SIGTERM, false, order_of(info).order == Order::kStop};
  const bool leaves = command.child || (signal != SIGINT && signal != SIGHUP);
  return {signal, leaves, !leaves};
}

int wait_for_end(WorkerInbox& inbox, const caf::actor& worker, const WorkerCommand& command,
                 actors::LatestStep& latest, const Job& job, ServiceManager& manager,
                 actors::WorkerOver& over) {
  std::optional<ProgressLine> line;
  if (!command.quiet) line.emplace(stdout, ProgressStyle::of(stdout), job.steps, unit_of(job));
  std::optional<Clock::time_point> leaving;
  bool done = false;
  while (!done) {
    if (const auto word = inbox.take(kWorkerPoll)) {
      done = true;
      if (const auto* end = std::get_if<actors::WorkerOver>(&*word)) {
        over = *end;
      } else {  // it has sent WorkerOver before, so never
        over.code = kExitInternal;
        over.reason = "the worker's actor ended without a word";
      }
    }
    if (const auto step = latest.take()) {
      if (line) line->step(*step);
      manager.status(service_status(step->version + 1, job.steps, step->world));
    }
    const Asked asked = done ? Asked{} : asked_by_signal(command);
    const bool again = asked.leaves && leaving && Clock::now() - *leaving > kWorkerSameSignal;
    if (asked.ends || (again && !command.child)) {
      caf::anon_send_exit(worker, caf::exit_reason::user_shutdown);
      return kExitSignal + asked.signal;
    }
    if (asked.leaves && !leaving) {
      manager.stopping();
      leaving = Clock::now();
      const double notice_ms = 1000 * command.notice_s;
      caf::anon_send(worker, Notice{signal_name(asked.signal), "",
                                    static_cast<std::uint64_t>(notice_ms), true});
    }
  }
  return over.fenced ? actors::kFencedStatus : over.code;
}

}  // namespace starling::tools
