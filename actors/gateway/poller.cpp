#include "actors/gateway/poller.h"

#include <sodium.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "actors/gateway/roles.h"
#include "actors/gateway/self_check.h"
#include "actors/sabotage.h"
#include "core/base/check.h"
#include "core/base/thread_name.h"
#include "core/wire/codec.h"
#include "core/wire/seal.h"

namespace starling::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQueueFrames = 128;  // libzmq's, per connection and direction
// Per client of a server: as many as the largest message has, which must go in one turn.
constexpr int kQueueFramesToClient = static_cast<int>(limits::kMessageBytes / kPieceBytes) + 128;
constexpr int kHandshakeMs = 3000;
constexpr long kDialLookMs = 100;      // between two looks at links that are dialled
constexpr std::size_t kFilesLeft = 4;  // newcomers get one in so many of the files that may be open
constexpr std::size_t kOutgoingMessages = 65536;  // from other threads to ours
constexpr int kReceivedAtOnce = 256;              // per socket, before the others get their turn
// A busy server delays a handshake by up to 3 s; a peer with another key breaks it off each time.
constexpr std::chrono::milliseconds kAtOnce{1000};
constexpr unsigned kBrokenOffMax = 5;

// The id is never equal for two sockets, so that no connection can take another's
// place at a server; it contains the nonce for people who read a trace.
std::string make_routing_id(const Incarnation& self) {
  std::string id(17, 'S');
  randombytes_buf(id.data() + 1, 16);
  char nonce[17];
  std::snprintf(nonce, sizeof nonce, "%016llx", static_cast<unsigned long long>(self.nonce));
  return id + nonce;
}

Result<> check_public_key(const std::string& name, const std::string& key) {
  const auto bytes = z85_decode(key);
  if (bytes && bytes.value().size() == 32) return ok();
  return Error(Code::kBadInput, "public key of " + name + " is not a CURVE key");
}

// Receives one whole message after the frames before
// it; false if there were more frames than expected.
bool receive_last(Socket& socket, MessagePart& body) {
  if (!body.receive(socket)) return false;
  if (!body.more()) return true;
  for (bool more = true; more;) {
    MessagePart rest;
    more = rest.receive(socket) && rest.more();
  }
  return false;
}

// Strangers must leave files for peers that have been let in.
std::size_t newcomers_max(const GatewayOptions& options) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return options.newcomers_max;
  return std::min<std::size_t>(options.newcomers_max, limit.rlim_cur / kFilesLeft);
}

// Where identities are taken, a connection is not ours yet when its handshake's time is over.
std::chrono::milliseconds newcomers_patience(const GatewayOptions& options) {
  const bool strangers = options.listen && options.listen->identities;
  return strangers ? options.listen->identities->patience : std::chrono::milliseconds(kHandshakeMs);
}

std::vector<std::string> addresses_of(const std::vector<GatewayOptions::Server>& servers) {
  std::vector<std::string> addresses;
  for (const auto& server : servers) addresses.push_back(server.address);
  return addresses;
}

PieceLimits piece_limits(const GatewayOptions& options) {
  PieceLimits limits;
  limits.message_bytes = options.message_bytes_max;
  return limits;
}

}  // namespace

std::string version_line(const std::string& name, std::uint16_t version) {
  return name + " speaks version " + std::to_string(version) + " of the protocol, this one " +
         std::to_string(kSealVersion);
}

// ---- Start and stop -----------------------------------------------------------------------------

Gateway::Impl::Impl(GatewayOptions o, ArrivalHandler handler, Context context)
    : options(std::move(o)),
      counter(options.self.counter),
      link_states(options.servers.size()),
      other_versions(options.servers.size()),
      handler_(std::move(handler)),
      addresses_(addresses_of(options.servers)),
      refusals_(options.servers.size()),
      context_(std::move(context)),
      newcomers_(newcomers_max(options), newcomers_patience(options)),
      pieces_(piece_limits(options)),
      lookups_(addresses_) {
  for (auto& state : link_states) state = LinkState::kConnecting;
}

