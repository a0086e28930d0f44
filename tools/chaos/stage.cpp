#include "tools/chaos/stage.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "core/base/mac.h"
#include "core/base/system_error.h"
#include "core/job/words.h"
#include "tools/chaos/command_line.h"
#include "tools/processes/signals.h"

namespace starling::chaos {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr double kStart_s = 60;       // to the first event of a run
constexpr double kStrangers_s = 0.5;  // after the first step, strangers try to get in
constexpr std::uint64_t kStrangerPatience_ms = 3000;
constexpr double kLastProcess_s = 10;  // beyond the job's own timeouts, for workers to end
constexpr double kQuiet = 9;           // after a look of t seconds, kQuiet * t pass without one
constexpr milliseconds kPollMax{20};
constexpr std::uint32_t kSpareKeys = 64;  // that `starling run` makes for joining workers
constexpr const char* kMark = "STARLING_CHAOS_RUN";

double clock_s() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

std::string fresh_mark() {
  std::uint64_t number = 0;
  random_bytes({reinterpret_cast<std::uint8_t*>(&number), sizeof number});
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

int open_log(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

// Returns the lines with which a process of ours says why it ended.
std::vector<std::string> error_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (line.rfind("starling: ", 0) == 0) lines.push_back(line.substr(10));
  return lines;
}

}  // namespace

Stage::Stage(StageOptions options, std::function<void(const std::string&)> say)
    : options_(std::move(options)), say_(std::move(say)), mark_(fresh_mark()) {
  tools::block_ending_signals();
  children_.end_with_us();
  ::setenv(kMark, mark_.c_str(), 1);
}

Stage::~Stage() {
  for (const int fd : {run_log_, worker_log_, said_pipe_})
    if (fd >= 0) ::close(fd);
}

std::string Stage::path(const std::string& name) const {
  return (fs::path(options_.folder) / name).string();
}

double Stage::now() const {
  return story_.now();
}

// `listen`: we get its output first.
Result<pid_t> Stage::start_run(const std::string& name, std::uint64_t steps, const Strings& more,
                               bool listen) {
  const Plan& plan = options_.plan;
  Strings arguments = {"run",     options_.job_path,     "--out",     path(name),
                       "--steps", std::to_string(steps), "--workers", std::to_string(plan.workers),
                       "--log",   options_.log,          "--respawn", "0"};
  const auto add = [&](const char* option, const std::string& value) {
    arguments.insert(arguments.end(), {option, value});
  };
  add("--coordinators", std::to_string(plan.coordinators));
  add("--threads", std::to_string(plan.threads));
  // Each run has its own folder, or the second would find the checkpoints of the first.
  if (options_.job.checkpoint.on()) add("--checkpoints", path(name + "-checkpoints"));
  if (plan.lease_ms) add("--lease-ms", std::to_string(*plan.lease_ms));
  if (plan.replicas) add("--replicas", std::to_string(*plan.replicas));
  arguments.insert(arguments.end(), more.begin(), more.end());
  if (run_log_ >= 0) ::close(run_log_);
  run_log_ = open_log(path(name + ".log"));
  if (run_log_ < 0) return Error(Code::kBadInput, "cannot write " + path(name + ".log"));
  if (!listen) return children_.spawn(arguments, run_log_, run_log_);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return unavailable("cannot make a pipe");
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  said_pipe_ = ends[0];
  auto pid = children_.spawn(arguments, ends[1], ends[1]);
  ::close(ends[1]);
  return pid;
}

Result<judge::Story> Stage::quiet(const std::string& name, std::uint64_t steps) {
  const bool by_command = !options_.command.empty();
  STARLING_TRY(pid, start_run(name, steps, by_command ? Strings{"--start", "0"} : Strings{}));
  bool begun = !by_command;
  for (;;) {
    if (!begun) {
      const judge::Story story =
          judge::read_story((fs::path(path(name)) / "events.jsonl").string());
      begun = story.started;
      if (begun) {
        STARLING_TRY(start_all_by_command(story.start));
      }
    }
    for (const auto& end : children_.reap()) {
      if (end.pid != pid) continue;
      const auto errors = error_lines(path(name + ".log"));
      if (end.status == 2 && !errors.empty()) return Error(Code::kBadInput, errors.back());
      judge::Story story = judge::read_story((fs::path(path(name)) / "events.jsonl").string());
      if (end.status != 0 || !story.done)
        return Error(
            Code::kInternal,
            "the undisturbed run ended with exit code " + std::to_string(end.status) +
                (errors.empty() ? "" : ": " + errors.back()) +
                (by_command ? "; what the workers said is in " + path("workers.log") : ""));
      return story;
    }
    if ((signal_ = tools::pending_signal()) != 0) {
      ::kill(pid, SIGINT);
      children_.wait_all(milliseconds(5000));
      return Error(Code::kUnavailable, "ended by a signal");
    }
    std::this_thread::sleep_for(options_.poll);
  }
}

// ---- The disturbed run ------------------------------------------------------------------------

Result<judge::Evidence> Stage::disturbed() {
  const std::string name = "disturbed";
  if (worker_log_ < 0) worker_log_ = open_log(path("workers.log"));
  if (worker_log_ < 0) return Error(Code::kBadInput, "cannot write " + path("workers.log"));
  Strings more = {"--start", "0"};
  if (options_.links) more.insert(more.end(), {"--host", options_.links->host()});
  STARLING_TRY(run, start_run(name, options_.plan.steps, more, /*listen=*/true));
  run_ = run;
  judge::Tail tail((fs::path(path(name)) / "events.jsonl").string());
  const double begun = clock_s();
  while (!story_.started && !run_status_) {
    if (!follow(tail)) return Error(Code::kUnavailable, "ended by a signal");
    if (clock_s() - begun > kStart_s)
      return Error(Code::kInternal, "the run wrote no event for a minute");
  }
  for (std::uint32_t i = 0; i < options_.plan.workers; ++i) {
    Player* player = start_worker(now());
    if (player && i < options_.plan.nodes.size()) player->node = options_.plan.nodes[i];
  }

  DisturberCalls calls;
  calls.say = [this](const std::string& text) { tell_now(text); };
  calls.start_worker = [this](double t) { return start_worker(t); };
  calls.coordinators = [this] { return coordinators(); };
  calls.said = [this](const std::string& text) { return said(text); };
  calls.links = options_.links;
  Disturber disturber(options_.plan, options_.disturber, calls, cast_, story_);
  while (!run_status_) {
    if (!follow(tail)) {
      disturber.end(now());
      return Error(Code::kUnavailable, "ended by a signal");
    }
    if (story_.step_lines.empty()) continue;
    const double first = story_.step_lines.front().t;
    if (options_.strangers && !knocking_.valid() && now() > first + kStrangers_s)
      let_strangers_try();
    disturber.advance(now(), first);
  }
  disturber.end(now());
  follow(tail);
  take_words();
  if (!tail.rest().empty()) story_.oddities.push_back("the last line is cut");
  wait_for_workers();

  judge::Evidence evidence;
  evidence.run_status = *run_status_;
  evidence.run_errors = error_lines(path(name + ".log"));
  // These are last words of coordinators that could not write, and were started again.
  std::erase_if(evidence.run_errors, [](const std::string& line) {
    return line.find("/raft.log") != std::string::npos;
  });
  evidence.deeds = disturber.deeds();
  for (auto& [end, player] : ends_) {
    end.expected = explained(end, *player, *run_status_);
    evidence.ends.push_back(end);
  }
  evidence.stalls = stalls_;
  evidence.watched_until_t = run_over_t_;
  evidence.revenants = revenants_of(story_, evidence.deeds, cast_.gone());
  evidence.strangers = strangers();
  find_leftovers(evidence);
  evidence.loud = std::move(story_);
  return evidence;
}

// Reads news of the run, its processes and its traces. Takes less than
// a tenth of the time: a slower look would be a fault that no plan has.
bool Stage::follow(judge::Tail& tail) {
  const std::size_t workers = story_.workers.size(), epochs = story_.epochs.size();
  for (const std::string& line : tail.lines()) story_.add(line);
  for (std::size_t i = workers; i < story_.workers.size(); ++i) cast_.learn(story_.workers[i]);
  for (std::size_t i = epochs; i < story_.epochs.size(); ++i) cast_.learn(story_.epochs[i]);
  const double t = now();
  note_stall(t);
  cast_.set_time(t);
  cast_.look();
  for (Player& player : cast_.players())
    for (const int pid : {player.guard, player.pid})
      if (pid != 0) process_names_[pid] = &player;
  if (stranger_ != 0 && !stranger_status_)
    for (const int pid : children_of(stranger_)) stranger_pids_.insert(pid);
  take_ends();
  take_words();
  for (const Player& player : cast_.players())
    if (options_.links && player.id != 0) options_.links->set_id(player.name, player.id);
  if (t > next_traces_t_) {
    auto pids = cast_.processes();
    if (run_ != 0 && !run_status_) pids.push_back(run_);
    for (const judge::Target& coordinator : coordinators()) pids.push_back(coordinator.pid);
    traces_.look(pids);
    next_traces_t_ = now() + std::max(options_.traces_s, kQuiet * (now() - t));
  }
  tell_news();
  const auto took = std::chrono::duration<double>(now() - t);
  const auto rest = std::chrono::duration_cast<milliseconds>(kQuiet * took);
  std::this_thread::sleep_for(std::clamp(rest, options_.poll, kPollMax));
  if (const int signal = tools::pending_signal()) {
    signal_ = signal;
    children_.signal_all(SIGINT);
    children_.wait_all(milliseconds(5000));
    return false;
  }
  return true;
}

void Stage::note_stall(double t) {
  constexpr double kStall_s = 0.5;
  const double from = std::exchange(followed_t_, t);
  if (from == 0 || t - from < kStall_s) return;
  stalls_.push_back({from, t});
  char text[80];
  std::snprintf(text, sizeof text, "  this process was not run for %.1f s", t - from);
  tell(text);
}

void Stage::take_ends() {
  for (const auto& end : children_.reap()) {
    if (end.pid == run_) {
      run_status_ = end.status;
      run_over_t_ = now();
      continue;
    }
    if (end.pid == stranger_) {
      stranger_status_ = end.status;
      stranger_met_ = !run_status_ && !story_.over();
    }
    const auto it = process_names_.find(end.pid);
    if (it != process_names_.end())
      ends_.push_back({{it->second->name, end.pid, end.status, true}, it->second});
  }
}

void Stage::take_words() {
  char buffer[4096];
  for (ssize_t n; (n = ::read(said_pipe_, buffer, sizeof buffer)) > 0;) {
    said_.append(buffer, static_cast<std::size_t>(n));
    [[maybe_unused]] const auto kept = ::write(run_log_, buffer, static_cast<std::size_t>(n));
  }
}

std::size_t Stage::said(const std::string& text) const {
  std::size_t lines = 0;
  std::istringstream all(said_);
  for (std::string line; std::getline(all, line);) lines += line.find(text) != std::string::npos;
  return lines;
}

void Stage::tell_news() {
  const double from = story_.step_lines.empty() ? 0 : story_.step_lines.front().t;
  char text[200];
  // Time counts from the first step, and no line goes back behind the one before it.
  const auto at = [&](double t) {
    told_t_ = std::max(told_t_, t);
    std::snprintf(text, sizeof text, "%8.2f s      ", told_t_ - from);
    return std::string(from == 0 ? "   start        " : text);
  };
  for (; told_workers_ < story_.workers.size(); ++told_workers_) {
    const auto& seen = story_.workers[told_workers_];
    if (from > 0) tell(at(seen.t) + seen.name + " " + to_string(seen.what));
  }
  for (; told_epochs_ < story_.epochs.size(); ++told_epochs_) {
    const auto& epoch = story_.epochs[told_epochs_];
    tell(at(epoch.t) + "epoch " + to_string(epoch.id) + " (" + to_string(epoch.kind) + ", " +
         std::to_string(epoch.members.size()) + " workers): " + epoch.cause);
  }
  for (; told_warnings_ < story_.warnings.size(); ++told_warnings_)
    tell(at(now()) + "warning: " + story_.warnings[told_warnings_]);
  if (story_.step_lines.empty() || story_.step_lines.back().t - told_step_t_ < 2) return;
  const auto& step = story_.step_lines.back();
  told_step_t_ = step.t;
  std::snprintf(text, sizeof text, "step %" PRIu64 " of %" PRIu64 ", loss %.4f, %u workers",
                step.record.version.value(), story_.start.steps,
                std::isfinite(step.record.loss) ? step.record.loss : 0, step.world);
  const std::string line = text;
  tell(at(step.t) + line);
}

// Starts one program with its arguments, as a shell reads them.
Result<pid_t> Stage::start_by_command(const std::string& join, const std::string& keys,
                                      const std::string& name) {
  std::string command = options_.command;
  const std::pair<std::string, std::string> values[] = {
      {"{join}", CommandLine({join}).text()},
      {"{keys}", CommandLine({(fs::path(keys) / name).string()}).text()}};
  for (const auto& [word, value] : values)
    for (std::size_t at = 0; (at = command.find(word, at)) != std::string::npos; at += value.size())
      command.replace(at, word.size(), value);
  return children_.spawn_command(command, worker_log_, worker_log_);
}

Result<> Stage::start_all_by_command(const event::Started& start) {
  if (worker_log_ < 0) worker_log_ = open_log(path("workers.log"));
  if (worker_log_ < 0) return Error(Code::kBadInput, "cannot write " + path("workers.log"));
  for (std::uint32_t i = 0; i < options_.plan.workers; ++i) {
    STARLING_TRY(pid, start_by_command(start.address, start.keys, "worker-" + std::to_string(i)));
    (void)pid;
  }
  return ok();
}

Player* Stage::start_worker(double now) {
  const std::uint32_t keys = options_.plan.workers + kSpareKeys;
  std::string name;
  for (std::uint32_t tried = 0; tried < keys; ++tried) {
    name = "worker-" + std::to_string(next_name_++ % keys);
    const Player* player = cast_.find(name);
    if (!player || player->over) break;
    name.clear();
  }
  if (name.empty()) return nullptr;
  const event::Started& start = story_.start;
  auto place = options_.links ? options_.links->place(name, addresses_in(start.address))
                              : Result<Links::Place>(Links::Place{{"--join", start.address}, -1});
  if (!place) {
    tell(place.error().text());
    return nullptr;
  }
  Strings arguments = {"worker",    "--quiet",
                       "--keys",    start.keys,
                       "--name",    name,
                       "--threads", std::to_string(options_.plan.threads),
                       "--notice",  job_words::number_text(options_.disturber.notice_s),
                       "--log",     options_.log};
  const Links::Place& where = place.value();
  arguments.insert(arguments.end(), where.arguments.begin(), where.arguments.end());
  const Inside inside(where.netns);
  auto pid = options_.command.empty() ? children_.spawn(arguments, worker_log_, worker_log_)
                                      : start_by_command(start.address, start.keys, name);
  if (!pid) {
    tell(pid.error().text());
    return nullptr;
  }
  return &cast_.add(name, pid.value(), now);
}

std::vector<judge::Target> Stage::coordinators() const {
  std::vector<judge::Target> found;
  if (run_ == 0 || run_status_) return found;
  for (const int pid : children_of(run_)) {
    const auto line = command_line(pid);
    const auto name = std::find(line.begin(), line.end(), "--name");
    if (line.size() > 1 && line[1] == "coordinator" && name != line.end() && name + 1 != line.end())
      found.push_back({*(name + 1), 0, pid});
  }
  return found;
}

// ---- Strangers --------------------------------------------------------------------------------

void Stage::let_strangers_try() {
  constexpr std::size_t kWorkersTried = 2;
  Doors doors;
  doors.coordinators = addresses_in(story_.start.address);
  for (const Player& player : cast_.players()) {
    if (player.pid == 0 || doors.bulk.size() + doors.workers.size() >= kWorkersTried) continue;
    const auto host = options_.links ? options_.links->address_of(player.name) : std::string();
    for (const std::uint16_t port : listening_ports(player.pid))
      if (host.empty())
        doors.bulk.push_back(port);
      else
        doors.workers.push_back(host + ":" + std::to_string(port));
  }
  if (const auto* epoch = story_.last_epoch()) doors.epoch = epoch->id;
  doors.seed = options_.plan.seed + 1;
  knocking_ = std::async(std::launch::async, [doors] { return knock(doors); });
  if (auto started = start_stranger(); !started) tell("no stranger: " + started.error().text());
}

// Starts a real worker that knows all that is public and has a key of
// its own. Its job file differs in nothing that the group compares.
Result<> Stage::start_stranger() {
  STARLING_TRY(ring, KeyRing::load(story_.start.keys));
  STARLING_TRY(keys, stranger_keys(ring));
  STARLING_TRY(keys.save(path("stranger-keys")));
  STARLING_TRY(job, read_job((fs::path(path("disturbed")) / "job.toml").string()));
  job.elastic.coordinator_timeout_ms = kStrangerPatience_ms;
  std::ofstream file(path("stranger.toml"));
  file << format_job(job);
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + path("stranger.toml"));
  STARLING_TRY(pid, children_.spawn({"worker", "--quiet", "--join", story_.start.address, "--keys",
                                     path("stranger-keys"), "--job", path("stranger.toml")},
                                    worker_log_, worker_log_));
  stranger_ = pid;
  return ok();
}

