#pragma once
// Links that do not stand (docs/design.md, section 6, "Links that do not stand"): whom the next
// plan leaves out although nobody is lost. It owns the links that broke the last forming, and the
// lives that nobody could connect to.
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

  // A joiner holds nothing, so the first broken link with one is enough: it would hold up everybody
  // again. Its own word does not count, as a worker that stops closes the links with it too. Returns
  // whether there was one to leave out; what people are to be told of it is added to `warnings`.
  bool leave_out_joiners(std::vector<Reporter>& reporters, std::vector<std::string>& warnings);
  // If two successive plans break on the same pair and lose nobody, the next leaves one of the two
  // out: the one with more broken links, else the higher rank. Reporters are by rank.
  void leave_out_one(std::vector<Reporter>& reporters, const Suffice& suffice);
  // A worker that loses a peer closes its other connections as well, so once somebody is lost the
  // broken links say nothing.
  void forget() { broken_.clear(); }

  // A life of this name has a state, so others have connected to it.
  void reached(const std::string& name) { unreached_.erase(name); }
  // Whether so many lives of this name were left out, one after another, that the next one is to be
  // refused. The one after that is let in again: its address may have been mended.
  bool hopeless(const std::string& name);

 private:
  const Roster& roster_;
  std::set<std::pair<Nonce, Nonce>> broken_;          // the lower one first
  std::map<std::string, std::set<Nonce>> unreached_;  // of a name's lives
};

}  // namespace starling::elastic
