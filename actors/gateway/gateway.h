#pragma once
// A Gateway is a control plane: envelopes over ZeroMQ with CURVE (docs/design.md, section 4).
//
// One thread owns all sockets: a ROUTER where the process is a server (coordinators), and one
// DEALER per server that it talks to (workers, guards, clients, and coordinators among each other).
// The gateway knows nothing of actors: it gives arrivals to a function,
// for an actor `[self](Arrival a) { anon_send(self, ...); }`. A process
// may have several gateways; each has a ZeroMQ context of its own.
//
// Delivery: a message arrives at most once per connection, in order, or not at all.
// What waits for a connection when it breaks is dropped, so that nothing meant for
// a dead process reaches its successor; a sender that needs an answer asks again.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/keys.h"
#include "core/base/result.h"
#include "core/wire/limits.h"
#include "core/wire/messages.h"

namespace starling::actors {

// An Arrival is a received message that is for this job and this life.
struct Arrival {
  Message body;
  Incarnation from;    // what the sender says; bound to its key on the server side
  std::string sender;  // name of the sender's key, proven by CURVE
  // The place in GatewayOptions::servers of its sender; none: a client of ours.
  std::optional<std::size_t> server;
  std::chrono::steady_clock::time_point at;
};

// A Stranger has a key that is not on the list, and shows a token that says who its owner is.
struct Stranger {
  std::string public_key;  // Z85; proven by CURVE
  std::string token;
  std::string host;        // of the peer
  std::string routing_id;  // of its connection
  Incarnation who;
};

// Called on the gateway's thread, one arrival at a time: must not block, and must not call stop().
using ArrivalHandler = std::function<void(Arrival)>;

struct GatewayOptions {
  JobId job{};
  Incarnation self;  // nonce != 0
  KeyPair key;       // own pair, with its secret

  // Makes this process a server.
  struct Listen {
    std::string address;  // "tcp://127.0.0.1:0": port 0 = any free one
    AllowList allowed;    // any other peer that dials is refused in the handshake
    // Gets a line for people about a refused peer; few lines, however many peers
    // try. Called on a thread of the gateway, must not block. May be empty.
    std::function<void(const std::string&)> refused{};
    // Gets a line for people about a client of another version,
    // once each, on the gateway's thread. May be empty.
    std::function<void(const std::string&)> other_version{};

    // Lets keys that are not on the list complete the handshake and say one thing: Enrol. Whatever
    // else they say ends their connection and reaches no decoder (docs/identity.md).
    struct Identities {
      // Gets who shows a token, on the gateway's thread; must not block. Gateway::enrol() or refuse()
      // is the answer.
      std::function<void(Stranger)> shown;
      std::size_t strangers_max = 128;  // connections of such keys
      // A connection over which nothing has come for so long is closed, and so is one of a key that
      // is not let in so long after its first word; of one whose token is looked at after three times.
      std::chrono::milliseconds patience{10000};
    };
    std::optional<Identities> identities{};
  };
  std::optional<Listen> listen;

  // The process talks to these servers.
  struct Server {
    std::string name;  // becomes Arrival::sender
    // "tcp://host:port"; empty: not known yet, until dial() says it. Nothing is dialled, the link
    // is kConnecting, and what is sent there is dropped (kNoRoute).
    std::string address;
    std::string public_key;  // Z85
  };
  std::vector<Server> servers;
  // Dials the servers at the addresses that Seats of any of them says, before the handler gets it:
  // a place in the group is one in `servers`. Other places and wrong addresses are passed over.
  bool follows_seats = false;

  // Shows servers a token, so that they let in our key though it is not on their list. Until a server
  // has let it in, nothing else is sent there.
  struct Enrols {
    // Returns the token as it is now. Called on the gateway's thread, for each connection anew.
    std::function<Result<std::string>()> token;
  };
  std::optional<Enrols> enrols;

