#include "core/formats/raft_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/formats/raft_log_file.h"
#include "core/formats/raft_log_records.h"
#include "core/wire/raft_members.h"

namespace starling {

using namespace raft_log_records;

// ---- Open -------------------------------------------------------------------------------------

Result<RaftLog> RaftLog::open(const std::string& dir, const JobId& job, std::uint32_t member,
                              Life life, std::chrono::milliseconds patience) {
  STARLING_TRY(file, open_raft_log_file(dir, patience));
  return open_on(std::move(file), job, member, life);
}

Result<RaftLog> RaftLog::open_on(std::unique_ptr<RaftLogFile> file, const JobId& job,
                                 std::uint32_t member, Life life) {
  RaftLog log(std::move(file));
  log.job_ = job;
  log.member_ = member;
  STARLING_TRY(bytes, log.file_->read());
  if (!all_zero(bytes)) {
    STARLING_TRY(log.load(bytes));
    STARLING_TRY(log.check_mark());
    if (life == Life::kFirst) {
      STARLING_TRY(log.has_promised_nothing());
    }
    if (life == Life::kFirst && log.term_.lost) {
      STARLING_TRY(log.save(RaftTerm{}, {}));
    }
    STARLING_TRY(log.cut_tail(bytes));
    return log;
  }
  log.term_.lost = life == Life::kLater;
  STARLING_TRY(log.create());
  return log;
}

Result<> RaftLog::has_promised_nothing() const {
  if (term_.term == 0 && last_index() == 0) return ok();
  return Error(Code::kBadInput,
               "a coordinator that begins for the first time has a log already; leave out --new to "
               "go on with it, or remove its folder to begin anew; " +
                   file_->name());
}

// The header of a file of the present generation; records follow.
Bytes RaftLog::begin_file() {
  FileHeader header;
  header.member = member_;
  header.job = job_;
  header.generation = generation_;
  header.checksum = header_checksum(header, 0);
  seed_ = mix64(hash64(job_, member_), generation_);
  chain_ = header.checksum;
  end_ = sizeof(FileHeader);
  const std::span<const FileHeader> one(&header, 1);
  const auto bytes = as_bytes(one);
  return {bytes.begin(), bytes.end()};
}

Result<> RaftLog::create() {
  Bytes bytes = begin_file();
  ByteWriter batch;
  if (term_.lost) put_record(batch, kLost, 0, 0, {});
  const Bytes records = std::move(batch).take();
  bytes.insert(bytes.end(), records.begin(), records.end());
  end_ = bytes.size();
  allocated_ = kPreallocated;
  bytes.resize(kPreallocated);
  STARLING_TRY(file_->write(0, bytes));
  STARLING_TRY(file_->sync());
  return write_mark();
}

// Reads records one after the other into `log`.
struct RaftLog::Loader {
  RaftLog& log;
  ByteView bytes;

  Error corrupt(std::uint64_t offset, const std::string& what) const {
    return Error(Code::kCorrupt, "raft log is damaged: " + what + "; " + log.file_->name() +
                                     ", offset " + std::to_string(offset));
  }

  Result<> check_file_header() const {
    if (bytes.size() < sizeof(FileHeader)) return corrupt(0, "shorter than its header");
    const auto header = read_at<FileHeader>(bytes, 0);
    if (header.magic != kLogMagic) return corrupt(0, "not a raft log");
    if (header.checksum != header_checksum(header, 0)) return corrupt(0, "header checksum");
    if (header.format != kLogFormat) {
      return Error(Code::kBadInput, "raft log has format " + std::to_string(header.format) +
                                        ", this program reads " + std::to_string(kLogFormat) +
                                        "; " + log.file_->name());
    }
    if (header.job != log.job_) {
      return Error(Code::kBadInput, "raft log belongs to job " + to_string(header.job) + ", not " +
                                        to_string(log.job_) + "; " + log.file_->name());
    }
    if (header.member != log.member_) {
      return Error(Code::kBadInput, "raft log belongs to member " + std::to_string(header.member) +
                                        ", not " + std::to_string(log.member_) + "; " +
                                        log.file_->name());
    }
    return ok();
  }

  bool header_holds(std::uint64_t offset) const {
    if (bytes.size() - offset < sizeof(RecordHeader)) return false;
    const auto header = read_at<RecordHeader>(bytes, offset);
    return header.checksum == header_checksum(header, mix64(log.seed_, offset));
  }

  // Needs header_holds().
  bool payload_holds(std::uint64_t offset) const {
    const auto header = read_at<RecordHeader>(bytes, offset);
    const auto begin = offset + sizeof(RecordHeader);
    const auto length = padded(header.length);
    if (bytes.size() - begin < length) return false;
    return hash64(bytes.subspan(begin, length), header.chain) == header.payload_checksum;
  }

