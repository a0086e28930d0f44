#include "collectives/tcp/outbox.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace starling::collectives {

namespace {
constexpr std::size_t kPiecesPerWrite = 64;
// At most this much is written at once: a reader that keeps pace would hold the writer here for
// ever, and frames to others would wait.
constexpr std::size_t kBytesPerFlush = 4u << 20;
constexpr std::size_t kSendStageBytes = 128 * 1024;  // sealed at once
constexpr std::size_t kBytesHeld = 64 * 1024;        // beyond, a call more does not matter
}  // namespace

void Outbox::push(const FrameHeader& whole, const Payload& payload, bool held) {
  const MutexLock lock(mutex_);
  push_locked(whole, payload, held);
}

void Outbox::push_if_idle(const FrameHeader& whole) {
  const MutexLock lock(mutex_);
  if (empty_locked()) push_locked(whole, {}, false);
}

void Outbox::flush() {
  const MutexLock lock(mutex_);
  if (socket_ && !writing_ && !empty_locked()) flush_locked();
}

void Outbox::push_last(const FrameHeader& whole) {
  const MutexLock lock(mutex_);
  push_locked(whole, {}, false);
  last_pushed_ = true;
}

void Outbox::push_locked(const FrameHeader& whole, const Payload& payload, bool held) {
  if (closed_ || last_pushed_) return;
  queue_.push_back({whole, payload});
  queue_bytes_ += queue_.back().size();
  if (queue_bytes_ > queue_bytes_max_) return fail_locked("it does not take what is sent to it");
  if (held && queue_bytes_ < kBytesHeld) return;
  if (socket_ && !writing_) flush_locked();  // else the communication thread goes on
}

void Outbox::open(Fd socket, const ConnectionKeys& keys) {
  const MutexLock lock(mutex_);
  STARLING_CHECK(!socket_ && !closed_);
  socket_ = std::move(socket);
  seal_ = keys.seal;
  if (seal_ != FrameSeal::kPlain) aead_.emplace(keys.send, Aead::Way::kSeal);
  epoll_event event{};
  reading_ = EPOLLRDHUP;
  event.events = reading_;
  event.data.u64 = tag_;
  STARLING_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket_.get(), &event) == 0);
  flush_locked();
}

void Outbox::start_reading() {
  const MutexLock lock(mutex_);
  reading_ = EPOLLIN;
  update_events_locked();
}

void Outbox::pause_reading() {
  const MutexLock lock(mutex_);
  reading_ = 0;
  update_events_locked();
}

void Outbox::on_writable() {
  const MutexLock lock(mutex_);
  if (socket_) flush_locked();
}

void Outbox::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  socket_.reset();
  queue_.clear();
  queue_bytes_ = 0;
  staged_begin_ = staged_end_ = 0;
}

bool Outbox::flushed_last() const {
  const MutexLock lock(mutex_);
  return last_pushed_ && empty_locked();
}

std::string Outbox::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

void Outbox::flush_locked() {
  std::size_t written = 0;
  while (!empty_locked() && written < kBytesPerFlush) {
    const ssize_t n = write_some_locked();
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return fail_locked(std::string("sending failed, ") + strerror(errno));
    written += static_cast<std::size_t>(n);
  }
  if (writing_ == empty_locked()) {
    writing_ = !writing_;
    update_events_locked();
  }
}

ssize_t Outbox::write_some_locked() {
  if (seal_ == FrameSeal::kSecret) return write_staged_locked();
  const ssize_t n = write_items_locked();
  if (n > 0) drop_sent_locked(static_cast<std::size_t>(n));
  return n;
}

