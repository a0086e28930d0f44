#pragma once
// Processes are those of one worker that compute for a script's model. One that dies, hangs or sends
// nonsense is replaced: what it was asked has the same answer in every process.

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/script/child.h"
#include "actors/script/likeness.h"
#include "actors/script/patience.h"
#include "actors/script/reading.h"
#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "core/job/layout.h"

namespace starling::actors::script {

class DataReader;

// ChildLost hears, in one line, why a process was lost whose place another
// one takes. Called on the thread that asked. Set before processes are asked.
using ChildLost = std::function<void(const std::string& why)>;

// Mapped says which shared places a process maps at the moment.
struct Mapped {
  std::uint64_t parameters = 0, gradient = 0;                // ids of shared places
  std::uint64_t parameters_offset = 0, gradient_offset = 0;  // bytes
  bool operator==(const Mapped&) const = default;
};

// A Process belongs to one thread at a time.
struct Process {
  std::unique_ptr<PythonChild> child;         // null: lost, or none was needed yet
  std::shared_ptr<Reading::Process> reading;  // null: the first batch is not known
  Mapped mapped;
};

// Threads: any, each with a Process of its own.
class Processes {
 public:
  // isa: as for PythonChild::start(). Every process is made known to `data`, which is borrowed.
  Processes(const PythonSpec& spec, std::string isa, const std::vector<TensorSpec>& tensors,
            DataReader& data);

  void on_lost(ChildLost told) { told_ = std::move(told); }
  // Sets the GPU that processes see, as of PythonChild::start(); called before processes start.
  void on_gpu(std::string gpu) { gpu_ = std::move(gpu); }
  // See Likeness; call it before processes start.
  void begin_with(const Batch& first, std::uint32_t local_steps) {
    likeness_.begin_with(first, local_steps);
  }
  // Starts processes until so many wait, all at once: a start takes seconds, for
  // which the first step of each compute thread would wait otherwise. Errors: those of ask().
  Result<> prepare(std::uint32_t processes);

  // Asks this process, or one that waits or is started, if it is lost. Errors: kBadInput  the script
  // raised it, or a new process is not like the first one; kUnavailable  several were lost in a row.
  Result<Bytes> ask(Process& process, ByteView request, std::span<const int> files = {});
  // Asks for a pass, whose patience follows from what passes took; held_out: of held-out data, which
  // may take much longer than those that train. `before` prepares each process that is going to be
  // asked. Errors: those of ask() and of `before`.
  Result<Bytes> ask_for_pass(Process& process, ByteView request, bool held_out,
                             const std::function<Result<>(Process&)>& before);
  // Has a process forget what it has mapped, so that this memory may go, and keeps it for later.
  void give_back(Process process);
  std::vector<Process> take_waiting();

  Identity identity() const { return likeness_.identity(); }
  // Returns what the first process said that it is ("python 3.11.2, torch 2.1.0"); empty before.
  std::string versions() const { return likeness_.versions(); }
  const Patience& patience() const { return patience_; }

 private:
  Result<Process> take_or_start();
  Result<Process> start();
  Result<std::unique_ptr<PythonChild>> start_child();
  boost::asio::thread_pool& starter();
  template <class Once>
  Result<Bytes> try_with_others(Process& process, const Once& once);

  const std::string script_, isa_;
  std::string gpu_;
  DataReader& data_;
  ChildLost told_;
  Patience patience_, patience_held_out_;
  Likeness likeness_;
  Mutex mutex_;
  std::vector<Process> waiting_ STARLING_GUARDED_BY(mutex_);
  std::atomic<bool> no_warm_ = false;  // each process is started by itself
  // Processes are forks of it. Null: not started yet, or lost. It belongs to the starter's thread,
  // which is the last member: it ends first.
  std::unique_ptr<PythonChild> warm_;
  std::unique_ptr<boost::asio::thread_pool> starter_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::actors::script
