#pragma once
// A QuietPort is a port outside the range from which the kernel takes ports for connections that
// are dialled and for sockets that are bound to port 0. Until the QuietPort goes, no other process
// gets the port but those that set SO_REUSEADDR, which may listen there, one after the other: a
// child that is started again finds its port.
//
// Threads: belongs to one thread.

#include <cstdint>
#include <string>
#include <utility>

#include "core/base/fd.h"
#include "core/base/result.h"

namespace starling::tools {

class QuietPort {
 public:
  // Takes any port of this address of this machine. Errors: kUnavailable  all are taken;
  // kBadInput  the host is not known, or no address of this machine.
  static Result<QuietPort> take(const std::string& host);
  // Takes this port, whatever its range. Errors: kBadInput, naming the address: also if it is in use.
  static Result<QuietPort> take(const std::string& host, std::uint16_t port);
  std::uint16_t port() const { return port_; }

 private:
  QuietPort(Fd fd, std::uint16_t port) : fd_(std::move(fd)), port_(port) {}
  Fd fd_;  // bound, never listening
  std::uint16_t port_;
};

}  // namespace starling::tools