ssize_t Outbox::write_items_locked() {
  std::array<iovec, kPiecesPerWrite> pieces;
  std::size_t n = 0;
  const auto add = [&](ByteView view, std::size_t& skip) {
    const std::size_t skipped = std::min(skip, view.size());
    skip -= skipped;
    view = view.subspan(skipped);
    if (!view.empty() && n < pieces.size())
      pieces[n++] = {const_cast<std::uint8_t*>(view.data()), view.size()};
  };
  for (Item& item : queue_) {
    if (aead_ && !item.tagged) tag_locked(item);
    std::size_t skip = item.sent;
    add(as_bytes(std::span<const FrameHeader>(&item.header, 1)), skip);
    if (aead_) add(item.header_tag, skip);
    for (const auto& piece : item.payload.pieces()) add(piece.view, skip);
    if (aead_ && item.payload.size() > 0) add(item.payload_tag, skip);
    if (n == pieces.size()) break;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = n;
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
}

// Makes tags in the order of the queue: the place of a frame on its connection is part of its tags.
void Outbox::tag_locked(Item& item) {
  item.tagged = true;
  aead_->begin();
  aead_->cover(as_bytes(std::span<const FrameHeader>(&item.header, 1)));
  item.header_tag = aead_->tag();
  if (item.payload.size() == 0) return;
  aead_->begin();
  for (const auto& piece : item.payload.pieces()) aead_->cover(piece.view);
  item.payload_tag = aead_->tag();
}

ssize_t Outbox::write_staged_locked() {
  if (staged_begin_ == staged_end_) stage_locked();
  const ssize_t n = ::send(socket_.get(), staged_.data() + staged_begin_,
                           staged_end_ - staged_begin_, MSG_NOSIGNAL);
  if (n > 0) staged_begin_ += static_cast<std::size_t>(n);
  return n;
}

// Seals what comes next in the queue, as much as the stage takes; a frame may end in a later one.
void Outbox::stage_locked() {
  staged_.resize(kSendStageBytes);
  staged_begin_ = staged_end_ = 0;
  const auto put_tag = [&]() STARLING_REQUIRES(mutex_) {
    const AeadTag tag = aead_->tag();
    std::memcpy(staged_.data() + staged_end_, tag.data(), tag.size());
    staged_end_ += tag.size();
  };
  while (!queue_.empty()) {
    Item& item = queue_.front();
    if (item.sent == 0) {
      if (staged_.size() - staged_end_ < sizeof item.header + sizeof(AeadTag)) return;
      aead_->begin();
      aead_->crypt(as_bytes(std::span<const FrameHeader>(&item.header, 1)),
                   staged_.data() + staged_end_);
      staged_end_ += sizeof item.header;
      put_tag();
      item.sent = sizeof item.header;
      if (item.payload.size() > 0) aead_->begin();
    }
    std::size_t skip = item.sent - sizeof item.header;
    for (const auto& piece : item.payload.pieces()) {
      const std::size_t skipped = std::min(skip, piece.view.size());
      skip -= skipped;
      const std::size_t n = std::min(piece.view.size() - skipped, staged_.size() - staged_end_);
      aead_->crypt(piece.view.subspan(skipped, n), staged_.data() + staged_end_);
      staged_end_ += n;
      item.sent += n;
      if (skipped + n < piece.view.size()) return;  // the stage is full
    }
    if (item.payload.size() > 0) {
      if (staged_.size() - staged_end_ < sizeof(AeadTag)) return;
      put_tag();
    }
    queue_bytes_ -= item.size();
    queue_.pop_front();
  }
}

std::size_t Outbox::wire_size(const Item& item) const {
  const std::size_t tags = !aead_ ? 0 : item.payload.size() > 0 ? 2 : 1;
  return item.size() + tags * sizeof(AeadTag);
}

void Outbox::drop_sent_locked(std::size_t n) {
  while (n > 0) {
    Item& item = queue_.front();
    const std::size_t taken = std::min(n, wire_size(item) - item.sent);
    item.sent += taken;
    n -= taken;
    if (item.sent < wire_size(item)) return;
    queue_bytes_ -= item.size();
    queue_.pop_front();
  }
}

// The communication thread closes the connection: it alone reports breaks.
void Outbox::fail_locked(std::string why) {
  failure_ = std::move(why);
  failed_ = true;
  closed_ = true;
  queue_.clear();
  queue_bytes_ = 0;
  staged_begin_ = staged_end_ = 0;
  wake(wake_);
}

void Outbox::update_events_locked() {
  if (!socket_) return;
  epoll_event event{};
  event.events = reading_;
  if (writing_) event.events |= EPOLLOUT;
  event.data.u64 = tag_;
  STARLING_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), &event) == 0);
}

}  // namespace starling::collectives
