#pragma once
// What a service manager hears of a coordinator or a worker: how far it is, and that it still answers.

#include <caf/actor.hpp>
#include <cstdint>
#include <string>
#include <thread>

#include "core/base/environment.h"
#include "core/base/ids.h"
#include "core/base/mutex.h"
#include "tools/processes/service_manager.h"

namespace starling::tools {

// The manager of the environment; none for a child of `starling run`, which is no service of its own.
inline ServiceManager manager_of(bool child) {
  return child ? ServiceManager("", {}) : ServiceManager::of(environment());
}

// Returns "step 12 of 2000, 3 workers": so many steps are done.
std::string service_status(Version version, std::uint64_t steps, std::uint32_t workers);

// Tells that the service is alive from its beginning to its end, by a thread of its own: while a worker waits for
// coordinators, loads and saves, it has no actor that could be asked, and all of that may take its time.
class AliveMeanwhile {
 public:
  explicit AliveMeanwhile(const ServiceManager& manager);
  ~AliveMeanwhile();

 private:
  Mutex mutex_;
  CondVar over_said_;
  bool over_ STARLING_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Tells `manager` that the service is alive each time that `watched` answers: an actor that hangs ends the notices,
// and the manager kills the service and starts it again. Ends with `watched`. Without a watchdog it does nothing.
void keep_telling(caf::actor_system& system, const caf::actor& watched,
                  const ServiceManager& manager);

}  // namespace starling::tools
