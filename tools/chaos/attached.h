#pragma once
// Disturbs a run that somebody else has started on this machine, and gathers what can be seen of it
// from outside: its events, and the processes of its workers that are here.
//
// It starts nothing, so it does not know exit codes, and finds workers by the process ids that
// events.jsonl tells: one counts if there is such a process here, of `starling worker`, whose key
// file has the run's coordinators. Workers elsewhere are left alone, and count as copies.

#include <chrono>
#include <functional>
#include <string>

#include "core/base/keys.h"
#include "core/base/result.h"
#include "tools/chaos/cast.h"
#include "tools/chaos/deed.h"
#include "tools/chaos/disturber.h"

namespace starling::chaos {

// The folder of the run that a worker on this machine has joined at this address of a coordinator
// ("tcp://host:port"): its keys are beside it or in it. Errors: kBadInput  there is no such worker,
// or there are no events there.
Result<std::string> run_joined_at(const std::string& address);

struct AttachOptions {
  std::string run;   // folder of its events.jsonl and job.toml
  std::string keys;  // empty: what its `start` event names
  DisturberOptions disturber;
  std::chrono::milliseconds poll{3};
};

// Threads: belongs to one thread. Blocks SIGTERM, SIGINT and SIGHUP and looks for them.
class Attached {
 public:
  Attached(AttachOptions options, std::function<void(const std::string&)> say);

  // Reads what has happened so far. Errors: kBadInput  no run, one that has ended, no key file.
  Result<> find();
  // Of its workers, those on this machine.
  std::size_t workers() const { return cast_.living(); }
  const Story& story() const { return story_; }

  // `plan`: kills, stops and leaves; its time begins now.
  // Until the plan is done and each effect was seen or not, the run ends, or a signal comes; then
  // whoever is stopped goes on. Fills of the evidence: loud, attached, run_status, deeds,
  // revenants. Errors: kUnavailable  ended by a signal (see signal()).
  Result<Evidence> disturb(const Plan& plan);
  int signal() const { return signal_; }

 private:
  void follow();
  void learn(const WorkerSeen& seen);
  bool is_here(int pid) const;
  void wait_for_the_story();

  const AttachOptions options_;
  const std::function<void(const std::string&)> say_;
  Tail tail_;
  Story story_;
  Cast cast_;
  KeyRing ring_;
  std::size_t workers_told_ = 0, epochs_told_ = 0;
  int signal_ = 0;
};

// A running job's story ends anywhere: without what has been told of a last step only in part.
Story without_loose_end(Story story);

}  // namespace starling::chaos
