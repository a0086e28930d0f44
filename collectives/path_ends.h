#pragma once
// PathEnds orders how the members of a path that is over take their parts of it down: each stops
// its kernels first and says so, and frees memory when all living members have said it, as a kernel
// may work on the memory of another GPU of its machine. A pure machine, not simulated. It has no
// clock: a path waits for its gate for a bounded time (collectives/device_path.h).

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "collectives/path_talk.h"
#include "core/base/ids.h"
#include "core/wire/messages.h"

namespace starling::collectives {

struct PathName {
  EpochId epoch;
  std::uint32_t attempt = 0;
  auto operator<=>(const PathName&) const = default;
};

namespace path_end {
struct Send {  // over the connections of this epoch
  EpochId epoch;
  Rank to = 0;
  PathLeft word;
};
struct Open {  // the gate of this path: all other living members have left it
  PathName path;
};
}  // namespace path_end
using PathEndCommand = std::variant<path_end::Send, path_end::Open>;
using PathEndCommands = std::vector<PathEndCommand>;

// PathEnds covers all epochs of one process. Threads: one at a time.
class PathEnds {
 public:
  // The members of a path or an epoch by rank; a process is known by its life.
  using Members = std::vector<Incarnation>;

  // A path of an epoch with these members is made here.
  void made(const PathName& path, Members members);
  // No kernel of the path runs here any more; `revoked` false: this process could not make sure of
  // that, and waiting for it helps no member.
  PathEndCommands left(const PathName& path, bool revoked);
  // All connections of an epoch with these members stand. Those of the newest epoch live.
  PathEndCommands stands(const EpochId& epoch, Members members, Rank self);
  // The connections of that epoch are closed: nothing more is sent over them.
  void over(const EpochId& epoch) { standing_.erase(epoch); }
  PathEndCommands on_word(Incarnation from, const PathLeft& word);

  // How many paths are known, besides those that have not been left here yet: words about older
  // ones are not repeated, as their gates have opened by the clock.
  static constexpr std::size_t kKept = 4;

 private:
  struct End {
    Members members;
    bool left = false, revoked = false, opened = false;
    std::set<Incarnation> said;
  };

  void open_if_all_left(const PathName& path, End& end, PathEndCommands& out) const;
  void tell(const PathName& path, const End& end, PathEndCommands& out) const;

  struct Standing {
    Members members;
    Rank self = 0;
  };
  // The path's members in the newest epoch that stands, without this process.
  std::vector<Rank> others_of(const End& end) const;

  std::map<EpochId, Standing> standing_;
  std::map<PathName, End> ends_;
};

}  // namespace starling::collectives
