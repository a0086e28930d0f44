#pragma once
// Who is let in: the answer to libzmq's question about every new connection (ZAP, ZeroMQ RFC 27).
//
// Only keys of the allow list get a yes, and their name becomes the User-Id of every message of
// that connection. Anything odd in a question gets a no; if the handler's thread ended, libzmq
// would refuse everybody, since the domain is enforced (secure_server).

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/gateway/socket.h"
#include "core/base/keys.h"
#include "core/base/result.h"

namespace starling::actors {

// Threads: owns one thread; all functions may be called from any other.
class ZapHandler {
 public:
  // Has to be there before the first server socket of the context binds, and to go after the last.
  // `refused` counts those that were not let in, and outlives the handler.
  static Result<std::unique_ptr<ZapHandler>> start(const Context& context, AllowList allowed,
                                                   std::atomic<std::uint64_t>& refused);
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  void allow(const std::string& public_key, const std::string& name);
  void forbid(const std::string& public_key);

 private:
  ZapHandler(Socket socket, AllowList allowed, std::atomic<std::uint64_t>& refused);
  void run();
  void answer();
  std::string name_of(const std::string& public_key) const;

  Socket socket_;  // owned by thread_
  const Wakeup stop_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t>& refused_;
  mutable std::mutex mutex_;
  AllowList allowed_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace starling::actors