  // Could a write that did not finish have left the bytes [from, to) like this? Then a sector is
  // missing or its end is: there the preallocated zeros show, or the file ends.
  bool torn(std::uint64_t from, std::uint64_t to) const {
    if (to > bytes.size()) return true;
    for (auto begin = from; begin < to;) {
      const auto end = std::min(to, (begin / kSector + 1) * kSector);
      if (all_zero(bytes.subspan(end - 8, 8))) return true;
      begin = end;
    }
    return false;
  }

  // A record does not hold at `offset`. Returns ok if it may be the torn end of the last batch.
  Result<> judge(std::uint64_t offset) const {
    for (auto later = offset + 8; later < bytes.size(); later += 8) {
      if (!header_holds(later)) continue;
      const auto header = read_at<RecordHeader>(bytes, later);
      if (header.synced > offset) {
        return corrupt(offset, "a record that was whole when the one at offset " +
                                   std::to_string(later) + " was written");
      }
    }
    auto from = offset;
    auto to = offset + sizeof(RecordHeader);
    if (header_holds(offset)) {
      from = to;
      to += padded(read_at<RecordHeader>(bytes, offset).length);
    }
    if (!torn(from, to)) return corrupt(offset, "record checksum");
    return ok();
  }

  Result<> apply(std::uint64_t offset) const {
    const auto header = read_at<RecordHeader>(bytes, offset);
    if (header.chain != log.chain_) return corrupt(offset, "record of another history");
    if (header.synced > offset || header.synced < sizeof(FileHeader)) {
      return corrupt(offset, "impossible sync mark");
    }
    if (header.kind != kEntry && header.kind != kSnapshot && header.kind != kMembers &&
        header.length != 0)
      return corrupt(offset, "unexpected payload");
    switch (header.kind) {
      case kTerm:
        return apply_term(offset, header);
      case kEntry:
        return apply_entry(offset, header);
      case kEnd:
        if (header.index >= log.last_index() || header.index < log.base_index_)
          return corrupt(offset, "cut beyond the end");
        log.terms_.resize(header.index - log.base_index_);
        log.entries_.resize(header.index - log.base_index_);
        return ok();
      case kLost:
        log.term_.lost = true;
        return ok();
      case kFloor:
        log.term_.lost = false;
        log.term_.floor_term = header.term;
        log.term_.floor_index = header.index;
        return ok();
      case kSnapshot:
        return apply_snapshot(offset, header);
      case kMembers:
        return apply_members(offset, header);
      default:
        return corrupt(offset, "unknown record kind " + std::to_string(header.kind));
    }
  }

  Result<> apply_term(std::uint64_t offset, const RecordHeader& header) const {
    if (header.index > std::uint64_t{1} << 32) return corrupt(offset, "impossible vote");
    RaftTerm next = log.term_;
    next.term = header.term;
    next.vote.reset();
    if (header.index != 0) next.vote = static_cast<std::uint32_t>(header.index - 1);
    if (next.term < log.term_.term) return corrupt(offset, "term falls");
    if (next.term == log.term_.term && log.term_.vote && next.vote != log.term_.vote) {
      return corrupt(offset, "vote changes within a term");
    }
    log.term_ = next;
    return ok();
  }

  Result<> apply_snapshot(std::uint64_t offset, const RecordHeader& header) const {
    if (log.last_index() != 0 || header.index == 0) return corrupt(offset, "snapshot out of order");
    if (header.length > kSnapshotBytesMax) return corrupt(offset, "snapshot too large");
    if (header.term == 0 || header.term > log.term_.term)
      return corrupt(offset, "impossible term of a snapshot");
    const auto payload = bytes.subspan(offset + sizeof(RecordHeader), header.length);
    log.base_index_ = header.index;
    log.base_term_ = header.term;
    log.snapshot_ = {header.index,
                     header.term,
                     std::make_shared<const Bytes>(payload.begin(), payload.end()),
                     {}};
    return ok();
  }

  Result<> apply_members(std::uint64_t offset, const RecordHeader& header) const {
    auto members = decode_members(bytes.subspan(offset + sizeof(RecordHeader), header.length));
    if (!members) return corrupt(offset, members.error().text());
    const bool of_snapshot = log.base_index_ != 0 && log.last_index() == log.base_index_ &&
                             header.index == log.base_index_ && !log.snapshot_.members;
    if (!of_snapshot) {
      STARLING_TRY(add_entry(offset, header, {}));
      log.entries_.back().members = std::move(members).value();
      return ok();
    }
    log.snapshot_.members = std::move(members).value();
    return ok();
  }

