#pragma once
// A LiveRun is a `starling run` that a benchmark starts, watches through events, and disturbs.

#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/judge/story.h"
#include "tools/processes/children.h"

namespace starling::bench {

// Its end removes its folder below the temporary one, and all processes.
// Threads: belongs to one thread; one object a process (Children).
class LiveRun {
 public:
  explicit LiveRun(const std::string& name);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  // Starts it and returns at once. `more`: further options of `starling run`.
  Result<> start(const std::string& job, std::uint32_t workers, std::uint64_t steps,
                 const std::vector<std::string>& more = {});
  // Starts another worker; returns its guard. Needs the run's first event. `more`: options.
  Result<pid_t> join(const std::vector<std::string>& more = {});

  const judge::Story& story() const { return story_; }
  const std::string& folder() const { return folder_; }  // there before the run is
  // Returns the coordinator process of the highest term that led. Null: none was told.
  const event::LeaderElected* leader() const;
  // Returns the last event of this worker's life; without one, a life without a process.
  event::WorkerChanged seen(std::uint64_t id, WorkerChange what) const;

  // Reads events until the condition holds. Errors: kUnavailable  not within a minute and 60
  // steps, or ended by a signal; kInternal  the run ended; kCorrupt  a line that is no event.
  template <class Condition>
  Result<> wait_for(const std::string& what, Condition condition) {
    const auto begun = std::chrono::steady_clock::now();
    for (;;) {
      STARLING_TRY(read());
      if (condition()) return ok();
      STARLING_TRY(go_on(what, std::chrono::steady_clock::now() - begun));
    }
  }
  // Waits until so many workers are there, every segment has enough copies, and no change
  // was under way for `steps` steps. Returns how many steps had been told when that began.
  Result<std::size_t> settle(std::uint32_t workers, std::size_t steps = 5);
  // Waits for so many more steps.
  Result<> steps(std::size_t more);
  // Waits until the run has ended well, and no process of it is left.
  Result<> end();
  // Checks P2: each micro-batch of each committed step once.
  // Steps whose ledger is still to come are not judged.
  Result<> each_once();

 private:
  Result<> read();
  Result<> go_on(const std::string& what, std::chrono::steady_clock::duration waited);
  bool calm(std::uint32_t workers) const;
  bool coordinators_up() const;
  std::string last_words() const;

  const std::string folder_;
  const int log_;              // the processes' output goes here; events.jsonl has all that counts
  const std::string command_;  // `starling`
  tools::Children children_;
  judge::Tail tail_;
  judge::Story story_;
  pid_t run_ = 0;  // 0: has ended
  bool ended_ = false;
  std::size_t coordinators_ = 0;  // in processes of their own
};

}  // namespace starling::bench
