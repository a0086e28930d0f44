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
  void reached(const std::string& name) { unreached_.erase(name); }
  // Whether so many lives of this name were left out, one after another, that the next one is to be
  // refused. The one after that is let in again: its address may have been mended.
  bool hopeless(const std::string& name);
  // Why this life was left out, for people; empty if it was not, or for another reason.
  std::string reason(const Incarnation& who) const;

 private:
  using Pair = std::pair<Nonce, Nonce>;  // the lower one first
  void leave_out(std::vector<Reporter>& reporters, Nonce nonce, LinkFault fault,
                 std::vector<std::string>& warnings);
  bool give_reason(Nonce nonce, const std::string& why);

  const Roster& roster_;
  std::set<Pair> broken_;
  std::map<std::string, std::set<Nonce>> unreached_;  // of a name's lives
  std::map<Nonce, std::string> reasons_;              // of the lives that were left out last
};

}  // namespace starling::elastic
