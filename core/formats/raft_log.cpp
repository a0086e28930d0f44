#include "core/formats/raft_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/formats/raft_log_file.h"

namespace starling {

namespace {

constexpr std::uint64_t kMagic = 0x31676f4c74666152;  // "RaftLog1"
constexpr std::uint32_t kFormat = 1;
constexpr std::uint64_t kSector = 512;  // a disk writes these whole, or a prefix of them
constexpr std::uint64_t kPreallocated = 256 * 1024;
constexpr std::uint8_t kPad = 0xa5;  // not zero: the last word of a record is never zero

struct FileHeader {
  std::uint64_t magic = kMagic;
  std::uint32_t format = kFormat;
  std::uint32_t member = 0;
  JobId job{};
  std::uint64_t reserved[3] = {};
  std::uint64_t checksum = 0;
};
static_assert(sizeof(FileHeader) == 64);

enum Kind : std::uint32_t {
  kTerm = 1,  // term; index = vote + 1, 0 = none
  kEntry = 2,
  kEnd = 3,  // the log ends at `index`
};

struct RecordHeader {
  std::uint32_t length = 0;
  std::uint32_t kind = 0;
  std::uint64_t index = 0;
  std::uint64_t term = 0;
  std::uint64_t synced = 0;
  std::uint64_t chain = 0;
  std::uint64_t payload_checksum = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(RecordHeader) == 56);

template <class T>
T read_at(ByteView bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Over everything before the checksum, which is the last field. Never 0: zeros are no record.
template <class T>
std::uint64_t checksum_of(const T& header, std::uint64_t seed) {
  const std::span<const T> one(&header, 1);
  return std::max<std::uint64_t>(hash64(as_bytes(one).first(sizeof(T) - 8), seed), 1);
}

std::uint64_t padded(std::uint64_t length) {
  return length == 0 ? 0 : (length + 8) / 8 * 8;
}

bool all_zero(ByteView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

}  // namespace

// ---- Open -------------------------------------------------------------------------------------

Result<RaftLog> RaftLog::open(const std::string& dir, const JobId& job, std::uint32_t member) {
  STARLING_TRY(file, open_raft_log_file(dir));
  return open_on(std::move(file), job, member);
}

Result<RaftLog> RaftLog::open_on(std::unique_ptr<RaftLogFile> file, const JobId& job,
                                 std::uint32_t member) {
  RaftLog log(std::move(file));
  STARLING_TRY(bytes, log.file_->read());
  // Zeros: the machine stopped before the first sync, so nothing was ever promised.
  if (all_zero(bytes)) {
    STARLING_TRY(log.create(job, member));
  } else {
    STARLING_TRY(log.load(bytes, job, member));
    STARLING_TRY(log.cut_tail(bytes));
  }
  return log;
}

Result<> RaftLog::create(const JobId& job, std::uint32_t member) {
  FileHeader header;
  header.member = member;
  header.job = job;
  header.checksum = checksum_of(header, 0);
  seed_ = hash64(job, member);
  chain_ = header.checksum;
  end_ = sizeof(FileHeader);
  allocated_ = kPreallocated;
  Bytes bytes(kPreallocated);
  std::memcpy(bytes.data(), &header, sizeof(header));
  STARLING_TRY(file_->write(0, bytes));
  return file_->sync();
}

// Reads records one after the other into `log`.
struct RaftLog::Loader {
  RaftLog& log;
  ByteView bytes;

  Error corrupt(std::uint64_t offset, const std::string& what) const {
    return Error(Code::kCorrupt, "raft log is damaged: " + what + "; " + log.file_->name() +
                                     ", offset " + std::to_string(offset));
  }

  Result<> check_file_header(const JobId& job, std::uint32_t member) const {
    if (bytes.size() < sizeof(FileHeader)) return corrupt(0, "shorter than its header");
    const auto header = read_at<FileHeader>(bytes, 0);
    if (header.magic != kMagic) return corrupt(0, "not a raft log");
    if (header.checksum != checksum_of(header, 0)) return corrupt(0, "header checksum");
    if (header.format != kFormat) {
      return Error(Code::kBadInput, "raft log has format " + std::to_string(header.format) +
                                        ", this program reads " + std::to_string(kFormat) + "; " +
                                        log.file_->name());
    }
    if (header.job != job) {
      return Error(Code::kBadInput, "raft log belongs to job " + to_string(header.job) + ", not " +
                                        to_string(job) + "; " + log.file_->name());
    }
    if (header.member != member) {
      return Error(Code::kBadInput, "raft log belongs to member " + std::to_string(header.member) +
                                        ", not " + std::to_string(member) + "; " +
                                        log.file_->name());
    }
    return ok();
  }

  bool header_holds(std::uint64_t offset) const {
    if (bytes.size() - offset < sizeof(RecordHeader)) return false;
    const auto header = read_at<RecordHeader>(bytes, offset);
    return header.checksum == checksum_of(header, mix64(log.seed_, offset));
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
    if (header.kind != kEntry && header.length != 0) return corrupt(offset, "unexpected payload");
    switch (header.kind) {
      case kTerm:
        return apply_term(offset, header);
      case kEntry:
        return apply_entry(offset, header);
      case kEnd:
        if (header.index >= log.terms_.size()) return corrupt(offset, "cut beyond the end");
        log.terms_.resize(header.index);
        log.entries_.resize(header.index);
        return ok();
      default:
        return corrupt(offset, "unknown record kind " + std::to_string(header.kind));
    }
  }

  Result<> apply_term(std::uint64_t offset, const RecordHeader& header) const {
    if (header.index > std::uint64_t{1} << 32) return corrupt(offset, "impossible vote");
    RaftTerm next{header.term, {}};
    if (header.index != 0) next.vote = static_cast<std::uint32_t>(header.index - 1);
    if (next.term < log.term_.term) return corrupt(offset, "term falls");
    if (next.term == log.term_.term && log.term_.vote && next.vote != log.term_.vote) {
      return corrupt(offset, "vote changes within a term");
    }
    log.term_ = next;
    return ok();
  }

  Result<> apply_entry(std::uint64_t offset, const RecordHeader& header) const {
    if (header.length > kEntryBytesMax) return corrupt(offset, "entry too large");
    if (header.index != log.terms_.size() + 1) return corrupt(offset, "entry out of order");
    const auto last = log.terms_.empty() ? 1 : log.terms_.back();
    if (header.term < last || header.term > log.term_.term) {
      return corrupt(offset, "impossible term of an entry");
    }
    const auto payload = bytes.subspan(offset + sizeof(RecordHeader), header.length);
    log.terms_.push_back(header.term);
    log.entries_.push_back({header.index, header.term, Bytes(payload.begin(), payload.end())});
    return ok();
  }
};

Result<> RaftLog::load(const Bytes& bytes, const JobId& job, std::uint32_t member) {
  const Loader loader{*this, bytes};
  STARLING_TRY(loader.check_file_header(job, member));
  seed_ = hash64(job, member);
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
  // If the last life ended on a failed sync, its last batch may be in memory only, in pages that
  // count as clean: write it again, so that the sync in cut_tail() covers it.
  return file_->write(batch, ByteView(bytes).subspan(batch, end_ - batch));
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

Result<> RaftLog::save(const std::optional<RaftTerm>& term, std::span<const RaftEntry> append) {
  if (failed_) return Error(Code::kInternal, "raft log failed before; " + file_->name());
  ByteWriter batch;
  if (term) {
    STARLING_CHECK(term->term >= term_.term);
    if (term->term == term_.term && term_.vote) STARLING_CHECK(term->vote == term_.vote);
    term_ = *term;
    put_record(batch, kTerm, term->vote ? std::uint64_t{*term->vote} + 1 : 0, term->term, {});
  }
  if (!append.empty() && append.front().index <= last_index()) {
    STARLING_CHECK(append.front().index >= 1);
    terms_.resize(append.front().index - 1);
    put_record(batch, kEnd, last_index(), 0, {});
  }
  for (const RaftEntry& e : append) {
    STARLING_CHECK(e.index == last_index() + 1);
    STARLING_CHECK(e.term >= (terms_.empty() ? 1 : terms_.back()));
    STARLING_CHECK(e.term <= term_.term);
    STARLING_CHECK(e.data.size() <= kEntryBytesMax);
    terms_.push_back(e.term);
    put_record(batch, kEntry, e.index, e.term, e.data);
  }
  if (batch.size() == 0) return ok();
  auto written = write_batch(std::move(batch).take());
  failed_ = !written;
  return written;
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
  return ok();
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
  header.checksum = checksum_of(header, mix64(seed_, end_ + batch.size()));
  chain_ = header.checksum;
  batch.put(header);
  batch.put_bytes(body);
}

}  // namespace starling