Result<std::unique_ptr<Gateway::Impl>> Gateway::Impl::make(GatewayOptions options,
                                                           ArrivalHandler handler) {
  STARLING_CHECK(options.self.nonce != 0);
  STARLING_CHECK(sodium_init() >= 0);
  if (options.key.secret_key.empty())
    return Error(Code::kBadInput, "the secret half of key " + options.key.name + " is missing");
  STARLING_TRY(check_public_key(options.key.name, options.key.public_key));
  STARLING_TRY(context, Context::make());
  std::unique_ptr<Impl> impl(new Impl(std::move(options), std::move(handler), std::move(context)));
  if (impl->options.listen) {
    STARLING_TRY(impl->open_server());
  }
  for (const auto& server : impl->options.servers) {
    STARLING_TRY(link, impl->open_link(server, server.address));
    impl->links_.push_back(std::move(link));
  }
  impl->thread_ = std::thread([raw = impl.get()] {
    name_thread("gateway");
    raw->run();
  });
  return impl;
}

Result<> Gateway::Impl::set_common(Socket& socket) const {
  const auto beat = static_cast<int>(options.heartbeat.count());
  const auto timeout = static_cast<int>(options.heartbeat_timeout.count());
  const std::pair<int, int> settings[] = {
      {ZMQ_SNDHWM, kQueueFrames},   {ZMQ_RCVHWM, kQueueFrames},
      {ZMQ_HEARTBEAT_IVL, beat},    {ZMQ_HEARTBEAT_TIMEOUT, timeout},
      {ZMQ_HEARTBEAT_TTL, timeout}, {ZMQ_HANDSHAKE_IVL, kHandshakeMs},
      {ZMQ_RECONNECT_IVL, 10},      {ZMQ_RECONNECT_IVL_MAX, 200},
      {ZMQ_IMMEDIATE, 1},           {ZMQ_IPV6, 1},
  };
  for (const auto& [option, value] : settings) {
    STARLING_TRY(socket.set(option, value));
  }
  // This bounds frames from before the end of the handshake, too, from any sender.
  return socket.set_bytes_max(kFrameBytes);
}

// The handler comes first: until it answers no peer is let in.
Result<> Gateway::Impl::open_server() {
  STARLING_TRY(zap, ZapHandler::start(context_, options.listen->allowed, refused_handshakes));
  zap_ = std::move(zap);
  STARLING_TRY(router, Socket::make(context_, ZMQ_ROUTER));
  STARLING_TRY(set_common(router));
  STARLING_TRY(router.set(ZMQ_ROUTER_MANDATORY, 1));
  // Handover is only for a half-open connection of the same
  // process: routing ids are random and not shown to others.
  STARLING_TRY(router.set(ZMQ_ROUTER_HANDOVER, 1));
  STARLING_TRY(router.set(ZMQ_BACKLOG, 1024));
  STARLING_TRY(router.set(ZMQ_SNDHWM, kQueueFramesToClient));
  STARLING_TRY(secure_server(router, options.key));
  STARLING_TRY(router.bind(options.listen->address));
  const std::string endpoint = router.endpoint();
  if (!sabotage::accepts_strangers()) {
    STARLING_TRY(check_admission(context_, endpoint, options.key.public_key, *zap_));
  }
  refused_handshakes = 0;  // the self-check's stranger does not count
  if (options.listen->refused) zap_->tell(options.listen->refused);
  if (const auto& identities = options.listen->identities) {
    strangers_.emplace(identities->strangers_max, identities->patience);
    zap_->take_strangers();
  }
  STARLING_TRY(monitor, Monitor::make(context_, router));
  router_monitor_.emplace(std::move(monitor));
  port = static_cast<std::uint16_t>(std::atoi(endpoint.c_str() + endpoint.rfind(':') + 1));
  router_.emplace(std::move(router));
  return ok();
}

Result<std::unique_ptr<Link>> Gateway::Impl::open_link(const GatewayOptions::Server& server,
                                                       const std::string& address) const {
  STARLING_TRY(check_public_key(server.name, server.public_key));
  STARLING_TRY(socket, Socket::make(context_, ZMQ_DEALER));
  STARLING_TRY(set_common(socket));
  STARLING_TRY(socket.set(ZMQ_ROUTING_ID, make_routing_id(options.self)));
  STARLING_TRY(socket.set(ZMQ_PROBE_ROUTER, 1));  // an empty message with each connection
  STARLING_TRY(secure_client(socket, options.key, server.public_key));
  STARLING_TRY(monitor, Monitor::make(context_, socket));
  if (!address.empty()) {
    STARLING_TRY(socket.connect(address));
  }
  auto link = std::make_unique<Link>(std::move(socket), std::move(monitor));
  link->address = link->at = address;
  link->dialled_at = Clock::now();
  return link;
}

