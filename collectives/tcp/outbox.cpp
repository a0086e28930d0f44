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
// At most this much at once: a reader that keeps pace would hold the writer here for ever, and
// frames of others would wait.
constexpr std::size_t kBytesPerFlush = 4u << 20;
constexpr std::size_t kBytesHeld = 64 * 1024;  // beyond, a call more does not matter
}  // namespace

void Outbox::push(const FrameHeader& sealed, const Payload& payload, bool held) {
  const std::lock_guard lock(mutex_);
  push_locked(sealed, payload, held);
}

void Outbox::flush() {
  const std::lock_guard lock(mutex_);
  if (socket_ && !writing_ && !queue_.empty()) flush_locked();
}

void Outbox::push_last(const FrameHeader& sealed) {
  const std::lock_guard lock(mutex_);
  push_locked(sealed, {}, false);
  last_pushed_ = true;
}

void Outbox::push_locked(const FrameHeader& sealed, const Payload& payload, bool held) {
  if (closed_ || last_pushed_) return;
  queue_.push_back({sealed, payload});
  queue_bytes_ += queue_.back().size();
  if (queue_bytes_ > queue_bytes_max_) return fail_locked("it does not take what is sent to it");
  if (held && queue_bytes_ < kBytesHeld) return;
  if (socket_ && !writing_) flush_locked();  // else the communication thread goes on
}

void Outbox::open(Fd socket) {
  const std::lock_guard lock(mutex_);
  STARLING_CHECK(!socket_ && !closed_);
  socket_ = std::move(socket);
  epoll_event event{};
  event.events = EPOLLRDHUP;
  event.data.u64 = tag_;
  STARLING_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket_.get(), &event) == 0);
  flush_locked();
}

void Outbox::start_reading() {
  const std::lock_guard lock(mutex_);
  reading_ = true;
  update_events_locked();
}

void Outbox::on_writable() {
  const std::lock_guard lock(mutex_);
  if (socket_) flush_locked();
}

void Outbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  socket_.reset();
  queue_.clear();
  queue_bytes_ = 0;
}

bool Outbox::flushed_last() const {
  const std::lock_guard lock(mutex_);
  return last_pushed_ && queue_.empty();
}

std::string Outbox::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Outbox::flush_locked() {
  std::size_t written = 0;
  while (!queue_.empty() && written < kBytesPerFlush) {
    const ssize_t n = write_some_locked();
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return fail_locked(std::string("sending failed, ") + strerror(errno));
    written += static_cast<std::size_t>(n);
    drop_sent_locked(static_cast<std::size_t>(n));
  }
  if (writing_ == queue_.empty()) {
    writing_ = !queue_.empty();
    update_events_locked();
  }
}

ssize_t Outbox::write_some_locked() {
  std::array<iovec, kPiecesPerWrite> pieces;
  std::size_t n = 0;
  const auto add = [&](ByteView view, std::size_t& skip) {
    const std::size_t skipped = std::min(skip, view.size());
    skip -= skipped;
    view = view.subspan(skipped);
    if (!view.empty() && n < pieces.size())
      pieces[n++] = {const_cast<std::uint8_t*>(view.data()), view.size()};
  };
  for (const Item& item : queue_) {
    std::size_t skip = item.sent;
    add(as_bytes(std::span(&item.header, 1)), skip);
    for (const auto& piece : item.payload.pieces()) add(piece.view, skip);
    if (n == pieces.size()) break;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = n;
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
}

void Outbox::drop_sent_locked(std::size_t n) {
  while (n > 0) {
    Item& item = queue_.front();
    const std::size_t taken = std::min(n, item.size() - item.sent);
    item.sent += taken;
    n -= taken;
    if (item.sent < item.size()) return;
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
  wake(wake_);
}

void Outbox::update_events_locked() {
  if (!socket_) return;
  epoll_event event{};
  event.events = static_cast<std::uint32_t>(reading_ ? EPOLLIN : EPOLLRDHUP);
  if (writing_) event.events |= EPOLLOUT;
  event.data.u64 = tag_;
  STARLING_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), &event) == 0);
}

}  // namespace starling::collectives
