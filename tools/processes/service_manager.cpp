#include "tools/processes/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/fd.h"

namespace starling::tools {
namespace {

constexpr std::chrono::seconds kBetweenStatus{1};

// Returns the number that a text is; nothing if it is none.
std::optional<std::uint64_t> number_in(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

}  // namespace

ServiceManager ServiceManager::of(const Environment& environment) {
  const auto usec = number_in(environment.value(EnvVar::kWatchdogUsec));
  const auto pid = number_in(environment.value(EnvVar::kWatchdogPid));
  // WATCHDOG_PID names the process that is watched: the variables may be those of a parent's service.
  const bool watched = usec && *usec > 0 && *usec <= INT64_MAX &&
                       (!pid || *pid == static_cast<std::uint64_t>(::getpid()));
  std::optional<std::chrono::microseconds> watchdog;
  if (watched) watchdog = std::chrono::microseconds(static_cast<std::int64_t>(*usec));
  return {environment.value(EnvVar::kNotifySocket), watchdog};
}

void ServiceManager::status(const std::string& line, Clock::time_point now) {
  if (!waits() || (told_ && now - *told_ < kBetweenStatus)) return;
  told_ = now;
  say(line);
}

void ServiceManager::say(const std::string& line) const {
  std::string one = line;  // a line end would begin another assignment
  std::replace(one.begin(), one.end(), '\n', ' ');
  tell("STATUS=" + one);
}

void ServiceManager::tell(const std::string& notice) const {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const bool abstract = socket_.starts_with('@');
  if ((!abstract && !socket_.starts_with('/')) || socket_.size() >= sizeof to.sun_path) return;
  std::memcpy(to.sun_path, socket_.data(), socket_.size());
  if (abstract) to.sun_path[0] = '\0';
  const Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return;
  const auto size = offsetof(sockaddr_un, sun_path) + socket_.size() + (abstract ? 0 : 1);
  (void)::sendto(fd.get(), notice.data(), notice.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(size));
}

}  // namespace starling::tools
