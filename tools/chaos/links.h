#pragma once
// Links are the links between the workers of a run, with their
// disturbers: the network that workers live in (network.h), the proxy
// that they are behind (proxy.h), or both, each for what it can do.
//
// Threads: belongs to one thread.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/chaos/network.h"
#include "tools/chaos/plan.h"
#include "tools/chaos/proxy.h"

namespace starling::chaos {

enum class LinkChoice : std::uint8_t {
  kAuto = 1,    // namespaces, if possible and useful for the plan
  kNamespaces,  // whatever the plan has
  kProxy,
};
// Reads "auto", "namespaces", "proxy". Errors: kBadInput.
Result<LinkChoice> parse_link_choice(const std::string& word);

// LinkMeans says whether network or proxy makes each fault. Pure.
struct LinkMeans {
  bool network = false, proxy = false;
  bool network_delays = false;  // else the proxy
  std::string text;             // for people
};
// Takes what a network could do; `why_none`, `why_no_delay`: empty: it can.
LinkMeans link_means(LinkChoice choice, const Plan& plan, const std::string& why_none,
                     const std::string& why_no_delay);

// A Witness sees the effect of a fault.
struct Witness {
  std::string what;
  std::function<bool()> seen;   // so far
  std::function<bool()> tight;  // no byte came through, as long as it lasted; empty: not known
};

class Links {
 public:
  // Makes the links. Null: the plan leaves links alone. Errors: kBadInput
  // namespaces were chosen and are not possible; kUnavailable  no proxy.
  static Result<std::unique_ptr<Links>> make(LinkChoice choice, const Plan& plan);

  const std::string& text() const { return means_.text; }
  std::string host() const;  // an address of this machine at which workers reach coordinators

  struct Place {
    std::vector<std::string> arguments;  // of `starling worker`: --join and where it listens
    int netns = -1;                      // to start it in; -1: ours
  };
  // Makes whole links for a new worker of this name. `coordinators`: "host:port".
  Result<Place> place(const std::string& worker, const std::vector<std::string>& coordinators);
  // Returns the address of a worker that does not share ours; else empty.
  std::string address_of(const std::string& worker) const;
  void set_id(const std::string& worker, std::uint64_t id);  // its id when it dials

  Witness cut(const std::string& worker);
  // These workers hear nothing of one another until mend() was called
  // for each of them; all others hear them. One set at a time.
  Witness set_apart(const std::vector<std::string>& workers);
  bool some_are_apart() const { return !apart_.empty(); }
  // Returns whether a packet of each of these workers arrives at each other one.
  // With the proxy, which loses no packet: whether none of them is apart any more.
  bool hear_one_another(const std::vector<std::string>& workers) const;
  Witness delay(const std::string& worker, double seconds);  // each way
  void mend(const std::string& worker);                      // as it should be
  void flip(const std::string& worker);                      // flips a bit; needs a plan with flips
  LinkCounts counts(const std::string& worker) const;        // of the proxy

  // Call it once every process of the run is gone. Returns what is left.
  std::vector<std::string> close();

 private:
  LinkMeans means_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Proxy> proxy_;
  std::set<std::string> apart_;
};

}  // namespace starling::chaos
