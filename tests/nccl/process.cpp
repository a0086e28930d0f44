#include "tests/nccl/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace starling::collectives {
namespace {

constexpr int kPatienceMs = 120'000;

std::pair<int, int> make_pipe() {
  int ends[2];
  STARLING_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  return {ends[0], ends[1]};
}

}  // namespace

Process::Process(const ProcessOptions& options) {
  const auto [in_read, in_write] = make_pipe();
  const auto [out_read, out_write] = make_pipe();
  const auto [errors_read, errors_write] = make_pipe();
  std::vector<std::string> words = options.command;
  if (words.empty()) {
    words = {STARLING_NCCL_MEMBER};
    std::istringstream limits(options.limits);
    for (std::string word; limits >> word;) words.push_back(word);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // A process of another command has the orders that this process was given.
  if (options.command.empty()) ::setenv("FAKE_NCCL", options.orders.c_str(), 1);
  pid_ = ::fork();
  STARLING_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(in_read, 0);
    ::dup2(out_write, 1);
    ::dup2(errors_write, 2);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  if (options.command.empty()) ::unsetenv("FAKE_NCCL");
  for (const int end : {in_read, out_write, errors_write}) ::close(end);
  in_ = in_write;
  out_ = out_read;
  errors_ = errors_read;
}

Process::~Process() {
  if (pid_ != 0) kill();
  for (const int end : {in_, out_, errors_})
    if (end >= 0) ::close(end);
}

void Process::say(const std::string& line) {
  const std::string text = line + "\n";
  // Whoever has ended hears nothing.
  ::signal(SIGPIPE, SIG_IGN);
  [[maybe_unused]] const auto written = ::write(in_, text.data(), text.size());
}

std::string Process::hear() {
  for (;;) {
    if (const auto end = heard_.find('\n'); end != std::string::npos) {
      std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    pollfd file{out_, POLLIN, 0};
    if (::poll(&file, 1, kPatienceMs) <= 0) return "nothing";
    char piece[4096];
    const ssize_t n = ::read(out_, piece, sizeof piece);
    if (n <= 0) return "end";
    heard_.append(piece, static_cast<std::size_t>(n));
  }
}

void Process::kill() {
  ::kill(pid_, SIGKILL);
  status();
}

void Process::freeze() {
  ::kill(pid_, SIGSTOP);
}

int Process::end() {
  ::close(std::exchange(in_, -1));
  return status();
}

int Process::status() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  for (int raw = 0; pid_ != 0;) {
    const pid_t ended = ::waitpid(pid_, &raw, WNOHANG);
    STARLING_CHECK(ended >= 0);
    if (ended == pid_) {
      pid_ = 0;
      status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    } else if (std::chrono::steady_clock::now() > until) {
      kill();
      return status_ = kStays;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return status_;
}

std::string Process::complaints() {
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(errors_, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(n));
  return text;
}

}  // namespace starling::collectives
