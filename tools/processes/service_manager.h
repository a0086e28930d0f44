#pragma once
// A ServiceManager is the process that has started this one as a service and waits for word of its
// state: systemd with Type=notify, or another that understands sd_notify(3). Where there is none, a
// notice goes nowhere, at no cost.

#include <chrono>
#include <optional>
#include <string>

#include "core/base/environment.h"

namespace starling::tools {

// Threads: any, one at a time for status(). A notice is a datagram; one that cannot be sent is lost,
// as a service goes on without its manager.
class ServiceManager {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Call it in the process that was started:
  // its children tell on the service's behalf (NotifyAccess=all).
  static ServiceManager of(const Environment& environment);
  // `socket`: a path, or "@NAME" for Linux' abstract names; empty: there is no manager.
  ServiceManager(std::string socket, std::optional<std::chrono::microseconds> watchdog)
      : socket_(std::move(socket)), watchdog_(watchdog) {}

  bool waits() const { return !socket_.empty(); }
  // How long the service may be without alive() before it is killed; nothing: for ever.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

  void ready() const { tell("READY=1"); }
  void stopping() const { tell("STOPPING=1"); }
  void alive() const { tell("WATCHDOG=1"); }
  // What `systemctl status` shows beside the service, one line.
  void say(const std::string& line) const;
  // As say(), for a line that changes with each step: of all calls within a second only the first is sent.
  void status(const std::string& line, Clock::time_point now = Clock::now());

 private:
  void tell(const std::string& notice) const;

  std::string socket_;
  std::optional<std::chrono::microseconds> watchdog_;
  std::optional<Clock::time_point> told_;
};

}  // namespace starling::tools
