#pragma once
// A Stage runs a job twice, undisturbed and disturbed, as processes, and gathers the evidence.
//
// The disturbed run is `starling run --start 0`: it has coordinators
// and events, and the stage starts every worker, so that it sees guards
// and their exit statuses without asking the program under test.

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/job/job.h"  // how long to wait for ends, and the job file of a stranger
#include "tools/chaos/disturber.h"
#include "tools/chaos/links.h"
#include "tools/chaos/processes.h"
#include "tools/chaos/strangers.h"
#include "tools/judge/deed.h"
#include "tools/processes/children.h"

namespace starling::chaos {

struct StageOptions {
  std::string job_path;
  Job job;
  Plan plan;
  // Command of a worker: a program with its arguments, in which {join} is the
  // coordinators' addresses and {keys} the file of its key. Empty: this program's own.
  std::string command;
  std::string folder;  // absolute, there
  DisturberOptions disturber;
  Links* links = nullptr;             // of the disturbed run, which ends them; null: left alone
  bool strangers = true;              // try to get in
  std::chrono::milliseconds poll{3};  // between two looks at events and processes
  double traces_s = 0.2;              // between two looks at the processes' files
  std::string log = "warn";           // of the processes
};

// Threads: belongs to one thread. Blocks SIGTERM, SIGINT and SIGHUP and looks for them.
class Stage {
 public:
  Stage(StageOptions options, std::function<void(const std::string&)> say);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // Makes an undisturbed run of so many steps below this name. Errors: kInternal
  // it did not end well; kUnavailable  a signal ended it (see signal()).
  Result<judge::Story> quiet(const std::string& name, std::uint64_t steps);

  // Makes the disturbed run, from its first process to its last trace. Fills all
  // of the evidence but `quiet` and `reference_digest`. Errors: as quiet() when it
  // cannot begin or a signal ended it; whatever the run itself does is evidence.
  Result<judge::Evidence> disturbed();

  int signal() const { return signal_; }  // the one that ended it; 0: none

 private:
  using Strings = std::vector<std::string>;
  Result<pid_t> start_run(const std::string& name, std::uint64_t steps, const Strings& more,
                          bool listen = false);
  Player* start_worker(double now);
  Result<pid_t> start_by_command(const std::string& join, const std::string& keys,
                                 const std::string& name);
  Result<> start_all_by_command(const event::Started& start);
  void take_words();
  void note_stall(double t);
  std::size_t said(const std::string& text) const;
  std::vector<judge::Target> coordinators() const;
  bool follow(judge::Tail& tail);  // false: a signal
  void take_ends();
  void tell(const std::string& line) { say_(line); }
  void tell_now(const std::string& line) {
    told_t_ = now();
    tell(line);
  }
  void tell_news();
  void let_strangers_try();
  Result<> start_stranger();
  std::vector<judge::Stranger> strangers();
  void wait_for_workers();
  void find_leftovers(judge::Evidence& evidence);
  double now() const;
  std::string path(const std::string& name) const;

  const StageOptions options_;
  const std::function<void(const std::string&)> say_;
  const std::string mark_;
  Traces traces_;
  tools::Children children_;
  int said_pipe_ = -1;  // the output of the disturbed run's processes
  std::string said_;    // so far
  int run_log_ = -1, worker_log_ = -1;
  int signal_ = 0;

  pid_t run_ = 0;
  std::optional<int> run_status_;
  double run_over_t_ = 0;
  judge::Story story_;
  Cast cast_;
  std::map<int, Player*> process_names_;  // all processes with their players, guards too
  std::vector<std::pair<judge::ProcessEnd, const Player*>> ends_;
  std::future<std::vector<judge::Stranger>> knocking_;
  pid_t stranger_ = 0;  // a worker with keys of its own
  std::set<int> stranger_pids_;
  std::optional<int> stranger_status_;
  bool stranger_met_ = false;  // it gave up while the job went on
  std::uint32_t next_name_ = 0;
  std::size_t told_workers_ = 0, told_epochs_ = 0, told_warnings_ = 0;
  double told_t_ = 0;  // of the last line
  double told_step_t_ = -10, next_traces_t_ = 0, followed_t_ = 0;
  std::vector<judge::Stall> stalls_;
};

}  // namespace starling::chaos
