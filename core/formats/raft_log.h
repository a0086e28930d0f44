#pragma once
// A coordinator's Raft log on disk: one file of checksummed records. Records are appended; when the
// group's state is saved as a snapshot, a new file with that snapshot takes the place of the old
// one, so the file stays short for as long as a job runs.
//
// What save() has returned ok for survives a crash of the process and of the machine. What a crash
// left half-written at the end is cut off on open and kept aside; anything else that does not hold
// is refused with one line that names file and offset, because to go on without a vote or an
// acknowledged entry would break the group.
//
//   file   = header, record*, zeros (preallocated, so that an append changes no metadata)
//   header = magic, format, member, job, generation, checksum                      (64 bytes)
//   record = length, kind, index, term, synced, chain, payload checksum, checksum  (56 bytes)
//            and `length` bytes padded to 8 with at least one byte 0xa5
// `chain` is the checksum of the record before; checksums are seeded with job and offset, so a
// record is valid only in its place. `synced` is the offset up to which the file was durable when
// the record was written: a bad record below the `synced` of any later one was whole once, hence
// is corruption; only the last batch can be torn. Removing a suffix of the log is a record too
// ("the log ends at index i"), never an overwrite.
//
// The last batch itself, if it was synced, is told from a torn one by the mark: a file beside the
// log with the generation and length of what was synced. It is written after each sync and not
// synced itself, so it survives the end of the process, and that of the machine once the kernel
// wrote it back. A log that ends before its mark has lost records, and is refused.
//
// A missing, empty or all-zero log is a first life only if the caller says so; else it is a lost
// one: its owner may have voted and acknowledged, and must ask the others before it does so again
// (elastic/raft). The new file says that until then.
//
// Threads: belongs to one thread. save() blocks for one fdatasync.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling {

// RaftLogFile is what the log needs of a file; tests put one in its place that fails or forgets.
class RaftLogFile {
 public:
  virtual ~RaftLogFile() = default;
  virtual std::string name() const = 0;
  virtual Result<Bytes> read() = 0;                                  // all of it
  virtual Result<> write(std::uint64_t offset, ByteView bytes) = 0;  // all, or an error
  virtual Result<> sync() = 0;                                       // data and size
  virtual Result<> resize(std::uint64_t bytes) = 0;
  virtual Result<> keep_aside(ByteView bytes) = 0;  // durable copy of what is about to be cut
  virtual Result<> replace(ByteView bytes) = 0;     // all of it at once, durable on return
  virtual Result<> check() = 0;                     // its name still leads to it
  // The mark: last value written, or empty if it was lost.
  virtual Result<> write_mark(ByteView bytes) = 0;
  virtual Bytes read_mark() = 0;
};

// RaftTerm is term, vote, and what is known of a log that was lost: saved as one.
struct RaftTerm {
  std::uint64_t term = 0;
  std::optional<std::uint32_t> vote;
  bool lost = false;  // nothing is known yet of what was promised; term and vote are empty
  std::uint64_t floor_term = 0, floor_index = 0;
  bool operator==(const RaftTerm&) const = default;
};

// The state after the entry of this index and term.
struct RaftLogSnapshot {
  std::uint64_t index = 0;  // 0: there is none
  std::uint64_t term = 0;
  std::shared_ptr<const Bytes> data;
  std::optional<RaftMembers> members;  // of the group there; none: those that began it
};

class RaftLog {
 public:
  static constexpr std::size_t kEntryBytesMax = 8 * 1024 * 1024;
  static constexpr std::size_t kSnapshotBytesMax = 64 * 1024 * 1024;
  static constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;

  // The caller says whether this member has a life behind it; the log never guesses.
  enum class Life : std::uint8_t { kFirst, kLater };

