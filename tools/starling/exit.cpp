#include "tools/starling/exit.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "core/base/exception.h"
#include "core/base/exit.h"
#include "core/base/text.h"
#include "core/observe/line_format.h"

namespace starling::tools {
namespace {

int also_into = -1;  // set once, before there are threads

}  // namespace

int exit_code(Code code) {
  switch (code) {
    case Code::kBadInput:
      return kExitBadInput;
    case Code::kUnavailable:
    case Code::kPeerLost:
      return kExitAlone;
    case Code::kStateLost:
      return kExitStateLost;
    case Code::kInternal:
    case Code::kStale:
    case Code::kCorrupt:
      return kExitInternal;
  }
  return kExitInternal;
}

int fail(int code, const std::string& said) {
  // What others wrote moves no cursor and changes no colour.
  std::string text;
  for (const char c : said) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
    text += control ? "\\x" + hex(ByteView(&byte, 1)) : std::string(1, c);
  }
  write_line(LogLevel::kError, "starling: ", text);
  if (also_into < 0) return code;
  const std::string line = std::to_string(code) + " " + text + "\n";
  [[maybe_unused]] const auto written = ::write(also_into, line.data(), line.size());
  return code;
}

void fail_into(int fd) {
  also_into = fd;
}

int end_of_output(int code) {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int error = errno;  // 0: of an earlier write, whose error is not known any more
  pollfd polled{STDOUT_FILENO, POLLOUT, 0};
  const bool reader_gone = ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLERR) != 0;
  if (written || error == EPIPE || reader_gone || code > kExitRefuted) return code;
  fail(kExitBadInput, std::string("cannot write to standard output") +
                          (error != 0 ? std::string(": ") + std::strerror(error) : ""));
  return code == kExitDone ? kExitBadInput : code;
}

void end_with_a_line_on_exceptions() {
  std::set_terminate([] {
    const char* what = "ended by std::terminate";
    try {
      if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
    } catch (const std::bad_alloc& none) {
      write_line(LogLevel::kError, "starling: ", no_memory_text(none));
      std::_Exit(kExitAlone);
    } catch (const std::exception& thrown) {
      write_line(LogLevel::kError,
                 "starling: ", std::string("internal error: exception ") + thrown.what());
      std::_Exit(kExitInternal);
    } catch (...) {
      what = "internal error: exception of an unknown kind";
    }
    write_line(LogLevel::kError, "starling: ", what);
    std::_Exit(kExitInternal);
  });
}

int fail(const Error& error) {
  return fail(exit_code(error.code()), error.text());
}

}  // namespace starling::tools
