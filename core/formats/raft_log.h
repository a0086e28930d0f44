#pragma once
// A coordinator's Raft log on disk: one append-only file of checksummed records.
//
// What save() has returned ok for survives a crash of the process and of the machine. What a crash
// left half-written at the end is cut off on open and kept aside; anything else that does not hold
// is refused with one line that names file and offset, because to go on without a vote or an
// acknowledged entry would break the group.
//
//   file   = header, record*, zeros (preallocated, so that an append changes no metadata)
//   header = magic, format, member, job, checksum                                  (64 bytes)
//   record = length, kind, index, term, synced, chain, payload checksum, checksum  (56 bytes)
//            and `length` bytes padded to 8 with at least one byte 0xa5
// `chain` is the checksum of the record before; checksums are seeded with job and offset, so a
// record is valid only in its place. `synced` is the offset up to which the file was durable when
// the record was written: a bad record below the `synced` of any later one was whole once, hence
// is corruption; only the last batch can be torn. Removing a suffix of the log is a record too
// ("the log ends at index i"), never an overwrite.
//
// Threads: belongs to one thread. save() blocks for one fdatasync.

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

// What the log needs of a file; tests put one in its place that fails or forgets.
class RaftLogFile {
 public:
  virtual ~RaftLogFile() = default;
  virtual std::string name() const = 0;
  virtual Result<Bytes> read() = 0;                                  // all of it
  virtual Result<> write(std::uint64_t offset, ByteView bytes) = 0;  // all, or an error
  virtual Result<> sync() = 0;                                       // data and size
  virtual Result<> resize(std::uint64_t bytes) = 0;
  virtual Result<> keep_aside(ByteView bytes) = 0;  // durable copy of what is about to be cut
};

// Term and vote: saved as one.
struct RaftTerm {
  std::uint64_t term = 0;
  std::optional<std::uint32_t> vote;
  bool operator==(const RaftTerm&) const = default;
};

class RaftLog {
 public:
  static constexpr std::size_t kEntryBytesMax = 8 * 1024 * 1024;
  static constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;

  // Opens DIR/raft.log, or creates it (and DIR, one level) with everything needed for the name to
  // survive a crash. Holds a lock on it for as long as the object lives.
  // Errors: kUnavailable  the file cannot be opened, read or written, or another process has it
  //         kBadInput     it belongs to another job or member, or has a later format
  //         kCorrupt      it is damaged; nothing was changed
  static Result<RaftLog> open(const std::string& dir, const JobId& job, std::uint32_t member);

  // The same on a given file, which is empty or was written by this class.
  static Result<RaftLog> open_on(std::unique_ptr<RaftLogFile> file, const JobId& job,
                                 std::uint32_t member);

  const RaftTerm& term() const { return term_; }
  // The entries as found on open, from index 1; once.
  std::vector<RaftEntry> take_entries() { return std::move(entries_); }
  std::uint64_t last_index() const { return terms_.size(); }
  std::uint64_t cut_bytes() const { return cut_bytes_; }  // torn tail removed on open

  // Makes `term` (if given) and `append` durable, in one write and one sync. append[0].index may be
  // at most last_index() + 1; what the log holds from there on is void. A term never falls, and a
  // vote never changes within its term.
  // After an error the file's state is unknown and every later call fails: end the process, do not
  // retry. A synced-looking page may not be on the disk.
  Result<> save(const std::optional<RaftTerm>& term, std::span<const RaftEntry> append);

 private:
  struct Loader;

  explicit RaftLog(std::unique_ptr<RaftLogFile> file) : file_(std::move(file)) {}

  Result<> create(const JobId& job, std::uint32_t member);
  Result<> load(const Bytes& bytes, const JobId& job, std::uint32_t member);
  Result<> cut_tail(const Bytes& bytes);
  Result<> write_batch(const Bytes& batch);
  void put_record(ByteWriter& batch, std::uint32_t kind, std::uint64_t index, std::uint64_t term,
                  ByteView payload);

  std::unique_ptr<RaftLogFile> file_;
  std::uint64_t seed_ = 0;       // of checksums, from the job
  std::uint64_t end_ = 0;        // offset of the next record
  std::uint64_t allocated_ = 0;  // size of the file
  std::uint64_t chain_ = 0;
  RaftTerm term_;
  std::vector<RaftEntry> entries_;
  std::vector<std::uint64_t> terms_;  // of entry i at [i - 1]
  std::uint64_t cut_bytes_ = 0;
  bool failed_ = false;
};

}  // namespace starling
