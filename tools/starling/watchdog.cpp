#include "tools/starling/watchdog.h"

#include <algorithm>
#include <caf/all.hpp>
#include <chrono>
#include <string>

#include "actors/messages.h"
#include "core/base/thread_name.h"

namespace starling::tools {

std::string service_status(Version version, std::uint64_t steps, std::uint32_t workers) {
  return "step " + std::to_string(version) + " of " + std::to_string(steps) + ", " +
         std::to_string(workers) + (workers == 1 ? " worker" : " workers");
}

namespace {

// Three notices in the time: one may be late.
std::chrono::microseconds between_notices(const ServiceManager& manager) {
  return std::max<std::chrono::microseconds>(*manager.watchdog() / 3, std::chrono::milliseconds(1));
}

}  // namespace

AliveMeanwhile::AliveMeanwhile(const ServiceManager& manager) {
  if (!manager.waits() || !manager.watchdog()) return;
  thread_ = std::thread([this, manager] {
    name_thread("watchdog");
    const MutexLock lock(mutex_);
    do {
      manager.alive();
      const auto next = std::chrono::steady_clock::now() + between_notices(manager);
      while (!over_ && over_said_.wait_until(mutex_, next)) continue;
    } while (!over_);
  });
}

AliveMeanwhile::~AliveMeanwhile() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  over_said_.notify_one();
  thread_.join();
}

void keep_telling(caf::actor_system& system, const caf::actor& watched,
                  const ServiceManager& manager) {
  if (!manager.waits() || !manager.watchdog()) return;
  const auto between = between_notices(manager);
  system.spawn([=](caf::event_based_actor* self) -> caf::behavior {
    self->monitor(watched);
    self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
    self->send(self, actors::tick_atom_v);
    return {[=](actors::tick_atom) {
      // Every actor of CAF answers this question, between two messages of its own.
      self->request(watched, caf::infinite, caf::sys_atom::value, caf::get_atom::value,
                    std::string("info"))
          .then(
              [=](caf::ok_atom, const std::string&, const caf::strong_actor_ptr&,
                  const std::string&) {
                manager.alive();
                self->delayed_send(self, between, actors::tick_atom_v);
              },
              [self](const caf::error&) { self->quit(); });
    }};
  });
}

}  // namespace starling::tools
