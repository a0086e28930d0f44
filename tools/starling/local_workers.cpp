#include "tools/starling/local_workers.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "actors/guard/status.h"
#include "core/base/exit.h"
#include "core/base/signals.h"

namespace starling::tools {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{1000};

// Returns 0 if the parent is not known.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(')');
  int parent = 0;
  char state = 0;
  if (name_ends == std::string::npos ||
      std::sscanf(text.c_str() + name_ends + 1, " %c %d", &state, &parent) != 2)
    return 0;
  return parent;
}

std::string how(int status, const std::string& reason) {
  if (!reason.empty()) return reason;
  return status > kExitSignal ? "killed by " + signal_name(status - kExitSignal)
                              : "exit code " + std::to_string(status);
}

// True for an end by a signal that does not mean an end in order, for want of memory, or by a bug.
bool died(int status) {
  const bool ended_in_order = status == kExitDone || status == kExitTerminated ||
                              status == kExitSignal + SIGINT || status == kExitSignal + SIGHUP;
  return !ended_in_order &&
         (status > kExitSignal || status == kExitAlone || status == kExitInternal);
}

// True for a worker that was left out of a plan, or damaged.
bool begins_anew(int status) {
  return status == actors::kFencedStatus || status == actors::kDamagedStatus;
}

}  // namespace

Result<> LocalWorkers::start(std::uint32_t workers) {
  for (std::uint32_t place = 0; place < workers; ++place) {
    STARLING_TRY(pid, start_(place));
    lives_.push_back({pid, place, 0, 0, {}, {}});
  }
  return ok();
}

void LocalWorkers::joined(const event::WorkerChanged& worker) {
  const pid_t pid = static_cast<pid_t>(worker.pid);
  const pid_t guard = parent_of(pid);
  for (Life& life : lives_) {
    if (life.pid != guard && life.pid != pid) continue;
    life.worker = pid;
    life.id = worker.id;
    life.since.reset();
    life.reason.clear();
  }
}

void LocalWorkers::told(const Event& event) {
  if (std::holds_alternative<event::StepPassed>(event)) ++steps_;
  if (const auto* worker = std::get_if<event::WorkerChanged>(&event)) {
    if (worker->what == WorkerChange::kJoined) joined(*worker);
    for (Life& life : lives_)
      if (worker->what == WorkerChange::kLost && life.id == worker->id && life.id != 0)
        life.reason = worker->reason;
  }
  const auto* epoch = std::get_if<event::EpochFormed>(&event);
  if (!epoch) return;
  members_.clear();
  for (const event::EpochMember& member : epoch->members) members_.insert(member.id);
  for (const event::EpochMember& member : epoch->members)
    for (Life& life : lives_)
      if (life.id == member.id && life.id != 0 && !life.since) life.since = steps_;
}

// Returns true if only the guard was killed: its worker is left to this process.
bool LocalWorkers::goes_on(Life& life, int status) const {
  if (status <= kExitSignal || life.worker == 0 || life.pid == life.worker) return false;
  const std::vector<pid_t> adopted = children_.adopted();
  if (std::find(adopted.begin(), adopted.end(), life.worker) == adopted.end()) return false;
  life.pid = life.worker;
  return true;
}

std::optional<int> LocalWorkers::ended(const ChildEnd& child, bool again) {
  const auto at = std::find_if(lives_.begin(), lives_.end(),
                               [&](const Life& life) { return life.pid == child.pid; });
  if (at == lives_.end() || goes_on(*at, child.status)) return std::nullopt;
  const Life life = std::move(*at);
  lives_.erase(at);
  if (child.status == kExitTerminated) left_.insert(life.id);
  const std::size_t due = due_.size();
  // A living guard would do this.
  if (again && begins_anew(child.status)) due_.push_back({life.place, Clock::now()});
  if (again && died(child.status)) plan_another(life, child.status);
  if (due_.size() > due) return std::nullopt;
  return child.status;
}

bool LocalWorkers::all_members_left() const {
  return none() && !members_.empty() &&
         std::includes(left_.begin(), left_.end(), members_.begin(), members_.end());
}

void LocalWorkers::plan_another(const Life& life, int status) {
  if (tries_ == 0) return;
  if (life.since && steps_ - *life.since >= kLived) short_lives_.clear();
  const std::uint32_t times = ++short_lives_[how(status, life.reason)];
  if (times > tries_) {
    news_ = "no worker is started again, as " + std::to_string(times) +
            " in a row ended so: " + how(status, life.reason);
    return;
  }
  due_.push_back({life.place, Clock::now() + (times - 1) * kBetweenTries});
}

bool LocalWorkers::is_member(pid_t child) const {
  return std::any_of(lives_.begin(), lives_.end(), [&](const Life& life) {
    return life.pid == child && members_.count(life.id) > 0;
  });
}

Result<> LocalWorkers::start_due() {
  for (std::size_t i = 0; i < due_.size();) {
    if (Clock::now() < due_[i].at) {
      ++i;
      continue;
    }
    const std::uint32_t place = due_[i].place;
    due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(i));
    STARLING_TRY(pid, start_(place));
    lives_.push_back({pid, place, 0, 0, {}, {}});
  }
  return ok();
}

std::optional<std::string> LocalWorkers::news() {
  return std::exchange(news_, std::nullopt);
}

}  // namespace starling::tools
