#pragma once
// Sockets set up as bulk connections want them.
//
// Peers on one machine that are dialled at a loopback address use a local (AF_UNIX) socket instead
// of TCP: the same bytes for about 0.6 of the processor time (16 MiB each way: 6.5 to 7.6 ms
// instead of 10.3 to 14 ms per process on a busy 2-core machine). Its name is abstract, so nothing
// stays behind, and says the TCP port, so that no address is needed beyond the one in the plan.

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "core/base/result.h"

namespace starling::collectives {

struct Bound {
  Fd socket;
  std::uint16_t port = 0;
};
// The address of this machine that packets to `host` bear. Nothing is sent, unless the name has
// several addresses: then each is dialled, and the first that accepts the connection counts.
// Errors: kUnavailable  the host cannot be resolved, or there is no route to it
Result<std::string> address_towards(const std::string& host, std::uint16_t port);
// The address that a host's name stands for, in numbers; its IPv6 one if it has both, since ZeroMQ
// dials that. Errors: kBadInput  the host is not known
Result<std::string> numeric_address(const std::string& host);
// All addresses of a host, in numbers, in the order in which they are to be tried. Empty: the host
// is not known now. May block for as long as the name service takes.
std::vector<std::string> numeric_addresses(const std::string& host);
// Sends a small value without waiting. False: not all of it fits, or the connection broke.
template <class T>
bool send_whole(const Fd& fd, const T& value) {
  return ::send(fd.get(), &value, sizeof value, MSG_NOSIGNAL) == ssize_t{sizeof value};
}
// A listening, non-blocking socket. Errors: kBadInput, naming the address.
Result<Bound> listen_tcp(const std::string& host, std::uint16_t port);
// A non-blocking socket whose connect has begun; writable when it stands or has failed.
// Errors: kPeerLost     no process listens there
//         kUnavailable  the host cannot be resolved or the connection fails at once
Result<Fd> dial_tcp(const std::string& host, std::uint16_t port);
// The same for this machine only, under the name of a TCP port. Empty if there is no such socket:
// use TCP then.
Fd listen_local(std::uint16_t tcp_port);
Fd dial_local(std::uint16_t tcp_port);
// The host is this machine for sure.
bool loopback(const std::string& host);

// 0 when a dialled socket stands, else the errno of its failure.
int connect_error(const Fd& socket);
// For accepted sockets: no delay, keep-alive, and large buffers (4 MiB give 3.0 instead of 2.3 GB/s
// on loopback).
void tune(const Fd& socket);

// The address at the other end of a connected socket, as a number. An empty host: a local socket,
// or none that is connected.
struct PeerAddress {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const PeerAddress&) const = default;
};
PeerAddress peer_of(int socket);

// An eventfd to wake an epoll loop, and an epoll.
Fd make_wake();
Fd make_epoll();
void wake(const Fd& event);
void drain_wake(const Fd& event);

}  // namespace starling::collectives
