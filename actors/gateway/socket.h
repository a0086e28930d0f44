#pragma once
// These classes own libzmq's context, sockets and
// messages, and an eventfd. Only for actors/gateway.
//
// Threads: a Context may be shared; a Socket belongs to one thread at a time; Wakeup::signal() may
// be called from any thread.

#include <zmq.h>

#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/keys.h"
#include "core/base/result.h"

namespace starling::actors {

// The time that the last messages may take to leave after their socket was closed.
inline constexpr int kLingerMs = 200;
inline constexpr const char* kZapDomain = "starling";

class Context {
 public:
  // Error (kInternal): the library refuses an option that the gateway rests on.
  static Result<Context> make();
  Context(Context&& o) noexcept : handle_(o.handle_) { o.handle_ = nullptr; }
  Context& operator=(Context&&) = delete;
  ~Context() { close(); }
  // Call it when all sockets are closed; it waits for their last messages, at most kLingerMs.
  void close();
  void* handle() const { return handle_; }

 private:
  explicit Context(void* handle) : handle_(handle) {}
  void* handle_;
};

class Socket {
 public:
  // `type`: ZMQ_ROUTER and so on. Linger is bounded from the start.
  static Result<Socket> make(const Context& context, int type);
  Socket(Socket&& o) noexcept : handle_(o.handle_) { o.handle_ = nullptr; }
  Socket& operator=(Socket&&) = delete;
  ~Socket() { close(); }
  void close();

  Result<> set(int option, int value);
  Result<> set(int option, const std::string& value);
  Result<> set_bytes_max(std::size_t bytes);
  Result<> bind(const std::string& address);
  Result<> connect(const std::string& address);
  std::string endpoint() const;  // of the last bind, with the port that it got
  bool writable() const;
  void* handle() const { return handle_; }

 private:
  explicit Socket(void* handle) : handle_(handle) {}
  void* handle_;
};

// A MessagePart is one received part of a message of ZeroMQ. Its bytes live as long as it does.
class MessagePart {
 public:
  MessagePart() { zmq_msg_init(&message_); }
  ~MessagePart() { zmq_msg_close(&message_); }
  MessagePart(const MessagePart&) = delete;
  MessagePart& operator=(const MessagePart&) = delete;
  bool receive(const Socket& socket) {  // false: nothing is there
    return zmq_msg_recv(&message_, socket.handle(), ZMQ_DONTWAIT) >= 0;
  }
  bool more() { return zmq_msg_more(&message_) != 0; }
  ByteView bytes() {
    return {static_cast<const std::uint8_t*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  std::string text() {
    const auto view = bytes();
    return {view.begin(), view.end()};
  }
  // Returns the file of the connection that it came over; -1 where it came over none.
  int source_fd() { return zmq_msg_get(&message_, ZMQ_SRCFD); }
  // Returns the name that our ZAP handler gave to the connection's key; empty if there is none.
  std::string user_id() {
    const char* name = zmq_msg_gets(&message_, "User-Id");
    return name != nullptr ? name : "";
  }

 private:
  zmq_msg_t message_;
};

// A Monitor watches connections of one socket (handshakes, ends). It
// belongs to the thread of its socket, and must be destroyed before it.
class Monitor {
 public:
  static Result<Monitor> make(const Context& context, const Socket& watched);
  // Returns the next event (ZMQ_EVENT_...), if there is one.
  std::optional<unsigned> next();
  // The value of that event: the connection, for ZMQ_EVENT_ACCEPTED and _DISCONNECTED.
  int value() const { return value_; }
  void* handle() const { return socket_.handle(); }
  Monitor(Monitor&& o) noexcept;
  Monitor& operator=(Monitor&&) = delete;
  // Ends the watching before its reader goes: else the library's I/O thread would wait
  // forever for a reader of the next event, and with it every connection of the context.
  ~Monitor();

 private:
  Monitor(void* watched, Socket socket) : watched_(watched), socket_(std::move(socket)) {}
  void* watched_;  // null: moved from
  Socket socket_;
  int value_ = 0;
};

// Makes a socket the server of an encrypted connection
// that asks our ZAP handler, or its client.
Result<> secure_server(Socket& socket, const KeyPair& own);
Result<> secure_client(Socket& socket, const KeyPair& own, const std::string& server_public_key);

// Wakeup ends a zmq_poll of another thread.
class Wakeup {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;
  void signal() const;
  void clear() const;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace starling::actors
