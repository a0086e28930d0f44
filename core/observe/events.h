#pragma once
// DIR/events.jsonl: what happened in a run, for programs. One JSON object a line; every line has
//   t     seconds since the beginning (monotonic clock; after `continued` by the clock of the day)
//   time  UTC to microseconds, RFC 3339: files of several machines lie side by side by it
//   ev    the kind:
//
// start       job, job_hash (hex), fingerprint, name, steps, micro_batches, sequences (of one),
//             seed, samples (of the data; 0 if not known), tokens_per_step, data (identity, hex),
//             from (version at which it begins: 0, or that of a checkpoint),
//             monotonic_ns (the clock's value at t = 0), address and
//             keys (with which another worker joins; empty: it cannot be told), coordinator
//             (its name, if this is its view; empty: that of all of a run)
// continued   coordinator, monotonic_ns (now), cut_bytes (of a last line that was not whole): the
//             process that wrote has ended, and another goes on with its file
// dropped     lines, why: so many of the lines that belong here are missing
// worker      id (counter of its incarnation), what (joined, left, lost, fenced), name, pid (of its
//             process on its host; 0 if not known), phase (lost: what it was at when it died, as
//             its guard saw it: none, change, compute, reduce, vote, apply, gather, end; null if no
//             guard told), reason (lost: why it ended itself; null if it did not)
// preparing   name, pid (of a worker's process, as in `worker`): the process has asked the leader for
//             the job and prepares to join; no event tells the end of a process that never joined
// epoch       id ("term.counter"), kind, predecessor, members ([{rank, id, name,
//             joiner, draining, role (compute or hold; left out: both)}]), base, begin (both null
//             in a prepared plan), cause,
//             holders (per rank [[first segment, count], ..]), owned (per rank, segments), moves,
//             detect_ms, form_ms, resume_ms (null if not known), pause (at the member that passed
//             first after a loss: report, plan, connect, compute, reduce, vote; ms one after the
//             other from its stop; null if none)
// path        epoch, direct (its bytes go from device to device as soon as all members are ready;
//             false: through the hosts), why (the library; or what is missing, or failed)
// step        version (of the step's begin: v takes version v to v+1), epoch (in which the member that told
//             passed or learned it), loss, norm, tokens, ms, world, skipped, ledger_hash (hex),
//             digest (hex, of `version`; where one was due), scale (of the loss, with fp16),
//             direct (true: its bytes went from device to device)
// evaluation  version (whose parameters are meant), loss, metrics (left out where there are none): over
//             the job's held-out batches
// ledger      version, epoch (in which it passed), workers ([[micro-batch, worker id], ..])
// leader      term, coordinator (its place in the group), pid (of its process on its host),
//             election_ms (its group waits between this and twice this before it elects another):
//             it decides from here on
// exposure    epoch, segments (with fewer than `wanted` current copies), copies_min, wanted
// checkpoint  version, path: it is complete
// restart     version, lost (epoch), cause: state was lost with that epoch, and the steps from this
//             version on are done again from its checkpoint. Their records are those of before, and
//             are not told again; their ledgers may be others, and are
// notice      id, name (of a worker), source (that said that its machine will go: SIGTERM,
//             aws, gcp, azure, ..), leave (it leaves; false: a hint, and it stays), seconds (until
//             the machine goes; null of a hint), text
// coordinators  index (of the entry that decided so: the highest counts), places (of those that vote
//             from now on: 2 is coordinator-2)
// admin       by (name of the key of an admin, whom the leader obeys), action (drain, evict, checkpoint,
//             stop, rate), worker (name; empty: all), peak_rate (of rate)
// tainted     id, name (of a worker), first (version: of the first step that it may have computed in; the
//             result is in doubt from there on), last (version: of the last one when this is told;
//             null: none is known), reason: what it has computed need not be what the job says
// mismatch    version, micro_batch, worker (id: its contribution was added), by (id: it computed
//             the micro-batch again, to another contribution), wrong (id of the one that is known to
//             be wrong; null: one of the two)
// warning     text
// done        version, digest (hex), loss
// ended       signal (its number; 15 as well where every worker has left, and where a script ends the
//             run as its stop was true), version (that was reached, as far as the leader knew),
//             checkpoint (version of the newest, from which --resume goes on; null: there is none),
//             reason: the run was ended in order before the job was done
// failed      code (exit code), reason: the job cannot go on
//
// Doubles are written so that they read back as the same bits; NaN and infinities become null.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/job/job.h"
#include "core/observe/event.h"
#include "core/observe/event_memory.h"
#include "core/observe/event_sink.h"
#include "core/observe/line_file.h"

