#pragma once
// The thread of a gateway owns the sockets and moves messages between them and
// the rest of the process. For gateway.cpp only; see gateway.h for the promises.

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "actors/gateway/gateway.h"
#include "actors/gateway/lookups.h"
#include "actors/gateway/pieces.h"
#include "actors/gateway/routes.h"
#include "actors/gateway/socket.h"
#include "actors/gateway/strangers.h"
#include "actors/gateway/zap.h"
#include "collectives/tcp/newcomers.h"
#include "core/base/mutex.h"

namespace starling::actors {

using SharedMessage = std::shared_ptr<const Message>;

// An Outgoing is one message on its way: to a server by place, or to a client by route.
struct Outgoing {
  std::optional<std::size_t> server;
  Route route;
  SharedMessage body;
};

// A Link is a connection to one server.
struct Link {
  Link(Socket s, Monitor m) : socket(std::move(s)), monitor(std::move(m)) {}
  Socket socket;
  Monitor monitor;
  // The life that the other end said to be on this connection; nonce 0 before its first message.
  Incarnation peer;
  std::deque<SharedMessage> backlog;
  // Counts handshakes in a row that broke off within kAtOnce of the one before.
  unsigned broken_off = 0;
  std::chrono::steady_clock::time_point broken_off_at;
  std::string address;      // of the server, as it was said; empty: not known
  std::string at;           // the address that is dialled
  std::size_t next = 0;     // which of the server's addresses is dialled after it
  std::size_t dialled = 0;  // addresses, since the link was up last
  std::chrono::steady_clock::time_point dialled_at;
  std::chrono::steady_clock::time_point refused_at;  // or dialled since
  Bytes front;           // the first of them encoded, once a part of it is sent
  std::size_t sent = 0;  // pieces of it
  // Where tokens are shown: the handshake is complete, and the server has let in our key since.
  bool stands = false, enrolled = false;
  std::chrono::steady_clock::time_point enrol_at;  // when the token is shown next
};

// Returns a line for people about a peer of another version.
std::string version_line(const std::string& name, std::uint16_t version);

class Gateway::Impl {
 public:
  static Result<std::unique_ptr<Impl>> make(GatewayOptions options, ArrivalHandler handler);
  ~Impl() { stop(); }

  void enqueue(Outgoing message);
  Result<> dial(std::size_t place, const std::string& address);
  bool has_address(std::size_t place) const;
  void follow(const Seats& seats);
  void allow(AllowList allowed);
  Result<std::string> enrol(const Stranger& stranger);
  void refuse(const Stranger& stranger, const Error& why);
  std::string refusal(std::size_t place) const;
  void drop(Drop reason) { ++drops[static_cast<std::size_t>(reason)]; }
  void stop();

  const GatewayOptions options;
  std::uint16_t port = 0;  // constant after make()
  Routes routes;
  std::atomic<std::uint64_t> counter;
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Drop::kCount)> drops{};
  std::deque<std::atomic<LinkState>> link_states;         // one per server, as the next
  std::deque<std::atomic<std::uint16_t>> other_versions;  // of kOtherVersion
  std::atomic<std::uint64_t> refused_handshakes{0};

 private:
  Impl(GatewayOptions o, ArrivalHandler handler, Context context);
  Result<> open_server();
  // Returns a link that dials `address`, or nothing if that is empty.
  Result<std::unique_ptr<Link>> open_link(const GatewayOptions::Server& server,
                                          const std::string& address) const;
  Result<> set_common(Socket& socket) const;

  void run();
  void wait();
  void watch(std::size_t place);
  void dial_in_turn();
  void dial_next(std::size_t place);
  void dial_refused();
  void move_link(std::size_t place, const std::string& address);
  // Returns whether a link is to be looked at again soon.
  bool dials() const;
  void watch_newcomers();
  void settled(int number);  // a connection is gone, or one of a key that is let in
  // strangers.cpp: connections of keys that are not let in.
  void close_overdue();
  void hear_stranger(const std::string& routing_id, const Sender& sender,
                     const Strangers::Connection& connection, ByteView bytes);
  void answer(const Stranger& stranger, Enrolled answer);
  // enrolling.cpp: our own key, where tokens are shown.
  bool may_send(const Link& link) const;
  void stands(std::size_t place);
  void falls(std::size_t place);
  bool enrols_soon() const;
  void enrol_where_due();
  void take(std::size_t place, const Enrolled& answer);
  void set_refusal(std::size_t place, const std::string& why);
  void take_outgoing();
  void send_backlog(Link& link);
  bool send_front(Link& link);
  void send_on_route(const Route& route, const Message& body);
  // Sends one frame to the client at the other end of a connection; false: dropped.
  bool send_frame(const std::string& routing_id, ByteView frame);
  void receive_from_clients();
  void receive_from_server(std::size_t place);
  void admit_client(const std::string& routing_id, const Sender& sender, ByteView bytes);
  // Reads an envelope; returns why it is not for us,
  // if so. `out.from` is then as far as it was read.
  std::optional<Drop> fault_of(ByteView bytes, Envelope& out) const;
  // Returns the message that a frame completes, if it does.
  std::optional<ByteView> whole(const std::string& connection, const std::string& key,
                                ByteView frame);
  void answer_version(const std::string& routing_id, const std::string& sender, ByteView bytes);
  Incarnation self() const { return {counter, options.self.nonce}; }

  const ArrivalHandler handler_;
  const Wakeup wakeup_;
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  std::deque<Outgoing> outgoing_ STARLING_GUARDED_BY(mutex_);
  std::vector<std::string> addresses_ STARLING_GUARDED_BY(mutex_);  // of the servers
  // Servers to be dialled anew.
  std::map<std::size_t, std::string> moved_ STARLING_GUARDED_BY(mutex_);
  std::set<std::string> looked_at_ STARLING_GUARDED_BY(mutex_);    // strangers' connections
  std::vector<std::string> refusals_ STARLING_GUARDED_BY(mutex_);  // of our token, by server
  Mutex stop_mutex_;  // held while the thread is joined

  // These belong to the poller's thread while it runs.
  // The order matters: a context ends after its sockets.
  Context context_;
  std::unique_ptr<ZapHandler> zap_;
  std::optional<Socket> router_;
  std::optional<Monitor> router_monitor_;
  collectives::Newcomers newcomers_;
  std::optional<Strangers> strangers_;  // of a server that takes identities
  Pieces pieces_;
  std::set<std::string> told_versions_;
  std::vector<std::unique_ptr<Link>> links_;  // one per server
  Lookups lookups_;
  std::thread thread_;
};

}  // namespace starling::actors
