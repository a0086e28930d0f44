// `starling diagnose` says what each thread of a run's workers on this machine does or waits for, and its stack.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/system_error.h"
#include "core/observe/event_reader.h"
#include "core/observe/run_status.h"
#include "tools/starling/commands.h"
#include "tools/starling/exit.h"
#include "tools/starling/run_place.h"
#include "tools/starling/stacks.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

struct ThreadSeen {
  pid_t id = 0;
  std::string name;
  char state = '?';
  std::string waits_in;  // of the kernel; empty: nowhere, or it cannot be read
  double cpu_seconds = 0;
  std::vector<std::string> stack;  // the innermost first
};

struct ProcessSeen {
  pid_t pid = 0;
  std::string what;     // "worker-1", "a child of worker-1"
  std::string command;  // its first words
  std::vector<ThreadSeen> threads;
  std::string python;     // stacks of a script's interpreter
  std::string no_stacks;  // why there are none
};

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<pid_t> numbers_in(const fs::path& folder) {
  std::vector<pid_t> numbers;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    pid_t number = 0;
    const auto [last, bad] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (bad == std::errc() && last == name.data() + name.size()) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The fields of /proc/PID/stat behind the name, which may have spaces and brackets: state, parent, ..
std::vector<std::string> stat_fields(const fs::path& folder) {
  const std::string line = first_line(folder / "stat");
  const auto name_end = line.rfind(')');
  if (name_end == line.npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

std::vector<std::string> words_of(pid_t pid) {
  std::ifstream file(fs::path("/proc") / std::to_string(pid) / "cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::optional<ThreadSeen> look_at_thread(pid_t pid, pid_t id) {
  const fs::path folder = fs::path("/proc") / std::to_string(pid) / "task" / std::to_string(id);
  const auto fields = stat_fields(folder);
  if (fields.size() < 13 || fields[0].empty()) return std::nullopt;
  ThreadSeen seen;
  seen.id = id;
  seen.name = first_line(folder / "comm");
  seen.state = fields[0][0];
  seen.waits_in = first_line(folder / "wchan");
  if (seen.waits_in == "0") seen.waits_in.clear();
  const double ticks =
      std::strtod(fields[11].c_str(), nullptr) + std::strtod(fields[12].c_str(), nullptr);
  seen.cpu_seconds = ticks / double(::sysconf(_SC_CLK_TCK));
  return seen;
}

std::optional<ProcessSeen> look_at(pid_t pid, std::string what) {
  ProcessSeen seen;
  seen.pid = pid;
  seen.what = std::move(what);
  const auto words = words_of(pid);
  for (std::size_t i = 0; i < std::min<std::size_t>(words.size(), 3); ++i)
    seen.command += (i == 0 ? "" : " ") + on_one_line(words[i]);
  for (const pid_t id : numbers_in(fs::path("/proc") / std::to_string(pid) / "task"))
    if (auto thread = look_at_thread(pid, id)) seen.threads.push_back(*std::move(thread));
  if (seen.threads.empty()) return std::nullopt;
  if (auto stacks = stacks_of(pid)) {
    for (ThreadSeen& thread : seen.threads)
      if (const auto found = stacks.value().find(thread.id); found != stacks.value().end())
        thread.stack = found->second;
  } else {
    seen.no_stacks = stacks.error().text();
  }
  seen.python = python_stacks_of(pid);
  return seen;
}

// Children of a process, their children, and so on: processes of a script.
std::vector<pid_t> descendants_of(pid_t pid) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t each : numbers_in("/proc"))
    if (const auto fields = stat_fields(fs::path("/proc") / std::to_string(each));
        fields.size() > 1)
      children.emplace(static_cast<pid_t>(std::strtol(fields[1].c_str(), nullptr, 10)), each);
  std::vector<pid_t> all{pid};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (auto [at, end] = children.equal_range(all[i]); at != end; ++at) all.push_back(at->second);
  all.erase(all.begin());
  return all;
}

struct Wanted {
  pid_t pid = 0;
  std::string name;
  std::string out;  // why it is in the run no more; empty: it is there, or prepares to join
};

// The workers' processes, as the run's events say, those too that are out and may hang.
Result<std::vector<Wanted>> workers_of(const std::string& folder) {
  std::error_code error;
  const bool is_folder = fs::is_directory(folder, error);
  const fs::path path = is_folder ? fs::path(folder) / "events.jsonl" : fs::path(folder);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return bad_input("no run is in " + folder +
                     ": expected its folder, or the numbers of processes");
  std::map<pid_t, Wanted> workers;
  const auto note = [&](std::uint64_t process, const std::string& name, std::string out) {
    const auto pid = static_cast<pid_t>(process);
    if (pid > 0) workers[pid] = {pid, name, std::move(out)};
  };
  bool any = false;
  std::uint64_t number = 0;
  std::string line;
  while (std::getline(file, line)) {
    ++number;
    if (file.eof()) break;  // a last line that is being written
    auto read = read_event(line);
    if (!read)
      return std::move(read).error().in(path.string() + ", line " + std::to_string(number));
    any = any || read.value().event;
    if (!read.value().event) continue;
    const Event& event = *read.value().event;
    if (const auto* prepares = std::get_if<event::Preparing>(&event))
      note(prepares->pid, prepares->name, "");
    if (const auto* changed = std::get_if<event::WorkerChanged>(&event))
      note(changed->pid, changed->name,
           changed->what == WorkerChange::kJoined ? "" : to_string(changed->what));
  }
  if (!any) return bad_input(path.string() + " has no event of a run");
  std::vector<Wanted> all;
  for (auto& [pid, worker] : workers) all.push_back(std::move(worker));
  std::ranges::sort(all, {}, &Wanted::name);
  return all;
}

// A process of another machine may have the number of one that is here.
bool is_worker(pid_t pid) {
  const auto words = words_of(pid);
  return std::find(words.begin(), words.end(), "worker") != words.end();
}

const char* state_text(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
      return "waits";
    case 'D':
      return "waits for a disk or a device";
    case 'T':
    case 't':
      return "is stopped";
    case 'Z':
    case 'X':
      return "has ended";
    default:
      return "is somewhere";
  }
}

void print(const ProcessSeen& process) {
  const std::string pid =
      process.what.starts_with("process ") ? "" : ", process " + std::to_string(process.pid);
  std::printf("%s%s: %s\n", process.what.c_str(), pid.c_str(), process.command.c_str());
  if (!process.no_stacks.empty()) std::printf("  %s\n", process.no_stacks.c_str());
  for (const ThreadSeen& thread : process.threads) {
    std::printf("  %-15s  thread %d %s%s%s, %.1f s of processor\n",
                on_one_line(thread.name).c_str(), thread.id, state_text(thread.state),
                thread.waits_in.empty() ? "" : " in ", thread.waits_in.c_str(), thread.cpu_seconds);
    for (const std::string& frame : thread.stack) std::printf("      %s\n", frame.c_str());
  }
  std::istringstream python(process.python);
  for (std::string line; std::getline(python, line);) std::printf("    %s\n", line.c_str());
}

nlohmann::ordered_json json_of(const ProcessSeen& process) {
  nlohmann::ordered_json threads = nlohmann::ordered_json::array();
  for (const ThreadSeen& thread : process.threads)
    threads.push_back({{"thread", thread.id},
                       {"name", thread.name},
                       {"state", std::string(1, thread.state)},
                       {"waits_in", thread.waits_in},
                       {"cpu_seconds", thread.cpu_seconds},
                       {"stack", thread.stack}});
  nlohmann::ordered_json out{{"what", process.what},
                             {"pid", process.pid},
                             {"command", process.command},
                             {"threads", threads}};
  if (!process.python.empty()) out["python"] = process.python;
  if (!process.no_stacks.empty()) out["no_stacks"] = process.no_stacks;
  return out;
}

Result<int> look(const DiagnoseCommand& command) {
  std::vector<std::pair<pid_t, std::string>> wanted;
  std::string over;
  for (const std::string& where : command.where) {
    pid_t pid = 0;
    const auto [last, bad] = std::from_chars(where.data(), where.data() + where.size(), pid);
    if (bad == std::errc() && last == where.data() + where.size() && pid > 0) {
      if (::kill(pid, 0) != 0 && errno == ESRCH)
        return bad_input("no process " + where + " is on this machine");
      wanted.emplace_back(pid, "process " + where);
      continue;
    }
    STARLING_TRY(workers, workers_of(where));
    if (const std::string end = end_of_run(where); !end.empty()) over = ": the run is over, " + end;
    for (const Wanted& worker : workers) {
      const std::string name = on_one_line(worker.name);
      if (is_worker(worker.pid))
        wanted.emplace_back(worker.pid, name + (worker.out.empty() ? "" : " (" + worker.out + ")"));
      else if (worker.out.empty() && over.empty())
        std::fprintf(stderr, "%s, process %d: not on this machine, or it has ended\n", name.c_str(),
                     worker.pid);
    }
  }
  if (wanted.empty())
    return Error(Code::kUnavailable, "no worker of this run is on this machine" + over);
  std::vector<ProcessSeen> seen;
  for (const auto& [pid, what] : wanted) {
    if (auto process = look_at(pid, what)) seen.push_back(*std::move(process));
    for (const pid_t child : descendants_of(pid))
      if (auto process = look_at(child, "child of " + what)) seen.push_back(*std::move(process));
  }
  if (seen.empty()) return Error(Code::kUnavailable, "the processes have ended");
  for (const ProcessSeen& process : seen) {
    if (command.json)
      std::printf(
          "%s\n",
          json_of(process).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    else
      print(process);
  }
  return 0;
}

}  // namespace

int diagnose(const DiagnoseCommand& command) {
  auto code = look(command);
  return code ? code.value() : fail(code.error());
}

}  // namespace starling::tools
