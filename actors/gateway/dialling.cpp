#include <zmq.h>

#include <algorithm>

#include "actors/gateway/poller.h"

// Dials servers whose name has several addresses (lookups.h), and those that refuse our key.

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
    if (state == LinkState::kUp || state == LinkState::kOtherVersion) continue;
    missing = true;
    const Link& link = links_[place];
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
    Link& link = links_[place];
    if (link_states[place] != LinkState::kRefused || now - link.refused_at < kRefusedAgain)
      continue;
    link.refused_at = now;
    zmq_disconnect(link.socket.handle(), link.at.c_str());
    (void)link.socket.connect(link.at);  // an error: the next turn tries again
  }
}

void Gateway::Impl::dial_next(std::size_t place) {
  Link& link = links_[place];
  link.dialled_at = Clock::now();
  const std::vector<std::string> addresses = lookups_.found(place);
  const bool by_name = link.at == options.servers[place].address;
  // libzmq takes care of a single address; it looks the name up for each connection.
  if (addresses.size() < (by_name ? 2 : 1)) return;
  if (by_name) link.next = 1;  // the name has stood for the first one
  const std::string next = addresses[link.next++ % addresses.size()];
  ++link.dialled;
  if (next == link.at) return;
  zmq_disconnect(link.socket.handle(), link.at.c_str());
  link.at = next;
  // An address in numbers cannot be malformed; after any other error the next turn tries again.
  if (!link.socket.connect(next)) link.at = options.servers[place].address;
}

}  // namespace starling::actors
