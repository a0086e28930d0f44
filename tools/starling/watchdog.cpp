#include "tools/starling/watchdog.h"

#include <chrono>
#include <string>

#include "actors/messages.h"

namespace starling::tools {

std::string service_status(Version version, std::uint64_t steps, std::uint32_t workers) {
  return "step " + std::to_string(version) + " of " + std::to_string(steps) + ", " +
         std::to_string(workers) + (workers == 1 ? " worker" : " workers");
}

void keep_telling(caf::actor_system& system, const caf::actor& watched,
                  const ServiceManager& manager) {
  if (!manager.waits() || !manager.watchdog()) return;
  // Three questions in the time: an answer may be late.
  const auto between = *manager.watchdog() / 3;
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
