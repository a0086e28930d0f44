#include "tools/starling/exit.h"

#include <cstdio>

namespace starling::tools {

int exit_code(Code code) {
  switch (code) {
    case Code::kBadInput:
      return 2;
    case Code::kUnavailable:
    case Code::kPeerLost:
      return 3;
    case Code::kStateLost:
      return 4;
    case Code::kInternal:
    case Code::kStale:
    case Code::kCorrupt:
      return 5;
  }
  return 5;
}

int fail(int code, const std::string& text) {
  std::fprintf(stderr, "starling: %s\n", text.c_str());
  return code;
}

int fail(const Error& error) {
  return fail(exit_code(error.code()), error.text());
}

}  // namespace starling::tools