  Result<> apply_entry(std::uint64_t offset, const RecordHeader& header) const {
    if (header.length > kEntryBytesMax) return corrupt(offset, "entry too large");
    const auto payload = bytes.subspan(offset + sizeof(RecordHeader), header.length);
    return add_entry(offset, header, Bytes(payload.begin(), payload.end()));
  }

  Result<> add_entry(std::uint64_t offset, const RecordHeader& header, Bytes data) const {
    if (header.index != log.last_index() + 1) return corrupt(offset, "entry out of order");
    const auto last =
        std::max<std::uint64_t>(log.terms_.empty() ? log.base_term_ : log.terms_.back(), 1);
    if (header.term < last || header.term > log.term_.term) {
      return corrupt(offset, "impossible term of an entry");
    }
    log.terms_.push_back(header.term);
    log.entries_.push_back({header.index, header.term, std::move(data), {}});
    return ok();
  }
};

Result<> RaftLog::load(const Bytes& bytes) {
  const Loader loader{*this, bytes};
  STARLING_TRY(loader.check_file_header());
  generation_ = read_at<FileHeader>(bytes, 0).generation;
  seed_ = mix64(hash64(job_, member_), generation_);
  chain_ = read_at<FileHeader>(bytes, 0).checksum;
  end_ = sizeof(FileHeader);
  allocated_ = bytes.size();
  std::uint64_t batch = end_;  // where the last batch begins
  while (end_ < bytes.size()) {
    if (!loader.header_holds(end_) || !loader.payload_holds(end_)) {
      if (!all_zero(ByteView(bytes).subspan(end_))) {
        STARLING_TRY(loader.judge(end_));
      }
      break;
    }
    STARLING_TRY(loader.apply(end_));
    const auto header = read_at<RecordHeader>(bytes, end_);
    batch = header.synced;
    chain_ = header.checksum;
    end_ += sizeof(RecordHeader) + padded(header.length);
  }
  // Term and vote of an unfinished recall were not safe yet, so nothing was said because of them.
  if (term_.lost) {
    term_.term = 0;
    term_.vote.reset();
  }
  // If the last life ended on a failed sync, its last batch may be in memory only, in pages that
  // count as clean: write it again, so that the sync in cut_tail() covers it.
  return file_->write(batch, ByteView(bytes).subspan(batch, end_ - batch));
}

// Checks that all that was synced is there.
Result<> RaftLog::check_mark() const {
  const Bytes bytes = file_->read_mark();
  if (bytes.size() != sizeof(Mark)) return ok();
  const auto mark = read_at<Mark>(bytes, 0);
  if (mark.checksum != header_checksum(mark, hash64(job_, member_))) return ok();
  if (mark.generation < generation_) return ok();  // the mark is of the file that this one replaced
  if (mark.generation == generation_ && mark.end <= end_) return ok();
  const bool older = mark.generation > generation_;
  return Error(Code::kCorrupt,
               "raft log is damaged: " +
                   (older ? std::string("it is an older copy of the log")
                          : "it ends at offset " + std::to_string(end_) + ", and " +
                                std::to_string(mark.end) + " bytes of it were durable once") +
                   "; " + file_->name());
}

Result<> RaftLog::write_mark() {
  Mark mark{generation_, end_, 0};
  mark.checksum = header_checksum(mark, hash64(job_, member_));
  const std::span<const Mark> one(&mark, 1);
  return file_->write_mark(as_bytes(one));
}

// Leaves zeros after the last record and syncs.
Result<> RaftLog::cut_tail(const Bytes& bytes) {
  const auto tail = ByteView(bytes).subspan(end_);
  if (!all_zero(tail)) {
    const auto used = std::find_if(tail.rbegin(), tail.rend(), [](std::uint8_t b) { return b; });
    cut_bytes_ = static_cast<std::uint64_t>(tail.rend() - used);
    STARLING_TRY(file_->keep_aside(tail.first(cut_bytes_)));
    STARLING_TRY(file_->resize(end_));
    allocated_ = end_;
  }
  return file_->sync();
}

// ---- Save -------------------------------------------------------------------------------------

Result<> RaftLog::save(const std::optional<RaftTerm>& term, std::span<const RaftEntry> append,
                       const std::optional<RaftLogSnapshot>& snapshot) {
  if (failed_) return Error(Code::kInternal, "raft log failed before; " + file_->name());
  const RaftTerm before = term_;
  if (term) {
    STARLING_CHECK(term->term >= term_.term);
    if (term->term == term_.term && term_.vote) STARLING_CHECK(term->vote == term_.vote);
    term_ = *term;
  }
  Result<> saved = ok();
  if (snapshot) {
    saved = rewrite(*snapshot, append);
  } else {
    ByteWriter batch;
    if (term) put_term(batch, before);
    put_entries(batch, append);
    if (batch.size() == 0) return ok();
    saved = write_batch(std::move(batch).take());
  }
  failed_ = !saved;
  return saved;
}

// Puts term and vote before what is known of the lost log: without the first, the second would
// allow a second vote in a term.
void RaftLog::put_term(ByteWriter& batch, const RaftTerm& before) {
  if (term_.term != before.term || term_.vote != before.vote)
    put_record(batch, kTerm, term_.vote ? std::uint64_t{*term_.vote} + 1 : 0, term_.term, {});
  if (term_.lost) {
    if (!before.lost) put_record(batch, kLost, 0, 0, {});
    return;
  }
  const bool same =
      term_.floor_term == before.floor_term && term_.floor_index == before.floor_index;
  if (before.lost || !same) put_record(batch, kFloor, term_.floor_index, term_.floor_term, {});
}

void RaftLog::put_entries(ByteWriter& batch, std::span<const RaftEntry> append) {
  if (!append.empty() && append.front().index <= last_index()) {
    STARLING_CHECK(append.front().index > base_index_);
    terms_.resize(append.front().index - base_index_ - 1);
    put_record(batch, kEnd, last_index(), 0, {});
  }
  for (const RaftEntry& e : append) {
    STARLING_CHECK(e.index == last_index() + 1);
    STARLING_CHECK(e.term >=
                   std::max<std::uint64_t>(terms_.empty() ? base_term_ : terms_.back(), 1));
    STARLING_CHECK(e.term <= term_.term);
    STARLING_CHECK(e.data.size() <= kEntryBytesMax);
    terms_.push_back(e.term);
    if (e.members)
      put_record(batch, kMembers, e.index, e.term, encode_members(*e.members));
    else
      put_record(batch, kEntry, e.index, e.term, e.data);
  }
}

// A crash leaves the old file or the new one.
Result<> RaftLog::rewrite(const RaftLogSnapshot& snapshot, std::span<const RaftEntry> append) {
  STARLING_CHECK(snapshot.index > base_index_ && snapshot.term <= term_.term);
  STARLING_CHECK(snapshot.data && snapshot.data->size() <= kSnapshotBytesMax);
  ++generation_;
  Bytes bytes = begin_file();
  ByteWriter batch;
  put_term(batch, RaftTerm{});
  put_record(batch, kSnapshot, snapshot.index, snapshot.term, *snapshot.data);
  if (snapshot.members)
    put_record(batch, kMembers, snapshot.index, snapshot.term, encode_members(*snapshot.members));
  base_index_ = snapshot.index;
  base_term_ = snapshot.term;
  terms_.clear();
  put_entries(batch, append);
  const Bytes records = std::move(batch).take();
  bytes.insert(bytes.end(), records.begin(), records.end());
  end_ = bytes.size();
  allocated_ = (end_ / kPreallocated + 1) * kPreallocated;
  bytes.resize(allocated_);
  STARLING_TRY(file_->replace(bytes));
  return write_mark();
}

Result<> RaftLog::write_batch(const Bytes& batch) {
  if (end_ + batch.size() > kFileBytesMax) {
    return Error(Code::kUnavailable, "raft log would exceed " + std::to_string(kFileBytesMax) +
                                         " bytes; " + file_->name());
  }
  // Room for this batch and the next few is taken as written zeros, in steps.
  if (end_ + batch.size() > allocated_) {
    const auto size = (end_ + batch.size()) / kPreallocated * kPreallocated + kPreallocated;
    STARLING_TRY(file_->write(allocated_, Bytes(size - allocated_)));
    allocated_ = size;
  }
  STARLING_TRY(file_->write(end_, batch));
  STARLING_TRY(file_->sync());
  end_ += batch.size();
  return write_mark();
}

void RaftLog::put_record(ByteWriter& batch, std::uint32_t kind, std::uint64_t index,
                         std::uint64_t term, ByteView payload) {
  Bytes body(payload.begin(), payload.end());
  body.resize(padded(payload.size()), kPad);
  RecordHeader header;
  header.length = static_cast<std::uint32_t>(payload.size());
  header.kind = kind;
  header.index = index;
  header.term = term;
  header.synced = end_;
  header.chain = chain_;
  header.payload_checksum = hash64(body, chain_);
  header.checksum = header_checksum(header, mix64(seed_, end_ + batch.size()));
  chain_ = header.checksum;
  batch.put(header);
  batch.put_bytes(body);
}

}  // namespace starling