void Gateway::Impl::stop() {
  const MutexLock lock(stop_mutex_);
  STARLING_CHECK(thread_.get_id() != std::this_thread::get_id());  // would wait for itself
  stopping_ = true;
  wakeup_.signal();
  if (thread_.joinable()) thread_.join();
  links_.clear();
  router_monitor_.reset();
  router_.reset();
  zap_.reset();
  context_.close();
}

// ---- The loop -----------------------------------------------------------------------------------

void Gateway::Impl::run() {
  while (!stopping_) {
    wait();
    // Handles ends of connections before messages to send:
    // what waited for a dead peer must not reach the next.
    for (std::size_t place = 0; place < links_.size(); ++place) watch(place);
    if (lookups_.any()) dial_in_turn();
    dial_refused();
    if (router_) watch_newcomers();
    if (strangers_) close_overdue();
    if (options.enrols) enrol_where_due();
    take_outgoing();
    for (auto& link : links_) send_backlog(*link);
    if (router_) receive_from_clients();
    for (std::size_t place = 0; place < links_.size(); ++place) receive_from_server(place);
  }
  take_outgoing();
  for (auto& link : links_) send_backlog(*link);
}

void Gateway::Impl::wait() {
  std::vector<zmq_pollitem_t> items;
  items.push_back({nullptr, wakeup_.fd(), ZMQ_POLLIN, 0});
  if (router_) {
    items.push_back({router_->handle(), 0, ZMQ_POLLIN, 0});
    items.push_back({router_monitor_->handle(), 0, ZMQ_POLLIN, 0});
  }
  for (auto& link : links_) {
    const short out = link->backlog.empty() || !may_send(*link) ? 0 : ZMQ_POLLOUT;
    items.push_back({link->monitor.handle(), 0, ZMQ_POLLIN, 0});
    items.push_back({link->socket.handle(), 0, static_cast<short>(ZMQ_POLLIN | out), 0});
  }
  const bool looks_again = dials() || enrols_soon() || (strangers_ && strangers_->any());
  const long time = looks_again ? kDialLookMs : -1;
  const int n = zmq_poll(items.data(), static_cast<int>(items.size()), time);
  STARLING_CHECK_MSG(n >= 0 || zmq_errno() == EINTR, zmq_strerror(zmq_errno()));
  wakeup_.clear();
}

void Gateway::Impl::watch(std::size_t place) {
  Link& link = *links_[place];
  auto& state = link_states[place];
  while (const auto event = link.monitor.next()) {
    if (*event == ZMQ_EVENT_DISCONNECTED) falls(place);
    if (*event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      stands(place);
    } else if (*event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
      state = LinkState::kRefused;
      link.refused_at = Clock::now();
    } else if (*event != ZMQ_EVENT_DISCONNECTED) {
      const auto now = Clock::now();
      link.broken_off = now - link.broken_off_at < kAtOnce ? link.broken_off + 1 : 1;
      link.broken_off_at = now;
      // The server may be at another of several addresses.
      const std::size_t addresses = lookups_.found(place).size();
      if (addresses > 1 && link.dialled < addresses) continue;
      if (link.broken_off >= kBrokenOffMax) state = LinkState::kWrongPeer;
    } else if (state == LinkState::kUp || state == LinkState::kOtherVersion) {
      state = LinkState::kConnecting;
      link.dialled_at = Clock::now();
      link.peer = {};
      link.sent = 0;
      pieces_.forget(options.servers[place].name);
      for (; !link.backlog.empty(); link.backlog.pop_front()) drop(Drop::kLinkBroken);
    }
  }
}

// ---- Out ----------------------------------------------------------------------------------------

