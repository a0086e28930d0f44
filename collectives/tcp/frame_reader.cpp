#include "collectives/tcp/frame_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/transport.h"

namespace starling::collectives {

namespace {
constexpr std::size_t kStageBytes = 64 * 1024;
constexpr std::size_t kBytesPerRead = 256 * 1024;  // of a payload: hashed while it is in the cache
constexpr std::size_t kBytesPerTurn = 2u << 20;

bool known(FrameKind kind) {
  return kind >= FrameKind::kContribution && kind <= FrameKind::kLeft;
}
}  // namespace

FrameReader::FrameReader(std::shared_ptr<BufferPool> pool, std::size_t frame_bytes_max)
    : pool_(std::move(pool)), frame_bytes_max_(frame_bytes_max), stage_(kStageBytes) {}

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
    // Less than there was room for: the socket is empty, and asking it again would only say so.
    if (static_cast<std::size_t>(n) < asked_) return End::kNothingMore;
  }
  return End::kMore;
}

long FrameReader::read_once(int socket) {
  iovec into[2];
  int n = 0;
  std::size_t direct = 0;
  if (payload_) {  // then nothing is staged
    direct = std::min(payload_->size() - filled_, kBytesPerRead);
    into[n++] = {payload_->data() + filled_, direct};
  } else if (begin_ > 0) {  // part of a header
    std::memmove(stage_.data(), stage_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // Behind the middle of a payload more of it follows, which does not belong into the stage.
  const bool whole = !payload_ || filled_ + direct == payload_->size();
  if (whole) into[n++] = {stage_.data() + end_, stage_.size() - end_};
  asked_ = into[0].iov_len + (n > 1 ? into[1].iov_len : 0);
  const ssize_t got = readv(socket, into, n);
  if (got <= 0) return got;
  const std::size_t taken = std::min(static_cast<std::size_t>(got), direct);
  if (taken > 0) {
    hash_.add(ByteView(*payload_).subspan(filled_, taken));
    filled_ += taken;
  }
  end_ += static_cast<std::size_t>(got) - taken;
  return got;
}

bool FrameReader::take_staged(const Deliver& deliver) {
  for (;;) {
    if (!payload_) {
      if (end_ - begin_ < sizeof(FrameHeader)) return true;
      if (!begin_frame()) return false;
    }
    const std::size_t n = std::min(payload_->size() - filled_, end_ - begin_);
    if (n > 0) {
      std::memcpy(payload_->data() + filled_, stage_.data() + begin_, n);
      hash_.add(ByteView(*payload_).subspan(filled_, n));
      filled_ += n;
      begin_ += n;
    }
    if (begin_ == end_) begin_ = end_ = 0;
    if (filled_ < payload_->size()) return true;
    if (!end_frame(deliver)) return false;
  }
}

bool FrameReader::begin_frame() {
  std::memcpy(&header_, stage_.data() + begin_, sizeof header_);
  begin_ += sizeof header_;
  if (header_.magic != FrameHeader::kMagic || !known(header_.kind))
    return refuse("it sent what is no frame");
  if (header_.check != header_check(header_))
    return refuse("the checksum of a frame's header does not hold");
  if (header_.length > frame_bytes_max_)
    return refuse("it sent a frame of " + std::to_string(header_.length) + " bytes, at most " +
                  std::to_string(frame_bytes_max_) + " expected");
  payload_ = pool_->get(header_.length);
  filled_ = 0;
  hash_.reset(checksum_seed(header_));
  return true;
}

bool FrameReader::end_frame(const Deliver& deliver) {
  const std::shared_ptr<Bytes> payload = std::exchange(payload_, nullptr);
  if (hash_.value() != header_.checksum) return refuse("the checksum of a frame does not hold");
  return deliver({header_, payload});
}

bool FrameReader::refuse(std::string why) {
  error_ = std::move(why);
  return false;
}

}  // namespace starling::collectives
