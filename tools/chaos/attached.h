#pragma once
// Attached disturbs a run of another owner on this machine, and gathers what can be
// seen of it from outside: its events, and the processes of its workers that are here.
//
// Attached starts no process, so it does not know exit codes, and finds workers by process ids
// of events.jsonl: one counts if there is such a process here, of `starling worker`, whose key
// file has the run's coordinators. It leaves workers elsewhere alone, and counts them as copies.

#include <chrono>
#include <functional>
#include <string>

#include "core/base/keys.h"
#include "core/base/result.h"
#include "tools/chaos/cast.h"
#include "tools/chaos/disturber.h"
#include "tools/judge/deed.h"

namespace starling::chaos {

// Returns the folder of the run that a worker on this machine has joined at
// this coordinator's address ("tcp://host:port"): its keys are beside it or in
// it. Errors: kBadInput  there is no such worker, or there are no events there.
Result<std::string> run_joined_at(const std::string& address);

struct AttachOptions {
  std::string run;   // folder of its events.jsonl and job.toml
  std::string keys;  // empty: those that its `start` event names
  DisturberOptions disturber;
  std::chrono::milliseconds poll{3};
};

// Threads: belongs to one thread. Blocks SIGTERM, SIGINT and SIGHUP and looks for them.
class Attached {
 public:
  Attached(AttachOptions options, std::function<void(const std::string&)> say);

  // Reads the events so far. Errors: kBadInput  no run, one that has ended, no key file.
  Result<> find();
  // Counts its workers on this machine.
  std::size_t workers() const { return cast_.living(); }
  const judge::Story& story() const { return story_; }

  // `plan`: kills, stops and leaves; its time begins now.
  // Works until the plan is done and each effect was seen or not, the run ends, or a
  // signal comes; then stopped processes go on. Fills of the evidence: loud, attached,
  // run_status, deeds, revenants. Errors: kUnavailable  ended by a signal (see signal()).
  Result<judge::Evidence> disturb(const Plan& plan);
  int signal() const { return signal_; }

 private:
  void follow();
  void learn(const judge::Told<event::WorkerChanged>& seen);
  bool is_here(int pid) const;
  void wait_for_the_story();

  const AttachOptions options_;
  const std::function<void(const std::string&)> say_;
  judge::Tail tail_;
  judge::Story story_;
  Cast cast_;
  KeyRing ring_;
  std::size_t workers_told_ = 0, epochs_told_ = 0;
  int signal_ = 0;
};

// Returns a running job's story, which ends anywhere, without its partly told last step.
judge::Story without_loose_end(judge::Story story);

}  // namespace starling::chaos