  // Opens DIR/raft.log, or creates it (and DIR, one level) with everything needed for the name to
  // survive a crash. Holds a lock on it for as long as the object lives. A process that was killed
  // has its lock until the kernel has taken it down, and its next life may begin sooner, so open()
  // waits for a lock that another process has.
  // Errors: kUnavailable  the file cannot be opened, read or written, or another process has it and
  //                       keeps it for longer than `patience`
  //         kBadInput     it belongs to another job or member, has a later format, or has promised
  //                       something although this is a first life
  //         kCorrupt      it is damaged; nothing was changed
  static Result<RaftLog> open(const std::string& dir, const JobId& job, std::uint32_t member,
                              Life life = Life::kLater,
                              std::chrono::milliseconds patience = std::chrono::seconds(5));

  // The same on a given file, which is empty or was written by this class.
  static Result<RaftLog> open_on(std::unique_ptr<RaftLogFile> file, const JobId& job,
                                 std::uint32_t member, Life life = Life::kLater);

  const RaftTerm& term() const { return term_; }
  // Snapshot and entries as found on open, the entries from the one after the snapshot; once.
  RaftLogSnapshot take_snapshot() { return std::move(snapshot_); }
  std::vector<RaftEntry> take_entries() { return std::move(entries_); }
  std::uint64_t last_index() const { return base_index_ + terms_.size(); }
  std::uint64_t cut_bytes() const { return cut_bytes_; }  // torn tail removed on open
  std::uint64_t bytes() const { return end_; }
  std::string name() const { return file_->name(); }

  // Errors: kBadInput  the log is not that of a member that begins.
  Result<> has_promised_nothing() const;

  // Makes `term` (if given), `snapshot` (if given) and `append` durable, in one write and one sync.
  // With a snapshot the log is that snapshot and `append` alone, in a new file. Else
  // append[0].index may be at most last_index() + 1; what the log holds from there on is void. A
  // term never falls, and a vote never changes within its term.
  // After an error the file's state is unknown and every later call fails: end the process, do not
  // retry. A synced-looking page may not be on the disk.
  Result<> save(const std::optional<RaftTerm>& term, std::span<const RaftEntry> append,
                const std::optional<RaftLogSnapshot>& snapshot = {});

  // An error if the file was removed or replaced: a second process may have taken its place. save()
  // checks as well; call this now and then when there is nothing to save.
  Result<> check() { return file_->check(); }

 private:
  struct Loader;

  explicit RaftLog(std::unique_ptr<RaftLogFile> file) : file_(std::move(file)) {}

  Result<> create();
  Result<> load(const Bytes& bytes);
  Result<> check_mark() const;
  Result<> cut_tail(const Bytes& bytes);
  Result<> write_batch(const Bytes& batch);
  Result<> rewrite(const RaftLogSnapshot& snapshot, std::span<const RaftEntry> append);
  Result<> write_mark();
  Bytes begin_file();
  void put_term(ByteWriter& batch, const RaftTerm& before);
  void put_entries(ByteWriter& batch, std::span<const RaftEntry> append);
  void put_record(ByteWriter& batch, std::uint32_t kind, std::uint64_t index, std::uint64_t term,
                  ByteView payload);

  std::unique_ptr<RaftLogFile> file_;
  JobId job_{};
  std::uint32_t member_ = 0;
  std::uint64_t generation_ = 0;  // of the file: one more with each snapshot
  std::uint64_t seed_ = 0;        // of checksums, from job, member and generation
  std::uint64_t end_ = 0;         // offset of the next record
  std::uint64_t allocated_ = 0;   // size of the file
  std::uint64_t chain_ = 0;
  RaftTerm term_;
  RaftLogSnapshot snapshot_;
  std::uint64_t base_index_ = 0, base_term_ = 0;  // of the snapshot
  std::vector<RaftEntry> entries_;
  std::vector<std::uint64_t> terms_;  // of entry i at [i - base_index_ - 1]
  std::uint64_t cut_bytes_ = 0;
  bool failed_ = false;
};

}  // namespace starling
