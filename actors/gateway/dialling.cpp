#include <zmq.h>

#include <algorithm>

#include "actors/gateway/poller.h"
#include "actors/gateway/seats.h"

// Dials servers whose name has several addresses (lookups.h), those that refuse our key, and those
// that are at another address now.

namespace starling::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDialFor{1000};  // at one of several addresses, at first
constexpr std::size_t kDoublings = 3;
constexpr std::chrono::milliseconds kRefusedAgain{500};

}  // namespace

// Dials the other addresses of a name, each for a while that
// grows with every round of them: a busy server lets a handshake
// wait. ZeroMQ by itself dials the first address of a name alone.
void Gateway::Impl::dial_in_turn() {
  const auto now = Clock::now();
  bool missing = false;
  for (std::size_t place = 0; place < links_.size(); ++place) {
    const LinkState state = link_states[place];
    const Link& link = *links_[place];
    if (state == LinkState::kUp || state == LinkState::kOtherVersion || link.at.empty()) continue;
    if (link.stands) continue;
    missing = true;
    const std::size_t addresses = lookups_.found(place).size();
    const auto rounds =
        std::min<std::size_t>(addresses == 0 ? 0 : link.dialled / addresses, kDoublings);
    if (now - link.dialled_at >= (1 << rounds) * kDialFor) dial_next(place);
  }
  if (missing) lookups_.ask();
}

// Dials refusing servers again: libzmq gives up such an address, but the server's list may change.
void Gateway::Impl::dial_refused() {
  const auto now = Clock::now();
  for (std::size_t place = 0; place < links_.size(); ++place) {
    Link& link = *links_[place];
    if (link_states[place] != LinkState::kRefused || now - link.refused_at < kRefusedAgain)
      continue;
    if (link.stands) continue;  // the token is refused, and shown again there
    link.refused_at = now;
    zmq_disconnect(link.socket.handle(), link.at.c_str());
    (void)link.socket.connect(link.at);  // an error: the next turn tries again
  }
}

void Gateway::Impl::dial_next(std::size_t place) {
  Link& link = *links_[place];
  link.dialled_at = Clock::now();
  const std::vector<std::string> addresses = lookups_.found(place);
  const bool by_name = link.at == link.address;
  // libzmq takes care of a single address; it looks the name up for each connection.
  if (addresses.size() < (by_name ? 2 : 1)) return;
  if (by_name) link.next = 1;  // the name has stood for the first one
  const std::string next = addresses[link.next++ % addresses.size()];
  ++link.dialled;
  if (next == link.at) return;
  zmq_disconnect(link.socket.handle(), link.at.c_str());
  link.at = next;
  // An address in numbers cannot be malformed; after any other error the next turn tries again.
  if (!link.socket.connect(next)) link.at = link.address;
}

Result<> Gateway::Impl::dial(std::size_t place, const std::string& address) {
  STARLING_TRY(wanted, address_to_dial(address));
  {
    const MutexLock lock(mutex_);
    if (addresses_[place] == wanted) return ok();
    addresses_[place] = wanted;
    moved_[place] = wanted;
    // What has been sent until now was for the process at the former address.
    const auto sent =
        std::erase_if(outgoing_, [&](const Outgoing& o) { return o.server == place; });
    drops[static_cast<std::size_t>(Drop::kLinkBroken)] += sent;
  }
  wakeup_.signal();
  return ok();
}

void Gateway::Impl::follow(const Seats& seats) {
  for (const Seat& seat : seats.seats)
    if (seat.place < options.servers.size()) (void)dial(seat.place, seat.address);
}

bool Gateway::Impl::has_address(std::size_t place) const {
  const MutexLock lock(mutex_);
  return !addresses_[place].empty();
}

// Opens another socket: no event and no message of the former connection comes from that.
void Gateway::Impl::move_link(std::size_t place, const std::string& address) {
  auto opened = open_link(options.servers[place], address);
  if (!opened) {  // no file is left, say: the next turn tries again
    const MutexLock lock(mutex_);
    moved_.emplace(place, address);  // unless there is a newer one
    return;
  }
  for (auto& backlog = links_[place]->backlog; !backlog.empty(); backlog.pop_front())
    drop(Drop::kLinkBroken);
  links_[place] = std::move(opened).value();
  link_states[place] = LinkState::kConnecting;
  lookups_.set(place, address);
  pieces_.forget(options.servers[place].name);
}

bool Gateway::Impl::dials() const {
  const bool by_name = lookups_.any();
  for (std::size_t place = 0; place < links_.size(); ++place) {
    const LinkState state = link_states[place];
    if (state == LinkState::kRefused) return true;
    if (by_name && state != LinkState::kUp && !links_[place]->at.empty()) return true;
  }
  const MutexLock lock(mutex_);
  return !moved_.empty();
}

}  // namespace starling::actors
