#pragma once
// A Network is a run's own, for faults of links that a network makes: every worker lives in a
// network namespace with an address of its own, and packets to and from it can be lost. Needs root.
//
//   worker's namespace        namespace `hub`               ours
//   eth0 10.1.2.3/24  ------  w0 --+-- bridge --- root ---  starling1234567 10.1.2.1/24
//   eth0 10.1.2.4/24  ------  w1 --+
//
// A disabled port of the bridge drops what comes in and gets nothing: both sides send again
// and again, and no connection closes. Isolated ports pass nothing to one another. In our
// own namespace there is one interface. Namespaces have no names: they live as long as this
// object and the processes in them, so that the kernel removes all of it if we are killed.
//
// Threads: belongs to one thread, which goes into other namespaces for moments.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/base/result.h"
#include "tools/chaos/interfaces.h"
#include "tools/chaos/subnet.h"

namespace starling::chaos {

// Inside puts the calling thread, and what it starts, in this network namespace while it lives.
class Inside {
 public:
  explicit Inside(int netns);  // -1: stays where it is
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Fd before_;
};

class Network {
 public:
  // Makes a network that was seen to carry a packet between two namespaces and us.
  // Errors: kUnavailable  not permitted, no `ip` command, or packets are filtered.
  static Result<std::unique_ptr<Network>> make();
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::string host() const { return address_text(subnet_.base + 1); }  // ours, as workers reach it
  std::string text() const;                                            // "10.1.2.0/24 behind ..."
  const std::string& why_no_delay() const { return why_no_delay_; }    // empty: netem is there

  struct Home {
    std::string address;
    int netns = -1;  // open as long as the network
  };
  // Makes a home for a worker of this name, with whole links; a
  // later worker of the name gets the same. Errors: kUnavailable.
  Result<Home> home(const std::string& worker);
  std::string address_of(const std::string& worker) const;  // empty: it has no home

  // These need a worker with a home. Errors: kUnavailable, with the kernel's reason.
  Result<> cut(const std::string& worker);  // loses all packets from and to it
  Result<> mend(const std::string& worker);
  Result<> delay(const std::string& worker, double seconds);  // each way; 0: no more

  // Workers that are apart hear nothing of one another.
  Result<> set_apart(const std::string& worker, bool apart);

  // Returns the number of ways between these workers, of all n(n-1), in which a datagram
  // arrives, as soon as all are found, else after `time`. Errors: kUnavailable  no socket.
  Result<std::size_t> heard(const std::vector<std::string>& workers,
                            std::chrono::milliseconds time) const;

  struct Loss {
    std::uint64_t lost = 0;    // packets that it sent while it was cut
    std::uint64_t passed = 0;  // packets that it got in that time
  };
  Loss loss(const std::string& worker) const;
  std::uint64_t delayed(const std::string& worker) const;  // packets, since that began

  // Removes everything. Returns what is still there after some seconds.
  std::vector<std::string> close();

 private:
  struct Place {
    Fd netns;
    std::string port;  // of the bridge
    std::uint32_t address = 0;
    bool is_cut = false, apart = false, slow = false;
    Packets at_cut;
    Loss loss;
  };

  Network() = default;
  Result<> set_up();
  Result<> take_subnet();
  Result<bool> subnet_is_free(const std::string& but) const;
  Result<> carries();
  Packets packets(const Place& place) const;
  Loss loss_now(const Place& place) const;

  Fd hub_;
  Fd table_;               // /proc/net/dev of the hub
  std::string interface_;  // ours; empty: none yet
  Subnet subnet_;
  std::string why_no_delay_;
  std::map<std::string, Place> places_;
};

}  // namespace starling::chaos
