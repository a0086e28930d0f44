#include "tools/starling/cut_weights.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <tuple>

#include "tools/starling/exit.h"

namespace starling::tools {
namespace {

// What a handler of SIGBUS says, and whom: made before, as it may call nothing that allocates.
struct CutWeights {
  actors::SharedLife* shared = nullptr;
  std::string line, reason;
};
CutWeights cut_weights;  // a handler is given nothing

}  // namespace

void end_where_weights_are_cut(actors::SharedLife& shared, const std::string& weights) {
  cut_weights.reason = "the weights were cut while they were in use; reading " + weights;
  cut_weights.line = "starling: " + cut_weights.reason + "\n";
  cut_weights.shared = &shared;
  struct sigaction action {};
  action.sa_handler = [](int) {
    cut_weights.reason.copy(cut_weights.shared->reason.data(),
                            cut_weights.shared->reason.size() - 1);
    cut_weights.shared->exit_code = static_cast<std::uint8_t>(exit_code(Code::kBadInput));
    // Where nobody reads the line, the guard has the reason.
    std::ignore = ::write(STDERR_FILENO, cut_weights.line.data(), cut_weights.line.size());
    ::_exit(exit_code(Code::kBadInput));
  };
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace starling::tools
