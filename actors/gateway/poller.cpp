#include "actors/gateway/poller.h"

#include <sodium.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "actors/gateway/self_check.h"
#include "actors/sabotage.h"
#include "core/base/check.h"
#include "core/wire/codec.h"

namespace starling::actors {
namespace {

constexpr int kQueueMessages = 128;               // libzmq's, per connection and direction
constexpr std::size_t kOutgoingMessages = 65536;  // from other threads to ours
constexpr int kReceivedAtOnce = 256;              // per socket, before the others get their turn

// Never equal for two sockets, so that no connection can take another's place at a server; the
// nonce is in it for whoever looks at a trace.
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

// Receives one whole message after the frames before it; false if there were more frames than
// expected.
bool receive_last(Socket& socket, Frame& body) {
  if (!body.receive(socket)) return false;
  if (!body.more()) return true;
  for (bool more = true; more;) {
    Frame rest;
    more = rest.receive(socket) && rest.more();
  }
  return false;
}

}  // namespace

// ---- Start and stop -----------------------------------------------------------------------------

Gateway::Impl::Impl(GatewayOptions o, ArrivalHandler handler, Context context)
    : options(std::move(o)),
      counter(options.self.counter),
      link_states(options.servers.size()),
      handler_(std::move(handler)),
      context_(std::move(context)) {
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
    STARLING_TRY(impl->open_link(server));
  }
  impl->thread_ = std::thread([raw = impl.get()] { raw->run(); });
  return impl;
}

Result<> Gateway::Impl::set_common(Socket& socket) const {
  const auto beat = static_cast<int>(options.heartbeat.count());
  const auto timeout = static_cast<int>(options.heartbeat_timeout.count());
  const std::pair<int, int> settings[] = {
      {ZMQ_SNDHWM, kQueueMessages}, {ZMQ_RCVHWM, kQueueMessages},
      {ZMQ_HEARTBEAT_IVL, beat},    {ZMQ_HEARTBEAT_TIMEOUT, timeout},
      {ZMQ_HEARTBEAT_TTL, timeout}, {ZMQ_HANDSHAKE_IVL, 3000},
      {ZMQ_RECONNECT_IVL, 10},      {ZMQ_RECONNECT_IVL_MAX, 200},
      {ZMQ_IMMEDIATE, 1},           {ZMQ_IPV6, 1},
  };
  for (const auto& [option, value] : settings) {
    STARLING_TRY(socket.set(option, value));
  }
  return socket.set_bytes_max(options.message_bytes_max);
}

// The handler comes first: until it answers nobody is let in.
Result<> Gateway::Impl::open_server() {
  STARLING_TRY(zap, ZapHandler::start(context_, options.listen->allowed, refused_handshakes));
  zap_ = std::move(zap);
  STARLING_TRY(router, Socket::make(context_, ZMQ_ROUTER));
  STARLING_TRY(set_common(router));
  STARLING_TRY(router.set(ZMQ_ROUTER_MANDATORY, 1));
  // Only for a half-open connection of the same process: routing ids are random and not shown to
  // others.
  STARLING_TRY(router.set(ZMQ_ROUTER_HANDOVER, 1));
  STARLING_TRY(router.set(ZMQ_BACKLOG, 1024));
  STARLING_TRY(secure_server(router, options.key));
  STARLING_TRY(router.bind(options.listen->address));
  const std::string endpoint = router.endpoint();
  if (!sabotage::accepts_strangers()) {
    STARLING_TRY(check_admission(context_, endpoint, options.key.public_key, *zap_));
  }
  refused_handshakes = 0;  // without our own stranger
  port = static_cast<std::uint16_t>(std::atoi(endpoint.c_str() + endpoint.rfind(':') + 1));
  router_.emplace(std::move(router));
  return ok();
}

Result<> Gateway::Impl::open_link(const GatewayOptions::Server& server) {
  STARLING_TRY(check_public_key(server.name, server.public_key));
  STARLING_TRY(socket, Socket::make(context_, ZMQ_DEALER));
  STARLING_TRY(set_common(socket));
  STARLING_TRY(socket.set(ZMQ_ROUTING_ID, make_routing_id(options.self)));
  STARLING_TRY(secure_client(socket, options.key, server.public_key));
  STARLING_TRY(monitor, Monitor::make(context_, socket));
  STARLING_TRY(socket.connect(server.address));
  links_.emplace_back(std::move(socket), std::move(monitor));
  return ok();
}

void Gateway::Impl::stop() {
  const std::lock_guard lock(stop_mutex_);
  STARLING_CHECK(thread_.get_id() != std::this_thread::get_id());  // would wait for itself
  stopping_ = true;
  wakeup_.signal();
  if (thread_.joinable()) thread_.join();
  links_.clear();
  router_.reset();
  zap_.reset();
  context_.close();
}

// ---- The loop -----------------------------------------------------------------------------------

void Gateway::Impl::run() {
  while (!stopping_) {
    wait();
    // Ends of connections before messages to send: what waited for a dead peer must not reach the
    // next.
    for (std::size_t place = 0; place < links_.size(); ++place) watch(place);
    take_outgoing();
    for (auto& link : links_) send_backlog(link);
    if (router_) receive_from_clients();
    for (std::size_t place = 0; place < links_.size(); ++place) receive_from_server(place);
  }
  take_outgoing();
  for (auto& link : links_) send_backlog(link);
}

