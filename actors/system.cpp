#include "actors/system.h"

#include <caf/atom.hpp>

namespace starling::actors {

caf::actor_system_config make_system_config() {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::int64_t{2});
  return config;
}

}  // namespace starling::actors
