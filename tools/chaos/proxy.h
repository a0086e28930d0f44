#pragma once
// A TCP proxy in front of workers, so that their links can be cut, slowed and damaged without a
// privilege: worker processes advertise a port of the proxy, and reach coordinators through it.
//
// A connection has two ends that can be disturbed: whose front it goes through, and, for a bulk
// connection, the worker that dialled it, as the hello says that it begins with.
//
// Threads: owns one thread; every function may be called from any other.

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "tools/chaos/fd.h"

namespace starling::chaos {

// How the links of one worker are. Both directions alike.
struct LinkState {
  bool cut = false;    // nothing passes; nothing is closed either, as on a broken network
  bool apart = false;  // the same of bulk connections with another worker that is apart
  double delay_s = 0;  // added to every byte, each way
  bool operator==(const LinkState&) const = default;
};

struct LinkCounts {
  std::uint64_t passed = 0;       // bytes to and from this worker
  std::uint64_t held = 0;         // bytes that came while it was cut or apart, and waited
  std::uint64_t delayed = 0;      // bytes that were told later than they were heard, by a delay
  std::uint64_t flipped = 0;      // bits
  std::uint64_t given_up = 0;     // connections in which a bit was flipped and that were closed
  std::uint64_t connections = 0;  // that are open now
};

// A port of 127.0.0.1 outside the range of ports for dialling. Until this goes, nobody else is
// given it, and a process may listen there that sets SO_REUSEADDR, one after the other.
class QuietPort {
 public:
  // Errors: kUnavailable  all are taken.
  static Result<QuietPort> take();
  std::uint16_t port() const { return port_; }

 private:
  QuietPort(Fd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}
  Fd fd_;  // bound, never listening
  std::uint16_t port_;
};

class Proxy {
 public:
  // `host`: an IPv4 address of this machine, where its fronts are. Errors: kUnavailable  no socket
  // to be had.
  static Result<std::unique_ptr<Proxy>> start(std::string host = "127.0.0.1");
  virtual ~Proxy() = default;
  virtual const std::string& host() const = 0;

  // A port at its host behind which is this port of the same, on behalf of this worker. `bulk`:
  // connections begin with a hello (collectives/tcp/handshake.h). The front stays until
  // forget(worker).
  virtual Result<std::uint16_t> add(const std::string& worker, std::uint16_t target, bool bulk) = 0;
  // The same for a port that nobody else gets as long as the front stays.
  virtual Result<std::uint16_t> add(const std::string& worker, QuietPort target, bool bulk) = 0;
  // The same for a port of another host, an IPv4 address.
  virtual Result<std::uint16_t> add(const std::string& worker, const std::string& host,
                                    std::uint16_t target, bool bulk) = 0;
  // The worker's fronts and connections are closed.
  virtual void forget(const std::string& worker) = 0;
  // The incarnation under which this worker dials from now on.
  virtual void set_id(const std::string& worker, std::uint64_t id) = 0;

  virtual void set(const std::string& worker, const LinkState& state) = 0;
  // Flips one bit in what passes next over a bulk connection of this worker, beyond the handshake.
  virtual void flip(const std::string& worker) = 0;
  virtual LinkCounts counts(const std::string& worker) const = 0;
};

}  // namespace starling::chaos
