// `starling version` says what identifies this Starling, for a report to others.

#include <capnp/common.h>
#include <sodium.h>
#include <zmq.h>

#include <caf/config.hpp>
#include <cstdio>

#include "kernels/cpu/table.h"
#include "kernels/device/plugin.h"
#include "tools/starling/commands.h"

namespace starling::tools {

int version() {
  int major = 0, minor = 0, patch = 0;
  zmq_version(&major, &minor, &patch);
  const auto table = kernels::kernel_table("auto");
  std::printf("starling %s\n", STARLING_VERSION);
  std::printf("compiler   %s\n", STARLING_COMPILER);
  std::printf("libraries  CAF %d.%d.%d, ZeroMQ %d.%d.%d, Cap'n Proto %d.%d.%d, libsodium %s\n",
              CAF_VERSION / 10000, CAF_VERSION / 100 % 100, CAF_VERSION % 100, major, minor, patch,
              CAPNP_VERSION / 1000000, CAPNP_VERSION / 1000 % 1000, CAPNP_VERSION % 1000,
              sodium_version_string());
  std::printf("isa        %s\n", table ? table.value()->isa : "none that is supported");
  const auto plugin = kernels::open_plugin_library();
  std::printf("gpu        %s\n",
              plugin ? plugin.value()->facts().c_str() : plugin.error().text().c_str());
  return 0;
}

}  // namespace starling::tools
