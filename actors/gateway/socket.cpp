#include "actors/gateway/socket.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace starling::actors {
namespace {

// Draft options of libzmq 4.3, hidden in distributions' headers but accepted by number.
constexpr int kZeroCopyRecv = 10;
constexpr int kZapEnforceDomain = 93;

// A lack of descriptors or memory is no bug of ours.
Error library_error(const std::string& what, Code code = Code::kInternal) {
  const int error = zmq_errno();
  if (error == EMFILE || error == ENFILE || error == ENOMEM) code = Code::kUnavailable;
  return Error(code, what + ": " + zmq_strerror(zmq_errno()));
}

}  // namespace

Result<Context> Context::make() {
  Context context(zmq_ctx_new());
  if (context.handle_ == nullptr) return library_error("cannot make a ZeroMQ context");
  // Frames in the library's shared receive buffer start at odd addresses.
  if (zmq_ctx_set(context.handle_, kZeroCopyRecv, 0) != 0)
    return library_error("libzmq refuses the context option ZERO_COPY_RECV");
  zmq_ctx_set(context.handle_, ZMQ_MAX_SOCKETS, 4096);
  return context;
}

void Context::close() {
  if (handle_ == nullptr) return;
  while (zmq_ctx_term(handle_) != 0 && zmq_errno() == EINTR) {
  }
  handle_ = nullptr;
}

Result<Socket> Socket::make(const Context& context, int type) {
  Socket socket(zmq_socket(context.handle(), type));
  if (socket.handle_ == nullptr) return library_error("cannot make a ZeroMQ socket");
  STARLING_TRY(socket.set(ZMQ_LINGER, kLingerMs));
  return socket;
}

void Socket::close() {
  if (handle_ != nullptr) zmq_close(handle_);
  handle_ = nullptr;
}

Result<> Socket::set(int option, int value) {
  if (zmq_setsockopt(handle_, option, &value, sizeof value) == 0) return ok();
  return library_error("libzmq refuses socket option " + std::to_string(option));
}

Result<> Socket::set(int option, const std::string& value) {
  if (zmq_setsockopt(handle_, option, value.data(), value.size()) == 0) return ok();
  return library_error("libzmq refuses socket option " + std::to_string(option));
}

Result<> Socket::set_bytes_max(std::size_t bytes) {
  const auto value = static_cast<std::int64_t>(bytes);
  if (zmq_setsockopt(handle_, ZMQ_MAXMSGSIZE, &value, sizeof value) == 0) return ok();
  return library_error("libzmq refuses a bound of the message size");
}

Result<> Socket::bind(const std::string& address) {
  if (zmq_bind(handle_, address.c_str()) == 0) return ok();
  return library_error("cannot listen on " + address, Code::kBadInput);
}

Result<> Socket::connect(const std::string& address) {
  if (zmq_connect(handle_, address.c_str()) == 0) return ok();
  return library_error("cannot connect to " + address, Code::kBadInput);
}

std::string Socket::endpoint() const {
  char text[512];
  std::size_t size = sizeof text;
  if (zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, text, &size) != 0 || size == 0) return {};
  return {text, size - 1};
}

bool Socket::writable() const {
  int events = 0;
  std::size_t size = sizeof events;
  return zmq_getsockopt(handle_, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLOUT) != 0;
}

Result<Monitor> Monitor::make(const Context& context, const Socket& watched) {
  static std::atomic<std::uint64_t> number{0};  // names within a context only have to differ
  const std::string address = "inproc://monitor-" + std::to_string(++number);
  constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_DISCONNECTED |
                          ZMQ_EVENT_ACCEPTED;
  if (zmq_socket_monitor(watched.handle(), address.c_str(), kEvents) != 0)
    return library_error("cannot watch a ZeroMQ socket");
  STARLING_TRY(pair, Socket::make(context, ZMQ_PAIR));
  STARLING_TRY(pair.connect(address));
  return Monitor(watched.handle(), std::move(pair));
}

Monitor::Monitor(Monitor&& o) noexcept
    : watched_(std::exchange(o.watched_, nullptr)),
      socket_(std::move(o.socket_)),
      value_(o.value_) {}

Monitor::~Monitor() {
  if (watched_ != nullptr) zmq_socket_monitor(watched_, nullptr, 0);
}

std::optional<unsigned> Monitor::next() {
  MessagePart event;
  if (!event.receive(socket_)) return std::nullopt;
  MessagePart address;
  if (event.more()) address.receive(socket_);
  std::uint16_t number = 0;
  std::int32_t value = 0;
  if (event.bytes().size() < sizeof number + sizeof value) return std::nullopt;
  std::memcpy(&number, event.bytes().data(), sizeof number);
  std::memcpy(&value, event.bytes().data() + sizeof number, sizeof value);
  value_ = value;
  return number;
}

Result<> secure_server(Socket& socket, const KeyPair& own) {
  STARLING_TRY(socket.set(ZMQ_CURVE_SERVER, 1));
  STARLING_TRY(socket.set(ZMQ_CURVE_SECRETKEY, own.secret_key));
  // Without a domain, or without enforcing it, libzmq admits all peers when no handler answers.
  STARLING_TRY(socket.set(ZMQ_ZAP_DOMAIN, std::string(kZapDomain)));
  return socket.set(kZapEnforceDomain, 1);
}

Result<> secure_client(Socket& socket, const KeyPair& own, const std::string& server_public_key) {
  STARLING_TRY(socket.set(ZMQ_CURVE_SERVERKEY, server_public_key));
  STARLING_TRY(socket.set(ZMQ_CURVE_PUBLICKEY, own.public_key));
  return socket.set(ZMQ_CURVE_SECRETKEY, own.secret_key);
}

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  STARLING_CHECK(fd_ >= 0);
}
Wakeup::~Wakeup() {
  ::close(fd_);
}

void Wakeup::signal() const {
  const std::uint64_t one = 1;
  // write() fails only when the counter is full, and then the other side is awake already.
  [[maybe_unused]] const auto n = ::write(fd_, &one, sizeof one);
}

void Wakeup::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto n = ::read(fd_, &count, sizeof count);
}

}  // namespace starling::actors
