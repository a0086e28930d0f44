#pragma once
// Links that do not stand (docs/design.md, section 6, "Links that do not stand"): whom the next
// plan leaves out although nobody is lost. It owns the links that broke the last forming, the lives
// that nobody could connect to, and why lives were left out.
//
// Threads: none; a value that belongs to its leader. Borrows the roster.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/membership/resume.h"
#include "elastic/membership/roster.h"

namespace starling::elastic {

class Links {
 public:
  // Whether these reporters alone can go on from the same version without losing anything.
  using Suffice = std::function<bool(const std::vector<Reporter>&)>;

  explicit Links(const Roster& roster) : roster_(roster) {}

  // In all three, people are to be told of what is added to `warnings`. Reporters are by rank.
  //
  // A joiner holds nothing, so the first broken link with one is enough: it would hold up everybody
  // again. Its own word counts only of a link that never stood or fell silent, as a worker that stops
  // closes the links with it too. Returns whether there was one to leave out.
  bool leave_out_joiners(std::vector<Reporter>& reporters, std::vector<std::string>& warnings);
  // Of a fresh plan's members nobody holds anything, so it is the same for them, whoever says so:
  // of each link that never stood one is left out, the one with more such links, else the higher
  // rank, which is the one that is dialled.
  void leave_out_unreached(std::vector<Reporter>& reporters, std::vector<std::string>& warnings);
  // If two successive plans break on the same pair and lose nobody, the next leaves one of the two
  // out: the one with more broken links, else the higher rank.
  void leave_out_one(std::vector<Reporter>& reporters, const Suffice& suffice,
                     std::vector<std::string>& warnings);
  // Of those who are left out as they did not report: what their peers know of it.
  void tell_silent(const std::vector<Incarnation>& missing, const std::vector<Reporter>& reporters,
                   std::vector<std::string>& warnings);
  // A worker that loses a peer closes its other connections as well, so once somebody is lost the
  // broken links say nothing.
  void forget() { broken_.clear(); }

  // A life of this name has a state, so others have connected to it.
  void reached(const std::string& name);
  // What comes of the next life of a name of which so many lives in a row were left out, as others
  // could not connect to them: each of them stops the others for a moment.
  enum class Entry : std::uint8_t {
    kFree = 1,
    // The address of this name was good, so what is between may heal: the life waits, 10 s at first,
    // and twice as long after each further one, up to 320 s.
    kLater,
    // Nobody ever connected to it. The life after the refused one is free again: the address may
    // have been mended.
    kRefused,
  };
  Entry entry(const std::string& name);
  // Why this life was left out, for people; empty if it was not, or for another reason.
  std::string reason(const Incarnation& who) const;

 private:
  using Pair = std::pair<Nonce, Nonce>;  // the lower one first
  void leave_out(std::vector<Reporter>& reporters, Nonce nonce, LinkFault fault,
                 std::vector<std::string>& warnings);
  bool give_reason(Nonce nonce, const std::string& why);

  const Roster& roster_;
  std::set<Pair> broken_;
  struct Unreached {
    std::set<Nonce> lives;
    std::uint64_t until_ms = 0;  // the next one waits
  };
  std::map<std::string, Unreached> unreached_;  // by name
  std::set<std::string> once_reached_;          // names; no more than there are keys
  std::map<Nonce, std::string> reasons_;        // of the lives that were left out last
};

}  // namespace starling::elastic
