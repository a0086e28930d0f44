#pragma once
// ZapHandler answers libzmq's question about every new connection (ZAP, ZeroMQ RFC 27).
//
// Only keys of the allow list get a yes, and name and key become the User-Id
// of every message of that connection: the list may change while it stands.
// Where identities are taken, other keys get one, too, under a name that no key has
// (kStrangerName): what they may do is the gateway's matter (strangers.h).
// Anything odd in a question gets a no; if the handler's thread ended, libzmq
// would refuse all peers, since the domain is enforced (secure_server).

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "actors/gateway/refusals.h"
#include "actors/gateway/socket.h"
#include "core/base/keys.h"
#include "core/base/mutex.h"
#include "core/base/result.h"

namespace starling::actors {

inline constexpr const char* kStrangerName = "?";

// Sender is the owner of a connection, proven by CURVE.
struct Sender {
  std::string name;  // empty: no key was proven
  std::string public_key;
};
// Reads a User-Id.
Sender sender_of(const std::string& user_id);

// Threads: owns one thread; all functions may be called from any other.
class ZapHandler {
 public:
  // Call start() before the first server socket of the context binds; destroy the handler
  // after the last. `refused` counts peers that were not let in, and outlives the handler.
  static Result<std::unique_ptr<ZapHandler>> start(const Context& context, AllowList allowed,
                                                   std::atomic<std::uint64_t>& refused);
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  void allow(const std::string& public_key, const std::string& name);
  void forbid(const std::string& public_key);
  // Lets in only these from now on. Standing connections are not asked again: see admits().
  void replace(AllowList allowed);
  bool admits(const Sender& sender) const;

  // Lets the handshakes of keys that are not on the list succeed from now on, but those of revoked ones.
  void take_strangers() { takes_strangers_ = true; }
  // Lets in this key besides the list. The list may change; a key that was revoked from it is not enrolled. At most
  // kEnrolledMax keys: above, the one that was silent longest goes. Returns its name. Errors: as Gateway::enrol().
  Result<std::string> enrol(const std::string& public_key);
  // Returns the name of a key that is let in now; empty: it is not. Notes that it was heard.
  std::string name_now(const std::string& public_key);
  // The list and the enrolled keys.
  AllowList all() const;

  static constexpr std::size_t kEnrolledMax = 4096;
  static constexpr std::chrono::seconds kEnrolledSilence{
      60};  // a key that was heard since does not go

  // `refused` gets the lines of Refusals from now on, on the handler's thread; must not block.
  void tell(std::function<void(const std::string&)> refused);

 private:
  ZapHandler(Socket socket, AllowList allowed, std::atomic<std::uint64_t>& refused);
  void run();
  void answer();
  std::string name_of(const std::string& public_key) const;
  bool takes(const std::string& public_key) const;  // as a stranger's
  void say_refused(const std::string& public_key, const std::string& address);

  Socket socket_;  // owned by thread_
  const Wakeup stop_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t>& refused_;
  mutable Mutex mutex_;
  AllowList allowed_ STARLING_GUARDED_BY(mutex_);
  AllowList former_ STARLING_GUARDED_BY(mutex_);  // were allowed once
  struct Enrolled {
    std::string name;
    std::chrono::steady_clock::time_point heard;
  };
  std::map<std::string, Enrolled> enrolled_ STARLING_GUARDED_BY(mutex_);  // by public key
  std::atomic<bool> takes_strangers_{false};
  std::function<void(const std::string&)> tell_ STARLING_GUARDED_BY(mutex_);
  Refusals refusals_;  // of thread_
  std::thread thread_;
};

}  // namespace starling::actors
