#include "tools/bench/live_run.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "tools/chaos/processes.h"
#include "tools/judge/ledger.h"
#include "tools/processes/signals.h"

namespace starling::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kLook{2};
constexpr std::chrono::seconds kPatience{60};  // limit of each wait,
constexpr double kPatienceSteps = 60;          // or so many steps if they take longer
constexpr milliseconds kGrace{5000};           // for processes that were told to end

std::string fresh_folder(const std::string& name) {
  const fs::path path =
      fs::temp_directory_path() / ("starling-" + name + "-" + std::to_string(::getpid()));
  std::error_code error;
  fs::create_directories(path, error);
  return path.string();
}

// The command that is measured lies in the folder of starling-bench.
std::string command_beside_us() {
  std::error_code error;
  return (fs::read_symlink("/proc/self/exe", error).parent_path() / "starling").string();
}

}  // namespace

LiveRun::LiveRun(const std::string& name)
    : folder_(fresh_folder(name)),
      log_(::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)),
      command_(command_beside_us()),
      children_(tools::Children::no_signals(), command_),
      tail_(folder_ + "/run/events.jsonl") {
  tools::block_ending_signals();
  children_.end_with_us();
}

LiveRun::~LiveRun() {
  children_.signal_all(SIGINT);
  children_.wait_all(kGrace);
  children_.kill_rest();
  ::close(log_);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

Result<> LiveRun::start(const std::string& job, std::uint32_t workers, std::uint64_t steps,
                        const std::vector<std::string>& more) {
  if (::access(command_.c_str(), X_OK) != 0)
    return Error(Code::kBadInput, "expected the command to measure beside starling-bench, at " +
                                      command_ + ": " + std::strerror(errno));
  std::vector<std::string> arguments{"run",       job,
                                     "--out",     folder_ + "/run",
                                     "--steps",   std::to_string(steps),
                                     "--workers", std::to_string(workers),
                                     "--respawn", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (const auto at = std::find(more.begin(), more.end(), "--coordinators");
      at != more.end() && at + 1 != more.end() && *(at + 1) != "1")
    coordinators_ = std::stoul(*(at + 1));
  STARLING_TRY(pid, children_.spawn(arguments, log_, log_));
  run_ = pid;
  return ok();
}

Result<pid_t> LiveRun::join(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"worker", "--join",          story_.start.address,
                                     "--keys", story_.start.keys, "--quiet"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return children_.spawn(arguments, log_, log_);
}

const event::LeaderElected* LiveRun::leader() const {
  const auto& told = story_.leaders;
  const auto newest = std::max_element(
      told.begin(), told.end(), [](const auto& a, const auto& b) { return a.term < b.term; });
  return newest == told.end() ? nullptr : &*newest;
}

event::WorkerChanged LiveRun::seen(std::uint64_t id, WorkerChange what) const {
  for (auto it = story_.workers.rbegin(); it != story_.workers.rend(); ++it)
    if (it->id == id && it->what == what) return *it;
  return {};
}

Result<> LiveRun::read() {
  for (const std::string& line : tail_.lines()) story_.add(line);
  if (!story_.oddities.empty())
    return Error(Code::kCorrupt, story_.oddities.front() + "; " + tail_.path());
  return ok();
}

Result<> LiveRun::go_on(const std::string& what, std::chrono::steady_clock::duration waited) {
  for (const tools::ChildEnd& end : children_.reap())
    if (end.pid == run_) run_ = 0;
  if (run_ == 0) {
    if (!std::exchange(ended_, true)) return ok();  // its last lines are still to be read
    return Error(Code::kInternal,
                 "the run ended before " + what +
                     (story_.failed ? ": " + story_.failed->reason : last_words()));
  }
  if (tools::pending_signal() != 0) return Error(Code::kUnavailable, "ended by a signal");
  if (waited > kPatience && waited > std::chrono::duration<double, std::milli>(
                                         kPatienceSteps * story_.median_step_ms())) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
    return Error(Code::kUnavailable, what + ": not within " + std::to_string(seconds) + " s");
  }
  std::this_thread::sleep_for(kLook);
  return ok();
}

// Returns the line with which a process of ours said why it ended; empty: none did.
std::string LiveRun::last_words() const {
  std::ifstream file(folder_ + "/log");
  std::string words;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("starling: ", 0) == 0) words = ": " + line.substr(10);
  return words;
}

bool LiveRun::calm(std::uint32_t workers) const {
  const event::EpochFormed* last = story_.last_epoch();
  const bool exposed = !story_.exposures.empty() && story_.exposures.back().segments > 0;
  return last && last->members.size() == workers && last->moves == 0 && !exposed;
}

bool LiveRun::coordinators_up() const {
  if (coordinators_ == 0) return true;
  const auto children = chaos::children_of(run_);
  const auto up = std::count_if(children.begin(), children.end(), [](int pid) {
    const auto line = chaos::command_line(pid);
    return line.size() > 1 && line[1] == "coordinator";
  });
  const event::LeaderElected* leads = leader();
  return static_cast<std::size_t>(up) == coordinators_ && leads &&
         chaos::alive(static_cast<int>(leads->pid));
}

Result<std::size_t> LiveRun::settle(std::uint32_t workers, std::size_t steps) {
  std::size_t from = 0;
  bool calm_before = false;
  STARLING_TRY(wait_for(std::to_string(workers) + " workers are there and nothing moves", [&] {
    const bool is_calm = calm(workers);
    if (!is_calm || !calm_before) from = story_.step_lines.size();
    calm_before = is_calm;
    return is_calm && story_.step_lines.size() >= from + steps && coordinators_up();
  }));
  return from;
}

Result<> LiveRun::steps(std::size_t more) {
  const std::size_t wanted = story_.step_lines.size() + more;
  while (story_.step_lines.size() < wanted) {
    const std::size_t told = story_.step_lines.size();
    STARLING_TRY(wait_for("its next step", [&] { return story_.step_lines.size() > told; }));
  }
  return ok();
}

Result<> LiveRun::end() {
  while (!story_.over()) {
    const std::size_t told = story_.step_lines.size();
    STARLING_TRY(wait_for("its next step or its end",
                          [&] { return story_.over() || story_.step_lines.size() > told; }));
  }
  if (!story_.done) return Error(Code::kInternal, "the run failed: " + story_.failed->reason);
  if (!children_.wait_all(kGrace))
    return Error(Code::kInternal, "processes are there " + std::to_string(kGrace.count() / 1000) +
                                      " s after the run's end");
  return ok();
}

Result<> LiveRun::each_once() {
  STARLING_TRY(read());
  judge::Story judged = story_;
  while (judged.step_lines.size() > judged.ledger_lines.size()) judged.step_lines.pop_back();
  if (const auto wrong = judge::count_ledgers(judged).wrong)
    return Error(Code::kCorrupt, *wrong + "; " + tail_.path());
  return ok();
}

}  // namespace starling::bench
