#include "actors/script/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "actors/script/requests.h"
#include "core/base/check.h"
#include "core/base/programs.h"
#include "core/base/signals.h"

namespace starling::actors::script {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kSocketOfChild = 3, kLifelineOfChild = 4;
constexpr std::size_t kFilesMax = 2;
constexpr int kOutOfMemory = 12;  // exit status, as in child.py

Error no_process(const char* what) {
  return Error(Code::kUnavailable,
               std::string("no process for the script, ") + what + ": " + std::strerror(errno));
}

// Fds closes its files on return, and numbers them above those that the child uses itself.
class Fds {
 public:
  ~Fds() {
    for (const int fd : all_)
      if (fd >= 0) ::close(fd);
  }
  void take(int fd) {
    all_.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, kLifelineOfChild + 1));
    ::close(fd);
  }
  bool good() const {
    for (const int fd : all_)
      if (fd < 0) return false;
    return true;
  }
  int at(std::size_t i) const { return all_[i]; }
  int keep(std::size_t i) { return std::exchange(all_[i], -1); }

 private:
  std::vector<int> all_;
};

// Sets what would change a bit from one process to the next: threads, and the instructions
// that a library chooses. MKL_CBWR: else MKL's first calls may race for its choice.
std::vector<std::string> environment_of_script(const std::string& isa, const std::string& gpu) {
  std::map<std::string, std::string> values;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const auto equals = entry.find('=');
    if (equals != std::string::npos) values[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  constexpr std::pair<const char*, const char*> kFixed[] = {{"OMP_NUM_THREADS", "1"},
                                                            {"MKL_NUM_THREADS", "1"},
                                                            {"OPENBLAS_NUM_THREADS", "1"},
                                                            {"NUMEXPR_NUM_THREADS", "1"},
                                                            {"TOKENIZERS_PARALLELISM", "0"},
                                                            {"PYTHONHASHSEED", "0"},
                                                            {"MKL_CBWR", "AVX2"},
                                                            {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}};
  constexpr std::pair<const char*, const char*> kAvx2[] = {{"ATEN_CPU_CAPABILITY", "avx2"},
                                                           {"ONEDNN_MAX_CPU_ISA", "AVX2"}};
  for (const auto& [name, value] : kFixed) values.insert_or_assign(name, value);
  for (const auto& [name, value] : kAvx2) {
    values.erase(name);
    if (isa == "avx2") values.emplace(name, value);
  }
  if (!gpu.empty()) values.insert_or_assign("CUDA_VISIBLE_DEVICES", gpu);
  std::vector<std::string> entries;
  entries.reserve(values.size());
  for (const auto& [name, value] : values) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Places in the Fds that open_ends() has filled: both ends of a process's socket and of its lifeline.
enum : std::size_t { kSocket, kSocketThere, kLifelineThere, kLifeline };

Result<> open_ends(Fds& fds) {
  std::array<int, 2> socket{}, lifeline{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socket.data()) != 0)
    return no_process("socketpair");
  fds.take(socket[0]);
  fds.take(socket[1]);
  if (::pipe2(lifeline.data(), O_CLOEXEC) != 0) return no_process("pipe");
  fds.take(lifeline[0]);
  fds.take(lifeline[1]);
  if (!fds.good()) return no_process("descriptors");
  return ok();
}

// Reaps forks of the script in the group: as orphans they are children of this process now
// (start_warm()). They were killed and take a moment to end.
void reap_group(pid_t group) {
  constexpr int kTries = 200;  // a second
  for (int i = 0; i < kTries; ++i) {
    const pid_t found = ::waitpid(-group, nullptr, WNOHANG);
    if (found < 0 && errno != EINTR) return;  // none is left
    if (found == 0) ::poll(nullptr, 0, 5);
  }
}

}  // namespace

Result<std::unique_ptr<PythonChild>> PythonChild::start(const std::string& script,
                                                        const std::string& isa,
                                                        const std::string& gpu) {
  return spawned({script}, isa, gpu);
}

Result<std::unique_ptr<PythonChild>> PythonChild::start_warm(const std::string& script,
                                                             const std::string& isa,
                                                             const std::string& gpu) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return no_process("prctl");
  return spawned({"--warm", script}, isa, gpu);
}

Result<std::unique_ptr<PythonChild>> PythonChild::forked(PythonChild& warm, ByteView hello,
                                                         milliseconds patience) {
  Fds fds;
  STARLING_TRY(open_ends(fds));
  const std::array<int, 2> files{fds.at(kSocketThere), fds.at(kLifelineThere)};
  STARLING_TRY(reply, script::ask(warm, hello, files, patience));
  ByteReader reader(reply);
  const auto pid = reader.get<std::uint32_t>();
  if (!reader.good())
    return Error(Code::kUnavailable, "the process of the imports answered with what is no reply");
  if (pid == 0) return std::unique_ptr<PythonChild>();
  return std::unique_ptr<PythonChild>(
      new PythonChild(static_cast<pid_t>(pid), fds.keep(kSocket), fds.keep(kLifeline)));
}