  std::size_t message_bytes_max = limits::kMessageBytes;
  std::size_t newcomers_max = 1024;     // a server's connections whose peers have shown no key yet
  std::size_t backlog_messages = 1024;  // per server, while it cannot take them; then the oldest go
  std::chrono::milliseconds heartbeat{250};
  std::chrono::milliseconds heartbeat_timeout{1000};  // of silence, then the connection is over
};

enum class LinkState : std::uint8_t {
  kConnecting,  // no connection yet, or it broke; dialled again every 10 to 200 ms
  kUp,
  // The server does not know our key, or refuses our token; it is asked again about twice a second.
  kRefused,
  // The peer that listens there breaks off every handshake at once:
  // it has not the server's key, or does not speak our protocol.
  kWrongPeer,
  kOtherVersion,  // the server speaks another version of our protocol: other_version() says which
};

enum class Drop : std::uint8_t {
  kWrongJob,
  kNotForMe,  // for another life of this process
  kOversize,
  kMalformed,     // does not decode
  kUnknown,       // of a kind that this build does not know
  kOtherVersion,  // of another version of the protocol; the gateway answers with its own version
  kWrongKey,      // an incarnation that belongs to another key
  kRevoked,       // of a key that is no longer on the allow list
  kWrongRole,     // a message that the role of this key may not send
  kNoRoute,       // sending: the peer has no connection, the server no address
  kQueueFull,     // sending: the peer or we cannot take more
  kLinkBroken,    // sending: waited for a connection that ended
  kNewcomer,      // no message: a connection that was closed before its peer showed a key
  kStranger,      // of a key that is not on the list, and no token
  kCount,
};

// Threads: all functions from any thread; stop() and the destructor not from the handler.
class Gateway {
 public:
  // Returns when the server listens and has proved that it refuses strangers;
  // connections to servers are made in the background. Errors: kBadInput an
  // address or key cannot be used; kInternal libzmq does not keep strangers out.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options, ArrivalHandler handler);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  std::uint16_t port() const;  // where the server listens; 0 without one

  // Sends to a server, by its place in GatewayOptions::servers (checked). The
  // message waits in a bounded backlog while the first connection is being made.
  void send_to_server(std::size_t server, Message body);
  void broadcast_to_servers(Message body);

  // Reaches a server (its place is checked) at this address, "tcp://host:port", from now on. A
  // connection to another address is closed, what waits for it is dropped (kLinkBroken), and soon
  // nothing of it arrives any more. Nothing happens where it is dialled there already. Errors:
  // kBadInput  nobody can be reached at it; nothing happens then.
  Result<> dial(std::size_t server, const std::string& address);
  // Returns whether the address of a server (its place is checked) is known.
  bool has_address(std::size_t server) const;

  // Sends to a client that has spoken to us. False: this life has
  // never been heard here. True promises nothing beyond an attempt.
  bool send_to(const Incarnation& to, Message body);
  // Sends to all clients that have spoken to us, as send_to().
  void broadcast_to_clients(Message body);
  // Returns the name of the key of a client that has spoken to us.
  std::optional<std::string> name_of(const Incarnation& who) const;

  // Lets only these keys in from now on; for a server. A key that is
  // left out is not heard any more, and its connections are closed.
  void allow(AllowList allowed);

  // Lets in the key of a stranger besides those of allow(), until this process ends, and tells its owner. Returns the
  // name that it has from now on (core/base/keys.h). Errors: kBadInput  it was revoked, or another one has that name;
  // kUnavailable  too many keys are enrolled; the gateway tells the owner so, too.
  Result<std::string> enrol(const Stranger& stranger);
  // Tells a stranger why its token does not let it in, in one line; kUnavailable: it may be shown again.
  void refuse(const Stranger& stranger, const Error& why);

  // The leader gave this counter to this life; every later message carries it.
  void set_counter(std::uint64_t counter);

  LinkState link(std::size_t server) const;
  // Returns "coordinator-0 speaks version 3 of the protocol, this one 2"; in kOtherVersion.
  std::string other_version(std::size_t server) const;
  // Returns why the server has not let in our key with our token; empty: it has, or there is no connection.
  std::string refusal(std::size_t server) const;
  std::uint64_t dropped(Drop reason) const;
  std::uint64_t refused_handshakes() const;  // by the server: keys that are not on the allow list

  // Sends what is queued, as far as peers take it within 200 ms, and ends the thread. After it
  // nothing is delivered, and what is sent is dropped. Any number of times.
  void stop();

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace starling::actors
