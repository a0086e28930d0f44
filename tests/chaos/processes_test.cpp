#include "tools/chaos/processes.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace starling::chaos {
namespace {

bool within_seconds(bool (*condition)(int), int pid, bool wanted) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (condition(pid) != wanted)
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

// A child that waits until it is killed.
struct Child {
  int pid = ::fork();
  Child() {
    if (pid == 0)
      for (;;) ::pause();
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
};

}  // namespace

TEST_CASE("a process is seen to run, to be stopped, to go on and to be gone") {
  Child child;
  REQUIRE(child.pid > 0);
  CHECK(alive(child.pid));
  const auto children = children_of(::getpid());
  CHECK(std::find(children.begin(), children.end(), child.pid) != children.end());
  CHECK(look_at(child.pid)->parent == ::getpid());
  ::kill(child.pid, SIGSTOP);
  CHECK(within_seconds(stopped, child.pid, true));
  ::kill(child.pid, SIGCONT);
  CHECK(within_seconds(stopped, child.pid, false));
  ::kill(child.pid, SIGKILL);
  CHECK(within_seconds(alive, child.pid, false));  // a zombie is not alive
}

TEST_CASE("sockets and files that a process had are known when they stay") {
  Traces traces;
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listening, 1) == 0);
  const std::string path = "/dev/shm/chaos-test-" + std::to_string(::getpid());
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR, 0600);
  REQUIRE(file >= 0);
  CHECK(listening_ports(::getpid()).size() == 1);

  traces.look({::getpid()});
  CHECK(traces.left("/nowhere").size() == 2);
  ::close(listening);
  ::close(file);
  CHECK(traces.left("/nowhere").size() == 1);  // closing a file leaves it there
  ::unlink(path.c_str());
  CHECK(traces.left("/nowhere").empty());
}

// The kernel lists a connection that waits to be accepted without an inode.
TEST_CASE("a socket of another process that has a waiting connection does not count") {
  int ready[2], over[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(over) == 0);
  const int pid = ::fork();
  if (pid == 0) {
    ::close(over[1]);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "starling-chaos-test-" + std::to_string(::getpid());
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0),
              asks = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool waits = ::bind(listening, generic, size) == 0 && ::listen(listening, 8) == 0 &&
                       ::connect(asks, generic, size) == 0;
    char c = waits ? 'y' : 'n';
    if (::write(ready[1], &c, 1) == 1) (void)!::read(over[0], &c, 1);
    ::_exit(0);
  }
  char waits = 'n';
  REQUIRE(::read(ready[0], &waits, 1) == 1);
  REQUIRE(waits == 'y');
  Traces traces;
  traces.look({::getpid()});  // whose open files are no sockets
  const auto left = traces.left("/nowhere");
  CHECK_MESSAGE(left.empty(), (left.empty() ? "" : left.front()));
  for (const int end : {ready[0], ready[1], over[0], over[1]}) ::close(end);
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("files of others and below the own folder do not count") {
  const std::string old = "/dev/shm/chaos-test-old-" + std::to_string(::getpid());
  std::ofstream(old) << "x";
  Traces traces;
  const std::string foreign = "/dev/shm/chaos-test-foreign", mine = "/dev/shm/chaos-test-mine";
  std::ofstream(foreign) << "x";
  std::ofstream inside(mine);
  inside << "x" << std::flush;
  traces.look({::getpid()});
  CHECK(traces.left(mine).empty());
  CHECK(traces.left("/nowhere").size() == 1);
  for (const auto& path : {old, foreign, mine}) ::unlink(path.c_str());
}

TEST_CASE("who may not write files gets an error, and may again") {
  // A child that tries to write whenever it is asked, and answers with errno.
  int ask[2], answer[2];
  REQUIRE(::pipe(ask) == 0);
  REQUIRE(::pipe(answer) == 0);
  const std::string name =
      std::filesystem::temp_directory_path() / ("starling-write-" + std::to_string(::getpid()));
  const int pid = ::fork();
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT, 0600);
    for (char c; ::read(ask[0], &c, 1) == 1;) {
      const int error = ::pwrite(file, &c, 1, 0) == 1 ? 0 : errno;
      if (::write(answer[1], &error, sizeof error) < 0) break;
    }
    ::_exit(0);
  }
  const auto write_fails_with = [&] {
    int error = -1;
    REQUIRE(::write(ask[1], "x", 1) == 1);
    REQUIRE(::read(answer[0], &error, sizeof error) == sizeof error);
    return error;
  };
  CHECK(write_fails_with() == 0);
  CHECK(let_write_files(pid, false));
  CHECK(write_fails_with() == EFBIG);
  CHECK(let_write_files(pid, true));
  CHECK(write_fails_with() == 0);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  CHECK_FALSE(let_write_files(pid, false));
  for (const int fd : {ask[0], ask[1], answer[0], answer[1]}) ::close(fd);
  ::unlink(name.c_str());
}

}  // namespace starling::chaos
