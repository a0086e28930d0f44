#pragma once
// Links finds links that do not stand (docs/design.md, section 6, "Links that do not stand"): which
// workers the next plan leaves out although none is lost. It owns the links that broke the last
// forming, the lives that no worker could connect to, and why lives were left out.
//
// Threads: none; a value that belongs to its leader. Borrows the roster.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
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

  // All three add what people are to be told to `warnings`. Reporters are by rank.
  //
  // A joiner holds nothing, so the first broken link with one is enough: it would hold up all
  // others again. Its own report counts only for a link that never stood or fell silent: a worker
  // that stops also closes its links to the joiner. Returns whether there was one to leave out.
  bool leave_out_joiners(std::vector<Reporter>& reporters, std::vector<std::string>& warnings);
  // A fresh plan's members hold nothing, so any report counts: of each link that never stood one
  // end is left out, the one with more such links, else the higher rank, which is the one that is
  // dialled. It stays if the others do not suffice, as where it alone has not voted: the plan that
  // follows drops all votes, so after that one they do.
  void leave_out_unreached(std::vector<Reporter>& reporters, const Suffice& suffice,
                           std::vector<std::string>& warnings);
  // If two successive plans break on the same pair and lose no worker, the next leaves one of the
  // two out: the one with more broken links, else the higher rank, or the other one if the others
  // do not suffice without the first.
  //
  // `ran`: an epoch ran since the last forming, so every link had stood. Returns two that have not
  // connected to each other in any plan since, and neither of which can be left out.
  struct Apart {
    std::string names;
    std::uint64_t since_ms = 0;
  };
  std::optional<Apart> leave_out_one(std::vector<Reporter>& reporters, bool ran,
                                     const Suffice& suffice, std::vector<std::string>& warnings);
  // Tells what the peers of workers that did not report know of them.
  void tell_silent(const std::vector<Incarnation>& missing, const std::vector<Reporter>& reporters,
                   std::vector<std::string>& warnings);
  // Drops the broken links: a worker that loses a peer closes its other connections as well, so
  // once a worker is lost they say nothing.
  void forget() { broken_.clear(); }

  // A life of this name has a state, so others have connected to it.
  void reached(const std::string& name);
  // How to treat the next life of a name of which so many lives in a row were left out, as others
  // could not connect to them: each of them stops the others for a moment.
  enum class Entry : std::uint8_t {
    kFree = 1,
    // Others connected to this name before, so the network may heal: the life waits, 10 s at first,
    // and twice as long after each further one, up to 320 s.
    kLater,
    // No worker ever connected to it. The life after the refused one is free again: the address may
    // have been mended.
    kRefused,
  };
  Entry entry(const std::string& name);
  // Why this life was left out, for people; empty if it was not, or for another reason.
  std::string reason(const Incarnation& who) const;

 private:
  using Pair = std::pair<Nonce, Nonce>;  // the lower one first
  std::optional<Apart> longest_apart(const std::vector<Pair>& links,
                                     const std::vector<Reporter>& reporters,
                                     std::vector<std::string>& warnings);
  void leave_out(std::vector<Reporter>& reporters, Nonce nonce, LinkFault fault,
                 std::vector<std::string>& warnings);
  bool give_reason(Nonce nonce, const std::string& why);

  const Roster& roster_;
  struct Break {
    std::optional<std::uint64_t> apart_ms;  // since then the link has stood in no plan
    bool told = false;                      // that both stay
  };
  std::map<Pair, Break> broken_;
  struct Unreached {
    std::set<Nonce> lives;
    std::uint64_t until_ms = 0;  // the next one waits
  };
  std::map<std::string, Unreached> unreached_;  // by name
  std::set<std::string> once_reached_;          // names; no more than there are keys
  std::map<Nonce, std::string> reasons_;        // of the lives that were left out last
};

}  // namespace starling::elastic
