#pragma once
// A Proxy stands in front of workers, so that their TCP links can be cut, slowed and damaged
// without a privilege: workers advertise a port of the proxy, and reach coordinators through it.
//
// A connection has two workers whose links can be disturbed: the owner of its front, and,
// for a bulk connection, the worker that dialled it, which the hello at its beginning names.
//
// Threads: the proxy owns one thread; every function may be called from any other.

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "tools/processes/quiet_port.h"

namespace starling::chaos {

using tools::QuietPort;

// A LinkState is that of the links of one worker. Both directions alike.
struct LinkState {
  bool cut = false;    // no byte passes; no connection closes, as on a broken network
  bool apart = false;  // cut only to bulk connections with other workers that are apart
  double delay_s = 0;  // added to every byte, each way
  bool operator==(const LinkState&) const = default;
};

struct LinkCounts {
  std::uint64_t passed = 0;       // bytes to and from this worker
  std::uint64_t held = 0;         // bytes that came while it was cut or apart, and waited
  std::uint64_t delayed = 0;      // bytes that a delay held back
  std::uint64_t flipped = 0;      // bits
  std::uint64_t given_up = 0;     // connections that closed with a flipped bit in them
  std::uint64_t connections = 0;  // open now
};

class Proxy {
 public:
  // Starts it. `host`: an IPv4 address of this machine,
  // where its fronts are. Errors: kUnavailable  no socket.
  static Result<std::unique_ptr<Proxy>> start(std::string host = "127.0.0.1");
  virtual ~Proxy() = default;
  virtual const std::string& host() const = 0;

  // Adds a front: a port at the proxy's host that leads to this port of
  // the same host, for this worker. `bulk`: connections begin with a hello
  // (collectives/tcp/handshake.h). The front stays until forget(worker).
  virtual Result<std::uint16_t> add(const std::string& worker, std::uint16_t target, bool bulk) = 0;
  // Adds a front for a port that no other process gets as long as the front stays.
  virtual Result<std::uint16_t> add(const std::string& worker, QuietPort target, bool bulk) = 0;
  // Adds a front for a port of another host, an IPv4 address.
  virtual Result<std::uint16_t> add(const std::string& worker, const std::string& host,
                                    std::uint16_t target, bool bulk) = 0;
  // Closes the worker's fronts and connections.
  virtual void forget(const std::string& worker) = 0;
  // Sets the incarnation under which this worker dials from now on.
  virtual void set_id(const std::string& worker, std::uint64_t id) = 0;

  virtual void set(const std::string& worker, const LinkState& state) = 0;
  // Flips one bit in the next bytes of a bulk connection of this worker, beyond the handshake.
  virtual void flip(const std::string& worker) = 0;
  virtual LinkCounts counts(const std::string& worker) const = 0;
};

}  // namespace starling::chaos
