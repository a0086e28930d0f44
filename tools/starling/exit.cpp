#include "tools/starling/exit.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "core/base/exit.h"

namespace starling::tools {

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

int fail(int code, const std::string& text) {
  std::fprintf(stderr, "starling: %s\n", text.c_str());
  return code;
}

void end_with_a_line_on_exceptions() {
  std::set_terminate([] {
    int code = 5;
    const char* what = "ended by std::terminate";
    try {
      if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      code = 3;
      what = "out of memory";
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "starling: internal error: exception %s\n", thrown.what());
      std::_Exit(code);
    } catch (...) {
      what = "internal error: exception of an unknown kind";
    }
    std::fprintf(stderr, "starling: %s\n", what);
    std::_Exit(code);
  });
}

int fail(const Error& error) {
  return fail(exit_code(error.code()), error.text());
}

}  // namespace starling::tools
