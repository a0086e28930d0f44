// A rank on the emulated device in a process of its own (serve.h):
//
//   nccl_member [CONNECT_MS ROUND_MS END_MS]

#include <cstdlib>

#include "kernels/device/emulated.h"
#include "tests/nccl/serve.h"

// A thread that hangs in the library is left behind on purpose.
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}
#endif

int main(int argc, char** argv) {
  using starling::collectives::MemberOptions;
  if (argc != 1 && argc != 4) return 2;
  const auto number = [&](int i) {
    return static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  MemberOptions options;
  if (argc == 4) {
    options.connect_ms = number(1);
    options.round_ms = number(2);
    options.end_ms = number(3);
  }
  starling::kernels::EmulatedDevice device;
  starling::collectives::serve(device, options);
}
