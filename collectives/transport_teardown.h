#pragma once
// TransportTeardown orders how the members of a transport that is over take their parts of it down:
// each stops its kernels first and says so, and frees memory when all living members have said it,
// as a kernel may work on the memory of another GPU of its machine. A pure machine, not simulated.
// It has no clock: a transport waits for its gate for a bounded time
// (collectives/device_transport.h).

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/transport_agreement.h"
#include "core/base/ids.h"
#include "core/wire/messages.h"

namespace starling::collectives {

struct TransportId {
  EpochId epoch;
  std::uint32_t attempt = 0;
  auto operator<=>(const TransportId&) const = default;
};

namespace teardown {
struct Send {  // over the connections of this epoch
  EpochId epoch;
  Rank to = 0;
  TransportLeft word;
};
struct Open {  // the gate of this transport: all other living members have left it
  TransportId transport;
};
}  // namespace teardown
using TeardownCommand = std::variant<teardown::Send, teardown::Open>;
using TeardownCommands = std::vector<TeardownCommand>;

// TransportTeardown covers all epochs of one process. Threads: one at a time.
class TransportTeardown {
 public:
  // The members of a transport or an epoch by rank; a process is known by its life.
  using Members = std::vector<Incarnation>;

  // A transport of an epoch with these members is made here.
  void made(const TransportId& transport, Members members);
  // No kernel of the transport runs here any more; `revoked` false: this process could not make
  // sure of that, and waiting for it helps no member.
  TeardownCommands left(const TransportId& transport, bool revoked);
  // All connections of an epoch with these members stand. Those of the newest epoch live.
  TeardownCommands stands(const EpochId& epoch, Members members, Rank self);
  // The connections of that epoch are closed: nothing more is sent over them.
  void over(const EpochId& epoch) { standing_.erase(epoch); }
  TeardownCommands on_word(Incarnation from, const TransportLeft& word);

  // How many transports are known, besides those that have not been left here yet: words about older
  // ones are not repeated, as their gates have opened by the clock.
  static constexpr std::size_t kKept = 4;

 private:
  struct End {
    Members members;
    bool left = false, revoked = false, opened = false;
    std::set<Incarnation> said;
  };

  void open_if_all_left(const TransportId& transport, End& end, TeardownCommands& out) const;
  void tell(const TransportId& transport, const End& end, TeardownCommands& out) const;

  struct Standing {
    Members members;
    Rank self = 0;
  };
  // The transport's members in the newest epoch that stands, without this process.
  std::vector<Rank> others_of(const End& end) const;

  std::map<EpochId, Standing> standing_;
  std::map<TransportId, End> ends_;
};

}  // namespace starling::collectives
