#pragma once
// PathTalk brings the members of an epoch to a direct path: rank 0 makes an id and offers it, the
// others connect with it or say why not. A pure machine, not simulated: events in, commands out. No
// step depends on what is said here: a member whose path is ready says so with its votes (R17), and
// until all have, bytes go over the epoch's connections.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling::collectives {

// Rank 0 to all others.
struct PathOffer {
  std::uint32_t attempt = 0;
  std::string library;  // PathLibrary::name()
  Bytes id;
};
// A rank's answer to rank 0 that it cannot connect.
struct PathRefusal {
  std::uint32_t attempt = 0;
  bool for_good = false;  // no other attempt can succeed in this epoch
  std::string reason;     // for people
};
// Sent to those that were members of a path that is over, over the connections of any later epoch
// (collectives/path_ends.h).
struct PathLeft {
  EpochId epoch;
  std::uint32_t attempt = 0;
  bool revoked = false;  // its kernels were stopped at the sender; false: that could not be seen to
};
using PathWord = std::variant<PathOffer, PathRefusal, PathLeft>;

Bytes encode_path_word(const PathWord& word);
// Errors: kCorrupt. Bounded: ids of at most 1 KiB, texts of at most 256 bytes.
Result<PathWord> decode_path_word(ByteView bytes);

namespace path_command {
struct Send {
  Rank to = 0;
  PathWord word;
};
struct MakeId {  // rank 0; the answer is id_made() or failed()
  std::uint32_t attempt = 0;
};
struct Connect {  // with this id, after the path of any older attempt has been given up
  std::uint32_t attempt = 0;
  Bytes id;
};
struct GiveUp {};  // the path that there is, ready or not
struct RetryIn {   // then retry(), once
  std::uint32_t ms = 0;
};
struct Say {  // for people: which way bytes go, and why
  bool direct = false;
  std::string why;
};
}  // namespace path_command

using PathCommand = std::variant<path_command::Send, path_command::MakeId, path_command::Connect,
                                 path_command::GiveUp, path_command::RetryIn, path_command::Say>;
using PathCommands = std::vector<PathCommand>;

// PathTalk covers one epoch at one member. Threads: one at a time.
class PathTalk {
 public:
  // `library`: of this process; empty: none, and `reason` says why.
  PathTalk(Rank self, std::uint32_t world, std::string library, std::string reason);

  PathCommands begin();  // all connections of the epoch stand
  PathCommands id_made(std::uint32_t attempt, Bytes id);
  PathCommands ready(std::uint32_t attempt);
  // The path failed here, in the making or later. `for_good`: no other attempt can succeed here.
  PathCommands failed(std::uint32_t attempt, const std::string& reason, bool for_good = false);
  // Takes an offer or a refusal. Errors: kCorrupt, a word that this rank cannot have said.
  Result<PathCommands> on_word(Rank from, const PathWord& word);
  PathCommands retry();

  std::uint32_t attempt() const { return attempt_; }

 private:
  static constexpr std::uint32_t kRetryMs[] = {1'000, 4'000, 16'000};

  PathCommands next_attempt();
  PathCommands lost(bool for_good, const std::string& reason);

  const Rank self_;
  const std::uint32_t world_;
  const std::string library_, reason_;
  std::uint32_t attempt_ = 0;
  bool over_ = false;     // no other attempt in this epoch
  bool waiting_ = false;  // for retry()
};

}  // namespace starling::collectives
