#include "tools/chaos/attached.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>

#include "tools/chaos/processes.h"
#include "tools/processes/signals.h"

namespace starling::chaos {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLastWord{5};  // for the last step's epoch to be told

// Returns the value of an option of a process; empty: it has none.
std::string option_of(const std::vector<std::string>& line, const std::string& option) {
  const auto it = std::find(line.begin(), line.end(), option);
  return it != line.end() && it + 1 != line.end() ? *(it + 1) : std::string();
}

bool is_worker(const std::vector<std::string>& line) {
  return line.size() > 1 && line[1] == "worker";
}

fs::path in_folder_of(int pid, const std::string& path) {
  std::error_code error;
  return fs::read_symlink("/proc/" + std::to_string(pid) + "/cwd", error) / path;
}

// Tells whether `starling worker --join` names this address, with its scheme or without.
bool joins(const std::vector<std::string>& line, const std::string& address) {
  std::istringstream all(option_of(line, "--join"));
  for (std::string one; std::getline(all, one, ',');)
    if (one == address || "tcp://" + one == address) return true;
  return false;
}

bool same_job(const KeyRing& a, const KeyRing& b) {
  const auto keys = [](const KeyRing& ring) {
    std::vector<std::string> found;
    for (const KeyPair& pair : ring.numbered("coordinator")) found.push_back(pair.public_key);
    return found;
  };
  return keys(a) == keys(b);
}

}  // namespace

Result<std::string> run_joined_at(const std::string& address) {
  for (const int pid : all_processes()) {
    const auto line = command_line(pid);
    if (!is_worker(line) || !joins(line, address)) continue;
    // A run of `starling run --out DIR` has its keys in DIR.keys.
    const fs::path keys = in_folder_of(pid, option_of(line, "--keys"));
    fs::path run = keys;
    if (keys.extension() == ".keys") run.replace_extension();
    for (const fs::path& folder : {run, keys.parent_path()})
      if (fs::exists(folder / "events.jsonl")) return folder.string();
    return bad_input("no events.jsonl beside " + keys.string() + ", the keys of a worker of " +
                     address + "; expected the folder of its run");
  }
  return bad_input("no worker that joins " + address + " is on this machine");
}

Attached::Attached(AttachOptions options, std::function<void(const std::string&)> say)
    : options_(std::move(options)),
      say_(std::move(say)),
      tail_((fs::path(options_.run) / "events.jsonl").string()) {
  tools::block_ending_signals();
}

Result<> Attached::find() {
  for (const std::string& line : tail_.lines()) story_.add(line);
  const std::string where = (fs::path(options_.run) / "events.jsonl").string();
  if (!story_.started) return bad_input("no run: expected the events of one in " + where);
  if (story_.over()) return bad_input("the run has ended; " + where);
  auto ring = KeyRing::load(options_.keys.empty() ? story_.start.keys : options_.keys);
  if (!ring) return std::move(ring).error();
  ring_ = std::move(ring).value();
  follow();
  if (cast_.living() == 0) return bad_input("no worker of the run is on this machine; " + where);
  return ok();
}

bool Attached::is_here(int pid) const {
  const auto line = command_line(pid);
  if (!is_worker(line) || !alive(pid)) return false;
  const auto ring = KeyRing::load(in_folder_of(pid, option_of(line, "--keys")).string());
  return ring && same_job(ring.value(), ring_);
}

void Attached::learn(const judge::Told<event::WorkerChanged>& seen) {
  if (seen.what != WorkerChange::kJoined) return cast_.elsewhere(seen.id, false);
  const Player* known = cast_.find(seen.name);
  const bool new_life = known && !known->over;
  if (!new_life) {
    const int pid = static_cast<int>(seen.pid);
    if (pid == 0 || !is_here(pid)) return cast_.elsewhere(seen.id, true);
    const int parent = look_at(pid).value_or(ProcessSeen{}).parent;
    cast_.add(seen.name, is_worker(command_line(parent)) ? parent : 0, seen.t);
  }
  cast_.learn(seen);
}

void Attached::follow() {
  for (const std::string& line : tail_.lines()) story_.add(line);
  for (; workers_told_ < story_.workers.size(); ++workers_told_)
    learn(story_.workers[workers_told_]);
  for (; epochs_told_ < story_.epochs.size(); ++epochs_told_)
    cast_.learn(story_.epochs[epochs_told_]);
  cast_.set_time(story_.now());
  cast_.look();
}

Result<judge::Evidence> Attached::disturb(const Plan& plan) {
  DisturberCalls calls;
  calls.say = say_;
  calls.start_worker = [](double) -> Player* { return nullptr; };
  calls.coordinators = [] { return std::vector<judge::Target>(); };
  Disturber disturber(plan, options_.disturber, calls, cast_, story_);
  const double begun = story_.now();
  while (!story_.over() && !disturber.finished() && signal_ == 0) {
    follow();
    disturber.advance(story_.now(), begun);
    std::this_thread::sleep_for(options_.poll);
    signal_ = tools::pending_signal();
  }
  disturber.end(story_.now());
  if (signal_ != 0) return Error(Code::kUnavailable, "ended by a signal");
  wait_for_the_story();

  judge::Evidence evidence;
  evidence.attached = true;
  evidence.run_status = story_.failed ? story_.failed->code : 0;
  evidence.deeds = disturber.deeds();
  evidence.watched_until_t = story_.now();
  evidence.revenants = revenants_of(story_, evidence.deeds, cast_.gone());
  evidence.loud = without_loose_end(std::move(story_));
  return evidence;
}

// Waits: an epoch is told when its first step is committed.
void Attached::wait_for_the_story() {
  const auto end = Clock::now() + kLastWord;
  const auto told = [&] {
    if (story_.over()) return true;
    const auto* last = story_.last_epoch();
    return last && !story_.step_lines.empty() && story_.step_lines.back().epoch == last->id;
  };
  do {
    follow();
    std::this_thread::sleep_for(options_.poll);
  } while (!told() && Clock::now() < end);
}

judge::Story without_loose_end(judge::Story story) {
  if (story.over() || story.ledger_lines.empty()) return story;
  Version steps = 0, ledgers = 0;  // the highest
  for (const auto& step : story.step_lines) steps = std::max(steps, step.record.version);
  for (const auto& ledger : story.ledger_lines) ledgers = std::max(ledgers, ledger.version);
  const Version whole = std::min(steps, ledgers);
  std::erase_if(story.step_lines, [&](const auto& step) { return step.record.version > whole; });
  std::erase_if(story.ledger_lines, [&](const auto& ledger) { return ledger.version > whole; });
  return story;
}

}  // namespace starling::chaos
