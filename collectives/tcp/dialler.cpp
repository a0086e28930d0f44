#include "collectives/tcp/dialler.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace starling::collectives {

namespace {
constexpr std::chrono::milliseconds kBackoffMax{200};
}  // namespace

Dialler::Dialler(const EpochSecret& secret, DialTarget target, const Fd& epoll, std::uint64_t tag,
                 std::chrono::milliseconds timeout)
    : secret_(secret),
      target_(std::move(target)),
      epoll_(epoll),
      tag_(tag),
      timeout_(timeout),
      try_local_(target_.local) {}

void Dialler::on_time(Clock::time_point now) {
  if (now < wake_at_) return;
  if (phase_ == Phase::kIdle) return dial(now);
  give_up("no answer in time", now);
}

void Dialler::dial(Clock::time_point now) {
  // Another process may answer under the local name: then TCP has its turn.
  if (std::exchange(try_local_, target_.local && !try_local_)) socket_ = dial_local(target_.port);
  at_local_ = static_cast<bool>(socket_);
  if (!socket_) {
    if (next_ >= addresses_.size()) {
      addresses_ = numeric_addresses(target_.host);
      next_ = 0;
      listens_ = false;
    }
    const bool known = next_ < addresses_.size();
    auto dialled = dial_tcp(known ? addresses_[next_++] : target_.host, target_.port);
    if (!dialled)
      return give_up(dialled.error().text(), now, dialled.error().code() == Code::kPeerLost);
    socket_ = std::move(dialled.value());
  }
  have_ = 0;
  phase_ = Phase::kConnecting;
  // The timeout is shared, so that an address that does not answer leaves time for the others.
  wake_at_ = now + timeout_ / std::max<std::size_t>(1, addresses_.size());
  watch(EPOLL_CTL_ADD, EPOLLOUT);
}

std::optional<Stood> Dialler::on_event(Clock::time_point now) {
  if (phase_ == Phase::kIdle) return {};
  if (phase_ == Phase::kConnecting) {
    if (!on_connected()) {
      const int error = errno;
      give_up(std::string("connecting, ") + strerror(error), now, error == ECONNREFUSED);
    } else if (addresses_.size() > 1) {
      wake_at_ = now + timeout_;  // a process listens there
    }
    return {};
  }
  // Read exactly the expected bytes: those behind them are frames.
  const std::size_t need = expected();
  const ssize_t n = recv(socket_.get(), buffer_.data() + have_, need - have_, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (n <= 0) {
    give_up("it closed during the handshake", now);
    return {};
  }
  have_ += static_cast<std::size_t>(n);
  if (have_ < need) return {};
  if (phase_ == Phase::kAwaitPrefix) {
    on_prefix(now);
    return {};
  }
  have_ = 0;
  if (phase_ == Phase::kAwaitAnswer) {
    if (!on_answer(now)) give_up("it does not know the epoch's key", now);
    return {};
  }
  if (buffer_[0] != kAdmit) {
    give_up("it did not admit us", now);
    return {};
  }
  const auto keys = dialler_keys(secret_, hello_, answer_);
  if (!keys) {
    give_up("its half of the key exchange is none", now);
    return {};
  }
  watch(EPOLL_CTL_DEL, 0);
  phase_ = Phase::kIdle;
  return Stood{std::move(socket_), *keys};
}

std::size_t Dialler::expected() const {
  switch (phase_) {
    case Phase::kAwaitPrefix:
      return sizeof(Prefix);
    case Phase::kAwaitAnswer:
      return sizeof(Answer);  // its prefix is in the buffer already
    default:
      return sizeof kAdmit;
  }
}

// Any process may listen under a local name: TCP has its turn then.
void Dialler::on_prefix(Clock::time_point now) {
  Prefix prefix;
  std::memcpy(&prefix, buffer_.data(), sizeof prefix);
  if (prefix.magic != Prefix::kMagic) return give_up("it answered what is no handshake", now);
  phase_ = Phase::kAwaitAnswer;
  const std::string fault = prefix_fault(prefix, hello_.prefix);
  if (fault.empty()) return;
  refused_ = !at_local_;
  give_up(fault, now);
}

bool Dialler::on_connected() {
  errno = connect_error(socket_);
  if (errno != 0) return false;
  hello_ = make_hello(secret_, target_.rank);
  if (!send_whole(socket_, hello_)) return false;
  phase_ = Phase::kAwaitPrefix;
  watch(EPOLL_CTL_MOD, EPOLLIN);
  return true;
}

bool Dialler::on_answer(Clock::time_point now) {
  std::memcpy(&answer_, buffer_.data(), sizeof answer_);
  const auto proof = make_proof(secret_, hello_, answer_);
  if (!proof || !send_whole(socket_, *proof)) return false;
  phase_ = Phase::kAwaitAdmit;
  // The timeout starts anew: giving up when the peer has just admitted us would be a break.
  wake_at_ = now + timeout_;
  return true;
}

void Dialler::give_up(std::string why, Clock::time_point now, bool nobody_listens) {
  failure_ = std::move(why);
  socket_.reset();
  phase_ = Phase::kIdle;
  if (!at_local_) {
    listens_ = listens_ || !nobody_listens;
    if (next_ < addresses_.size()) {  // the next one at once
      wake_at_ = now;
      return;
    }
    refused_ = refused_ || !listens_;
  }
  wake_at_ = now + backoff_;
  backoff_ = std::min(2 * backoff_, kBackoffMax);
}

void Dialler::watch(int operation, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_;
  STARLING_CHECK(epoll_ctl(epoll_.get(), operation, socket_.get(), &event) == 0);
}

}  // namespace starling::collectives
