#include "collectives/tcp/frame_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/frame_sender.h"

namespace starling::collectives {

namespace {
constexpr std::size_t kReceiveStageBytes = 64 * 1024;
constexpr std::size_t kBytesPerRead = 256 * 1024;  // of a payload: hashed while it is in the cache
constexpr std::size_t kBytesPerTurn = 2u << 20;

constexpr const char* kForged =
    "a frame from it does not hold under the connection's key: changed, repeated or left out on "
    "the way";

bool known(FrameKind kind) {
  return kind >= FrameKind::kContribution && kind <= FrameKind::kAlive;
}
}  // namespace

FrameReader::FrameReader(std::shared_ptr<BufferPool> pool, std::size_t frame_bytes_max)
    : pool_(std::move(pool)), frame_bytes_max_(frame_bytes_max), stage_(kReceiveStageBytes) {}

void FrameReader::open(const ConnectionKeys& keys) {
  seal_ = keys.seal;
  if (seal_ != FrameSeal::kPlain) aead_.emplace(keys.receive, Aead::Way::kOpen);
}

FrameReader::End FrameReader::read(int socket, const Deliver& deliver) {
  for (std::size_t turn = 0; turn < kBytesPerTurn;) {
    const long n = read_once(socket);
    if (n == 0) return End::kEndOfFile;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return End::kNothingMore;
    if (n < 0) {
      error_ = std::string("receiving failed, ") + strerror(errno);
      return End::kError;
    }
    turn += static_cast<std::size_t>(n);
    if (!take_staged(deliver)) return error_.empty() ? End::kNothingMore : End::kError;
    // A short read means that the socket is empty: asking it again would only say so.
    if (static_cast<std::size_t>(n) < asked_) return End::kNothingMore;
  }
  return End::kMore;
}

long FrameReader::read_once(int socket) {
  iovec into[2];
  int n = 0;
  std::size_t direct = 0;
  if (payload_ && filled_ < payload_->size()) {  // then nothing is staged
    direct = std::min(payload_->size() - filled_, kBytesPerRead);
    into[n++] = {payload_->data() + filled_, direct};
  } else if (begin_ > 0) {  // part of a header or of a tag
    std::memmove(stage_.data(), stage_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Bytes behind the middle of a payload are more of it and do not belong into the stage.
  const bool whole = !payload_ || filled_ + direct == payload_->size();
  if (whole) into[n++] = {stage_.data() + end_, stage_.size() - end_};
  asked_ = into[0].iov_len + (n > 1 ? into[1].iov_len : 0);
  const ssize_t got = readv(socket, into, n);
  if (got <= 0) return got;
  const std::size_t taken = std::min(static_cast<std::size_t>(got), direct);
  if (taken > 0) take(ByteView(*payload_).subspan(filled_, taken), payload_->data() + filled_);
  end_ += static_cast<std::size_t>(got) - taken;
  return got;
}

bool FrameReader::take_staged(const Deliver& deliver) {
  for (;;) {
    if (!payload_) {
      if (end_ - begin_ < header_bytes()) return true;
      if (!begin_frame()) return false;
    }
    const std::size_t n = std::min(payload_->size() - filled_, end_ - begin_);
    if (n > 0) {
      take(ByteView(stage_).subspan(begin_, n), payload_->data() + filled_);
      begin_ += n;
    }
    if (begin_ == end_) begin_ = end_ = 0;
    if (filled_ < payload_->size()) return true;
    if (aead_ && filled_ > 0 && end_ - begin_ < sizeof(AeadTag)) return true;
    if (!end_payload() || !end_frame(deliver)) return false;
  }
}

// Copies bytes of the payload to their place in it, unless they are there already.
void FrameReader::take(ByteView from, std::uint8_t* to) {
  filled_ += from.size();
  if (seal_ == FrameSeal::kSecret) return aead_->crypt(from, to);
  if (from.data() != to) std::memcpy(to, from.data(), from.size());
  const ByteView bytes(to, from.size());
  if (aead_) {
    aead_->cover(bytes);
  } else {
    hash_.add(bytes);
  }
}

std::size_t FrameReader::header_bytes() const {
  return sizeof(FrameHeader) + (aead_ ? sizeof(AeadTag) : 0);
}

AeadTag FrameReader::staged_tag() {
  AeadTag tag;
  std::memcpy(tag.data(), stage_.data() + begin_, tag.size());
  begin_ += tag.size();
  return tag;
}

// The fields of a header are not used before its tag holds.
bool FrameReader::read_header() {
  const ByteView bytes = ByteView(stage_).subspan(begin_, sizeof header_);
  begin_ += bytes.size();
  auto* header = reinterpret_cast<std::uint8_t*>(&header_);
  if (seal_ != FrameSeal::kSecret) std::memcpy(header, bytes.data(), bytes.size());
  if (!aead_) return true;
  aead_->begin();
  if (seal_ == FrameSeal::kSecret) {
    aead_->crypt(bytes, header);
  } else {
    aead_->cover(bytes);
  }
  return aead_->tag_holds(staged_tag()) || refuse(kForged);
}

bool FrameReader::begin_frame() {
  if (!read_header()) return false;
  if (header_.magic != FrameHeader::kMagic || !known(header_.kind))
    return refuse("it sent what is no frame");
  if (header_.check != header_check(header_))
    return refuse("the checksum of a frame's header does not hold");
  if (header_.length > frame_bytes_max_)
    return refuse("it sent a frame of " + std::to_string(header_.length) + " bytes, at most " +
                  std::to_string(frame_bytes_max_) + " expected");
  payload_ = pool_->get(header_.length);
  filled_ = 0;
  if (!aead_) hash_.reset(checksum_seed(header_));
  if (aead_ && header_.length > 0) aead_->begin();
  return true;
}

bool FrameReader::end_payload() {
  if (!aead_)
    return hash_.value() == header_.checksum || refuse("the checksum of a frame does not hold");
  return filled_ == 0 || aead_->tag_holds(staged_tag()) || refuse(kForged);
}

bool FrameReader::end_frame(const Deliver& deliver) {
  const std::shared_ptr<Bytes> payload = std::exchange(payload_, nullptr);
  return deliver({header_, payload});
}

bool FrameReader::refuse(std::string why) {
  error_ = std::move(why);
  return false;
}

}  // namespace starling::collectives