Result<std::unique_ptr<PythonChild>> PythonChild::spawned(std::vector<std::string> last,
                                                          const std::string& isa,
                                                          const std::string& gpu) {
  Fds fds;
  STARLING_TRY(open_ends(fds));

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, fds.at(kSocketThere), kSocketOfChild);
  ::posix_spawn_file_actions_adddup2(&actions, fds.at(kLifelineThere), kLifelineOfChild);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  // The child gets signals as any program expects them: this process blocks and ignores some.
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGTERM, SIGINT, SIGIO, SIGCHLD})
    ::sigaddset(&defaults, signal);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::string python = python_program();
  std::vector<std::string> arguments = {python, "-u", "-m", "starling"};
  arguments.insert(arguments.end(), last.begin(), last.end());
  std::vector<std::string> entries = environment_of_script(isa, gpu);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, python.c_str(), &actions, &attributes,
                                   pointers(arguments).data(), pointers(entries).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    errno = error;
    return no_process(python.c_str());
  }
  return std::unique_ptr<PythonChild>(new PythonChild(pid, fds.keep(kSocket), fds.keep(kLifeline)));
}

PythonChild::PythonChild(pid_t pid, int socket, int lifeline)
    : pid_(pid),
      socket_(socket),
      lifeline_(lifeline),
      end_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}  // glibc has it from 2.36 on

PythonChild::~PythonChild() {
  ::kill(-pid_, SIGKILL);
  if (!reaped_) {
    ::kill(pid_, SIGKILL);  // the child may not have a group of its own yet
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  reap_group(pid_);
  ::close(socket_);
  ::close(lifeline_);
  if (end_ >= 0) ::close(end_);
}

// Says how the child ended: its end of the socket is closed, which a living process can do, too.
Error PythonChild::ended() {
  constexpr int kTries = 200;  // a second: a process closes its files before it can be waited for
  int status = 0;
  pid_t found = 0;
  for (int i = 0; i < kTries && found == 0 && !reaped_; ++i) {
    found = ::waitpid(pid_, &status, WNOHANG);
    if (found == 0) ::poll(nullptr, 0, 5);
  }
  reaped_ = reaped_ || found == pid_;
  if (found != pid_) return Error(Code::kUnavailable, "the script's process closed its connection");
  if (WIFSIGNALED(status))
    return Error(Code::kUnavailable,
                 "the script's process was ended by " + signal_name(WTERMSIG(status)));
  if (WEXITSTATUS(status) == kOutOfMemory)
    return Error(Code::kUnavailable, "the script's process ran out of memory");
  return Error(Code::kUnavailable,
               "the script's process ended with status " + std::to_string(WEXITSTATUS(status)));
}

Result<> PythonChild::wait(short events, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    std::array<pollfd, 2> polls{pollfd{socket_, events, 0}, pollfd{end_, POLLIN, 0}};
    const int ready = ::poll(polls.data(), polls.size(), left < 0 ? 0 : static_cast<int>(left));
    if (ready > 0 && polls[0].revents != 0) return ok();  // what it said before its end counts
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ended();
    if (left <= 0) return Error(Code::kUnavailable, "the script's process did not answer in time");
  }
}

Result<> PythonChild::send(ByteView request, std::span<const int> files, Clock::time_point until) {
  STARLING_CHECK(files.size() <= kFilesMax);
  ByteWriter frame(request.size() + 2 * sizeof(std::uint32_t));
  frame.put(static_cast<std::uint32_t>(request.size()));
  frame.put(++asked_);
  frame.put_bytes(request);
  const Bytes bytes = std::move(frame).take();
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    iovec part{const_cast<std::uint8_t*>(bytes.data()) + sent, bytes.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesMax * sizeof(int))> control{};
    if (sent == 0 && !files.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(files.size_bytes());
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(files.size_bytes());
      std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
    }
    const ssize_t n = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      STARLING_TRY(wait(POLLOUT, until));
    } else if (errno != EINTR) {
      return ended();
    }
  }
  return ok();
}

Result<> PythonChild::receive(std::span<std::uint8_t> bytes, Clock::time_point until) {
  while (!bytes.empty()) {
    STARLING_TRY(wait(POLLIN, until));
    const ssize_t n = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n == 0) return ended();
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return ended();
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return ok();
}

Result<Bytes> PythonChild::ask(ByteView request, std::span<const int> files,
                               milliseconds patience) {
  const auto until = Clock::now() + patience;
  STARLING_TRY(send(request, files, until));
  std::uint32_t head[2]{};
  STARLING_TRY(receive({reinterpret_cast<std::uint8_t*>(head), sizeof head}, until));
  const auto [length, number] = head;
  if (length > kReplyMax)
    return Error(Code::kUnavailable, "the script's process answered with what is no frame");
  if (number != asked_)
    return Error(Code::kUnavailable, "the script's process answered request " +
                                         std::to_string(number) + " when asked request " +
                                         std::to_string(asked_));
  Bytes reply(length);
  STARLING_TRY(receive(reply, until));
  return reply;
}

}  // namespace starling::actors::script