void Gateway::Impl::enqueue(Outgoing message) {
  {
    const MutexLock lock(mutex_);
    if (message.server && addresses_[*message.server].empty()) return drop(Drop::kNoRoute);
    if (stopping_ || outgoing_.size() >= kOutgoingMessages) return drop(Drop::kQueueFull);
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() > 1) return;  // the thread has been woken already
  }
  wakeup_.signal();
}

void Gateway::Impl::take_outgoing() {
  std::deque<Outgoing> messages;
  std::map<std::size_t, std::string> moved;
  {
    const MutexLock lock(mutex_);
    messages.swap(outgoing_);
    moved.swap(moved_);
  }
  for (const auto& [place, address] : moved) move_link(place, address);
  for (auto& message : messages) {
    if (!message.server) {
      send_on_route(message.route, *message.body);
      continue;
    }
    Link& link = *links_[*message.server];
    link.backlog.push_back(std::move(message.body));
    if (link.backlog.size() > options.backlog_messages) send_backlog(link);
    if (link.backlog.size() > options.backlog_messages) {
      link.backlog.pop_front();
      link.sent = 0;
      drop(Drop::kQueueFull);
    }
  }
}

void Gateway::Impl::send_backlog(Link& link) {
  if (!may_send(link)) return;
  while (!link.backlog.empty() && link.socket.writable() && send_front(link)) {
  }
}

// Sends the next piece of the first message. False: the connection
// has just ended, or is full after all; the next turn decides.
bool Gateway::Impl::send_front(Link& link) {
  if (link.sent == 0) link.front = encode(options.job, self(), link.peer, *link.backlog.front());
  const bool oversize = link.front.size() > options.message_bytes_max;
  if (oversize) drop(Drop::kOversize);
  const std::size_t pieces = pieces_of(link.front);
  if (!oversize) {
    const Bytes piece = pieces == 1 ? Bytes{} : piece_of(link.front, link.sent);
    const ByteView frame = pieces == 1 ? ByteView(link.front) : ByteView(piece);
    if (zmq_send(link.socket.handle(), frame.data(), frame.size(), ZMQ_DONTWAIT) < 0) return false;
    if (++link.sent < pieces) return true;
  }
  link.backlog.pop_front();
  link.front = {};
  link.sent = 0;
  return true;
}

void Gateway::Impl::send_on_route(const Route& route, const Message& body) {
  const Bytes bytes = encode(options.job, self(), route.who, body);
  if (bytes.size() > options.message_bytes_max) return drop(Drop::kOversize);
  const std::size_t pieces = pieces_of(bytes);
  if (pieces == 1) {
    send_frame(route.routing_id, bytes);
    return;
  }
  for (std::size_t n = 0; n < pieces; ++n)
    if (!send_frame(route.routing_id, piece_of(bytes, n))) return;
}