void Gateway::Impl::wait() {
  std::vector<zmq_pollitem_t> items;
  items.push_back({nullptr, wakeup_.fd(), ZMQ_POLLIN, 0});
  if (router_) items.push_back({router_->handle(), 0, ZMQ_POLLIN, 0});
  for (auto& link : links_) {
    const short out = link.backlog.empty() ? 0 : ZMQ_POLLOUT;
    items.push_back({link.monitor.handle(), 0, ZMQ_POLLIN, 0});
    items.push_back({link.socket.handle(), 0, static_cast<short>(ZMQ_POLLIN | out), 0});
  }
  const int n = zmq_poll(items.data(), static_cast<int>(items.size()), -1);
  STARLING_CHECK_MSG(n >= 0 || zmq_errno() == EINTR, zmq_strerror(zmq_errno()));
  wakeup_.clear();
}

void Gateway::Impl::watch(std::size_t place) {
  Link& link = links_[place];
  auto& state = link_states[place];
  while (const auto event = link.monitor.next()) {
    if (*event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      state = LinkState::kUp;
    } else if (*event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
      state = LinkState::kRefused;
    } else if (*event != ZMQ_EVENT_DISCONNECTED) {
      state = LinkState::kWrongPeer;
    } else if (state == LinkState::kUp) {
      state = LinkState::kConnecting;
      link.peer = {};
      for (; !link.backlog.empty(); link.backlog.pop_front()) drop(Drop::kLinkBroken);
    }
  }
}

// ---- Out ----------------------------------------------------------------------------------------

void Gateway::Impl::enqueue(Outgoing message) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || outgoing_.size() >= kOutgoingMessages) return drop(Drop::kQueueFull);
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() > 1) return;  // the thread has been woken already
  }
  wakeup_.signal();
}

void Gateway::Impl::take_outgoing() {
  std::deque<Outgoing> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(outgoing_);
  }
  for (auto& message : messages) {
    if (!message.server) {
      send_on_route(message.route, *message.body);
      continue;
    }
    Link& link = links_[*message.server];
    link.backlog.push_back(std::move(message.body));
    if (link.backlog.size() > options.backlog_messages) send_backlog(link);
    if (link.backlog.size() > options.backlog_messages) {
      link.backlog.pop_front();
      drop(Drop::kQueueFull);
    }
  }
}

void Gateway::Impl::send_backlog(Link& link) {
  for (; !link.backlog.empty() && link.socket.writable(); link.backlog.pop_front()) {
    const Bytes bytes = encode(options.job, self(), link.peer, *link.backlog.front());
    if (bytes.size() > options.message_bytes_max)
      drop(Drop::kOversize);
    else if (zmq_send(link.socket.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT) < 0)
      return;  // the connection has just ended, or is full after all: the next turn decides
  }
}

void Gateway::Impl::send_on_route(const Route& route, const Message& body) {
  const Bytes bytes = encode(options.job, self(), route.who, body);
  if (bytes.size() > options.message_bytes_max) return drop(Drop::kOversize);
  void* socket = router_->handle();
  // Mandatory routing refuses the address already; the second part then always fits.
  if (zmq_send(socket, route.routing_id.data(), route.routing_id.size(),
               ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
    return drop(zmq_errno() == EHOSTUNREACH ? Drop::kNoRoute : Drop::kQueueFull);
  if (zmq_send(socket, bytes.data(), bytes.size(), ZMQ_DONTWAIT) < 0) drop(Drop::kQueueFull);
}

// ---- In -----------------------------------------------------------------------------------------

std::optional<Drop> Gateway::Impl::fault_of(ByteView bytes, Envelope& out) const {
  if (bytes.size() > options.message_bytes_max) return Drop::kOversize;
  const auto why = [](const Error& error) {
    return error.code() == Code::kStale ? Drop::kUnknown : Drop::kMalformed;
  };
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
    Frame id;
    if (!id.receive(*router_)) return;
    Frame body;
    if (!id.more() || !receive_last(*router_, body)) {
      drop(Drop::kMalformed);
      continue;
    }
    admit_client(id.text(), body.user_id(), body.bytes());
  }
}

void Gateway::Impl::admit_client(const std::string& routing_id, const std::string& sender,
                                 ByteView bytes) {
  if (sender.empty()) return drop(Drop::kWrongKey);
  Envelope envelope;
  if (const auto fault = fault_of(bytes, envelope)) {
    drop(*fault);
    // The sender takes us for our former life; any answer of ours tells it better.
    if (*fault == Drop::kNotForMe) send_on_route({routing_id, sender, envelope.from}, LeaderHint{});
    return;
  }
  if (!routes.learn(envelope.from, routing_id, sender)) return drop(Drop::kWrongKey);
  handler_({std::move(envelope.body), envelope.from, sender, std::nullopt,
            std::chrono::steady_clock::now()});
}

void Gateway::Impl::receive_from_server(std::size_t place) {
  Link& link = links_[place];
  for (int i = 0; i < kReceivedAtOnce && !stopping_; ++i) {
    Frame body;
    if (!body.receive(link.socket)) return;
    if (body.more()) {
      Frame rest;
      receive_last(link.socket, rest);
      drop(Drop::kMalformed);
      continue;
    }
    Envelope envelope;
    if (const auto fault = fault_of(body.bytes(), envelope)) {
      drop(*fault);
      continue;
    }
    link.peer = envelope.from;
    handler_({std::move(envelope.body), envelope.from, options.servers[place].name, place,
              std::chrono::steady_clock::now()});
  }
}

}  // namespace starling::actors