std::vector<judge::Stranger> Stage::strangers() {
  std::vector<judge::Stranger> tried;
  if (knocking_.valid()) tried = knocking_.get();
  if (stranger_ == 0) return tried;
  judge::Stranger worker{"a worker with a key of its own", true,
                         stranger_status_ ? "exit code " + std::to_string(*stranger_status_)
                                          : std::string("still there"),
                         stranger_met_};
  for (const event::WorkerChanged& seen : story_.workers)
    if (stranger_pids_.count(static_cast<int>(seen.pid)) && seen.what == WorkerChange::kJoined) {
      worker.refused = false;
      worker.seen = "joined as " + seen.name;
    }
  tried.push_back(std::move(worker));
  return tried;
}

// ---- The end ----------------------------------------------------------------------------------

void Stage::wait_for_workers() {
  for (Player& player : cast_.players())  // a player has nothing to join any more
    if (!player.over && player.id == 0 && player.guard != 0) {
      player.leaving = true;
      ::kill(player.guard, SIGTERM);
    }
  const double end =
      clock_s() + double(options_.job.elastic.coordinator_timeout_ms) / 1000 + kLastProcess_s;
  for (bool there = true; there && clock_s() < end;) {
    cast_.set_time(now());
    cast_.look();
    take_ends();
    there = !cast_.processes().empty() || (stranger_ != 0 && !stranger_status_);
    if ((signal_ = tools::pending_signal()) != 0) return;
    std::this_thread::sleep_for(options_.poll);
  }
}

void Stage::find_leftovers(judge::Evidence& evidence) {
  std::vector<int> left;
  const double end = clock_s() + 3;
  do {
    children_.reap();
    left = with_environment(kMark, mark_);
    std::this_thread::sleep_for(milliseconds(20));
  } while (!left.empty() && clock_s() < end);
  for (const int pid : left) {
    std::string text;
    for (const std::string& word : command_line(pid)) text += " " + word;
    evidence.leftovers.push_back("process " + std::to_string(pid) + ":" + text.substr(0, 200));
  }
  if (options_.links)
    for (auto& trace : options_.links->close()) evidence.leftovers.push_back(std::move(trace));
  for (auto& trace : traces_.left(options_.folder)) evidence.leftovers.push_back(std::move(trace));
  children_.kill_rest();
  for (const int pid : left) ::kill(pid, SIGKILL);
}

}  // namespace starling::chaos
