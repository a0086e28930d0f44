// What a service manager hears: a socket of the test's own in its place.

#include "tools/processes/service_manager.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/fd.h"

namespace starling::tools {
namespace {

class Manager {
 public:
  explicit Manager(std::string name) : name_(std::move(name)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, name_.data(), name_.size());
    const bool abstract = name_[0] == '@';
    if (abstract) at.sun_path[0] = '\0';
    const auto size = offsetof(sockaddr_un, sun_path) + name_.size() + (abstract ? 0 : 1);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at),
                   static_cast<socklen_t>(size)) == 0);
  }
  ~Manager() { ::unlink(name_.c_str()); }
  // Takes all that has come: on one machine a datagram is there when it has been sent.
  std::vector<std::string> heard() {
    std::vector<std::string> all;
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT)) >= 0;)
      all.emplace_back(buffer, static_cast<std::size_t>(n));
    return all;
  }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  const Fd fd_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

using Texts = std::vector<std::string>;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("service manager: it hears each notice at its path, or at its abstract name") {
  const std::string own = std::to_string(::getpid());
  for (const std::string& name :
       {std::filesystem::temp_directory_path().string() + "/starling-notify-" + own,
        "@starling-notify-" + own}) {
    Manager manager(name);
    ServiceManager service(name, std::nullopt);
    service.ready();
    service.status("step 3\nREADY=0");
    service.alive();
    service.stopping();
    CHECK(manager.heard() == Texts{"READY=1", "STATUS=step 3 READY=0", "WATCHDOG=1", "STOPPING=1"});
  }
}

TEST_CASE("service manager: of statuses within a second the first is told") {
  Manager manager("@starling-status-" + std::to_string(::getpid()));
  ServiceManager service(manager.name(), std::nullopt);
  const ServiceManager::Clock::time_point begin{};
  service.status("a", begin);
  service.status("b", begin + milliseconds(999));
  service.status("c", begin + milliseconds(1000));
  CHECK(manager.heard() == Texts{"STATUS=a", "STATUS=c"});
}

TEST_CASE("service manager: one that is not there, or is gone, holds up nobody") {
  for (const char* socket : {"", "relative", "/starling-there-is-none", "@"}) {
    ServiceManager service(socket, microseconds(1));
    service.ready();
    service.status("x");
    CHECK(service.waits() == (*socket != '\0'));
  }
  ServiceManager long_name(std::string(500, '/'), std::nullopt);
  long_name.ready();
}

TEST_CASE("service manager: one that reads nothing holds up nobody") {
  Manager manager("@starling-full-" + std::to_string(::getpid()));
  const ServiceManager service(manager.name(), std::nullopt);
  for (int i = 0; i < 100'000; ++i) service.alive();
  CHECK(manager.heard().size() < 100'000);
}

TEST_CASE("service manager: its watchdog is that of the process that it names") {
  const auto read = [](const char* usec, const std::string& pid) {
    return ServiceManager::of(Environment{{EnvVar::kNotifySocket, "@x"},
                                          {EnvVar::kWatchdogUsec, usec},
                                          {EnvVar::kWatchdogPid, pid}})
        .watchdog();
  };
  const std::string own = std::to_string(::getpid());
  CHECK(read("30000000", own) == microseconds(30'000'000));
  CHECK_FALSE(read("30000000", "1"));
  for (const char* wrong : {"", "0", "-1", "12x", "99999999999999999999"})
    CHECK_FALSE_MESSAGE(read(wrong, own), wrong);
  CHECK_FALSE(ServiceManager::of(Environment()).waits());
}

}  // namespace
}  // namespace starling::tools