bool Gateway::Impl::send_frame(const std::string& routing_id, ByteView frame) {
  void* socket = router_->handle();
  const auto failed = [this] {
    drop(zmq_errno() == EHOSTUNREACH ? Drop::kNoRoute : Drop::kQueueFull);
    return false;
  };
  // Mandatory routing refuses the address already; the second part then always fits.
  if (zmq_send(socket, routing_id.data(), routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
    return failed();
  return zmq_send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT) >= 0 || failed();
}

// ---- In -----------------------------------------------------------------------------------------

std::optional<Drop> Gateway::Impl::fault_of(ByteView bytes, Envelope& out) const {
  if (bytes.size() > options.message_bytes_max) return Drop::kOversize;
  const auto why = [](const Error& error) {
    return error.code() == Code::kStale ? Drop::kUnknown : Drop::kMalformed;
  };
  const auto version = seal_version(bytes);
  if (version && *version != kSealVersion) return Drop::kOtherVersion;
  const auto head = decode_head(bytes);
  if (!head) return why(head.error());
  if (head.value().job != options.job) return Drop::kWrongJob;
  out.from = head.value().from;
  const bool addressed = head.value().to.nonce != 0;
  if (addressed && head.value().to != options.self) return Drop::kNotForMe;
  auto envelope = decode(bytes);
  if (!envelope) return why(envelope.error());
  out = std::move(envelope).value();
  return std::nullopt;
}

void Gateway::Impl::receive_from_clients() {
  for (int i = 0; i < kReceivedAtOnce && !stopping_; ++i) {
    MessagePart id;
    if (!id.receive(*router_)) return;
    MessagePart body;
    if (!id.more() || !receive_last(*router_, body)) {
      drop(Drop::kMalformed);
      continue;
    }
    Sender sender = sender_of(body.user_id());
    if (sender.name == kStrangerName) sender.name = zap_->name_now(sender.public_key);
    if (strangers_ && sender.name.empty() && !sender.public_key.empty()) {
      newcomers_.settled(body.source_fd());
      hear_stranger(id.text(), sender, {body.source_fd(), collectives::peer_of(body.source_fd())},
                    body.bytes());
      continue;
    }
    settled(body.source_fd());
    if (body.bytes().empty()) continue;  // a greeting: ZMQ_PROBE_ROUTER
    if (!sender.name.empty() && !zap_->admits(sender)) {
      // ZeroMQ cannot close one connection of a ROUTER, so this makes its peer's end look
      // gone. Should the number be another connection's by now, that one is dialled again.
      ::shutdown(body.source_fd(), SHUT_RDWR);
      drop(Drop::kRevoked);
      continue;
    }
    const std::string connection = id.text();
    if (const auto message = whole(connection, body.user_id(), body.bytes()))
      admit_client(connection, sender, *message);
  }
}

std::optional<ByteView> Gateway::Impl::whole(const std::string& connection, const std::string& key,
                                             ByteView frame) {
  const auto [outcome, message] = pieces_.take(connection, key, frame);
  if (outcome == Pieces::Outcome::kWhole) return message;
  if (outcome == Pieces::Outcome::kOversize) drop(Drop::kOversize);
  if (outcome == Pieces::Outcome::kMisplaced) drop(Drop::kMalformed);
  return std::nullopt;
}

void Gateway::Impl::admit_client(const std::string& routing_id, const Sender& sender,
                                 ByteView bytes) {
  if (sender.name.empty()) return drop(Drop::kWrongKey);
  Envelope envelope;
  if (const auto fault = fault_of(bytes, envelope)) {
    drop(*fault);
    if (*fault == Drop::kOtherVersion) answer_version(routing_id, sender.name, bytes);
    // The sender takes us for our former life; any answer of ours tells it better.
    if (*fault == Drop::kNotForMe)
      send_on_route({routing_id, sender.name, sender.public_key, envelope.from}, LeaderHint{});
    return;
  }
  if (!may_say(role_of(sender.name), envelope.body)) return drop(Drop::kWrongRole);
  if (std::holds_alternative<Enrol>(envelope.body)) {
    if (!strangers_) return drop(Drop::kUnknown);
    return send_on_route({routing_id, sender.name, sender.public_key, envelope.from},
                         Enrolled{sender.name, {}, false});  // it is let in already
  }
  if (!routes.learn(envelope.from, routing_id, sender.name, sender.public_key))
    return drop(Drop::kWrongKey);
  handler_({std::move(envelope.body), envelope.from, sender.name, std::nullopt,
            std::chrono::steady_clock::now()});
}

void Gateway::Impl::receive_from_server(std::size_t place) {
  Link& link = *links_[place];
  for (int i = 0; i < kReceivedAtOnce && !stopping_; ++i) {
    MessagePart body;
    if (!body.receive(link.socket)) return;
    if (body.more()) {
      MessagePart rest;
      receive_last(link.socket, rest);
      drop(Drop::kMalformed);
      continue;
    }
    const auto message = whole(options.servers[place].name, {}, body.bytes());
    if (!message) continue;
    Envelope envelope;
    if (const auto fault = fault_of(*message, envelope)) {
      drop(*fault);
      if (*fault == Drop::kOtherVersion) {
        other_versions[place] = *seal_version(*message);
        link_states[place] = LinkState::kOtherVersion;
      }
      continue;
    }
    link.peer = envelope.from;
    if (const auto* answer = std::get_if<Enrolled>(&envelope.body)) {
      take(place, *answer);
      continue;
    }
    const auto* seats = std::get_if<Seats>(&envelope.body);
    if (seats && options.follows_seats) follow(*seats);
    handler_({std::move(envelope.body), envelope.from, options.servers[place].name, place,
              std::chrono::steady_clock::now()});
  }
}

}  // namespace starling::actors