namespace starling {

// Fills in what the job says of its beginning; the process that begins it sets the rest.
event::Started start_of(const Job& job);

// Threads: belongs to one thread. A thread of its own writes (LineFile), so a disk that hangs or is
// full holds up no caller: what it does not take is counted, said, and left out in whole lines.
// Memory: some 25 MiB at most, however long the run.
class EventWriter {
 public:
  // The owner of a file, so that a process that begins again goes on with what it wrote before.
  struct Owner {
    std::uint64_t job_hash = 0;
    std::string job_name;
    std::string coordinator;
  };

  // Makes the folder if needed and holds it until destroyed. kBadInput if another process holds it
  // or it already has a run's events; nothing in it is changed then. With an owner, events of its
  // own are gone on with: a last line that is not whole is cut off, and all others are remembered,
  // after `earlier` (may be empty) has had each.
  static Result<std::unique_ptr<EventWriter>> open(
      const std::string& folder, const std::optional<Owner>& owner = {},
      const std::function<void(const Event&)>& earlier = {});
  // Writes to an open pipe instead, for another process that copies what it reads; takes the file.
  static std::unique_ptr<EventWriter> into(int fd);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // All return true if the event was written, false if it was told before or comes after the end.
  // After it only steps and ledgers are written, of which a coordinator may hear later.

  // Sets its monotonic_ns. In a file that is gone on with: `continued` instead.
  Result<bool> start(event::Started started);
  // Every member reports the record of each version that it passes or learns: the first is written,
  // an equal one ignored. kInternal if one differs from the first in any bit (P1). The same for the
  // ledger. The first event of a worker's change, an epoch (known by its id) and a restart is
  // written; epochs after its `lost` do the steps from its `version` on again, and their records
  // must be the same.
  Result<bool> write(const Event& event);
  // Copies an event of another process's writer: whatever was told before is not written again.
  Result<bool> copy(const Event& event);

  // Tells this sink of every event that is written from now on; what a file that is gone on with
  // has already it is not told. Owns it.
  template <class Sink>
  Sink& add(std::unique_ptr<Sink> sink) {
    Sink& added = *sink;
    sinks_.push_back(std::move(sink));
    return added;
  }

  const std::string& path() const { return path_; }

  // Waits until what was told is written. False: the file takes nothing.
  bool flush() { return !file_ || file_->flush(); }
  // What people should know of the file, once: it cannot be written, it can again.
  std::optional<std::string> news();
  // Whether the reader of the pipe has gone.
  bool closed() const { return file_ && file_->closed(); }
  // Ends the file: nothing is written after. Says in words what is missing in it; empty: nothing.
  std::string finish();

 private:
  EventWriter();
  Error two_stories(const Event& event) const;
  bool put(const Event& event);
  Result<> go_on(int fd, const Owner& owner, const std::function<void(const Event&)>& earlier);
  void begin_file(int fd);

  std::string path_;
  std::unique_ptr<LineFile> file_;          // null while an older file is read
  std::int64_t opened_ns_ = 0;              // of the monotonic clock, where t is 0
  bool over_ = false;                       // `done`, `ended` or `failed` is written
  std::optional<std::uint64_t> cut_bytes_;  // set: the file is gone on with
  EventMemory memory_;
  std::vector<std::unique_ptr<EventSink>> sinks_;
};

}  // namespace starling
