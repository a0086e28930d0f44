#include <zmq.h>

#include <utility>

#include "actors/gateway/poller.h"
#include "core/wire/codec.h"

// A client shows servers its token until they let in its key, with each connection anew: a server that began again
// knows no key that it had let in.

namespace starling::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kUnanswered{
    5000};  // then it is shown again: an answer may be lost
constexpr std::chrono::milliseconds kRefusedToken{500};
constexpr const char* kLookedAt = "identity: the token is being looked at";
constexpr std::chrono::milliseconds kNotNow{1000};  // where the server cannot tell yet

}  // namespace

bool Gateway::Impl::may_send(const Link& link) const {
  return !options.enrols || link.enrolled;
}

// The handshake is complete, by which nobody is let in where tokens are shown.
void Gateway::Impl::stands(std::size_t place) {
  Link& link = *links_[place];
  link.dialled = 0;
  if (!options.enrols) {
    link_states[place] = LinkState::kUp;
    return;
  }
  link.stands = true;
  link.enrolled = false;
  link.enrol_at = Clock::now();
  if (link_states[place] != LinkState::kRefused) set_refusal(place, kLookedAt);
}

void Gateway::Impl::falls(std::size_t place) {
  Link& link = *links_[place];
  link.stands = link.enrolled = false;
  if (options.enrols && link_states[place] != LinkState::kRefused) set_refusal(place, {});
}

bool Gateway::Impl::enrols_soon() const {
  if (!options.enrols) return false;
  for (const auto& link : links_)
    if (link->stands && !link->enrolled) return true;
  return false;
}

void Gateway::Impl::enrol_where_due() {
  const auto now = Clock::now();
  for (std::size_t place = 0; place < links_.size(); ++place) {
    Link& link = *links_[place];
    if (!link.stands || link.enrolled || now < link.enrol_at || !link.socket.writable()) continue;
    auto token = options.enrols->token();
    if (!token) {
      set_refusal(place, token.error().text());
      link_states[place] = LinkState::kRefused;
      link.enrol_at = now + kRefusedToken;
      continue;
    }
    link.enrol_at = now + kUnanswered;
    const Bytes bytes = encode(options.job, self(), {}, Enrol{std::move(token).value()});
    (void)zmq_send(link.socket.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT);
  }
}

void Gateway::Impl::take(std::size_t place, const Enrolled& answer) {
  Link& link = *links_[place];
  if (!options.enrols || !link.stands) return;
  set_refusal(place, answer.refusal);
  link.enrolled = answer.refusal.empty();
  if (link.enrolled) {
    link_states[place] = LinkState::kUp;
    return;
  }
  link.enrol_at = Clock::now() + (answer.again ? kNotNow : kRefusedToken);
  link_states[place] = answer.again ? LinkState::kConnecting : LinkState::kRefused;
}

void Gateway::Impl::set_refusal(std::size_t place, const std::string& why) {
  const MutexLock lock(mutex_);
  refusals_[place] = why;
}

std::string Gateway::Impl::refusal(std::size_t place) const {
  const MutexLock lock(mutex_);
  return refusals_[place];
}

}  // namespace starling::actors
