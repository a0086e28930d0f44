#pragma once
// Strangers attempt to get into a job without a key of it (P8), over real connections.
//
// Blocks for seconds: call from a thread of its own. Shares nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/result.h"
#include "tools/judge/deed.h"

namespace starling::chaos {

struct Doors {
  std::vector<std::string> coordinators;  // "host:port"
  std::vector<std::uint16_t> bulk;        // ports of workers at 127.0.0.1
  std::vector<std::string> workers;       // "host:port" of workers elsewhere
  EpochId epoch;                          // the running one, which is no secret
  std::uint64_t seed = 1;                 // of the garbage
};

// Tries garbage, a well-formed greeting without encryption, and a hello without the epoch's key. A
// stranger is refused if its connection closes, or it hears only public bytes, within some seconds.
std::vector<judge::Stranger> knock(const Doors& doors);

// Makes the keys of a stranger that knows all that is public: the
// coordinators' public halves, and a pair of its own under a worker's name.
Result<KeyRing> stranger_keys(const KeyRing& ring);

// Turns "tcp://host:port,host:port" into a list without the scheme.
std::vector<std::string> addresses_in(const std::string& text);

}  // namespace starling::chaos
