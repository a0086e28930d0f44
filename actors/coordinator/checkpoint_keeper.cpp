#include "actors/coordinator/checkpoint_keeper.h"

#include <caf/all.hpp>
#include <memory>

#include "actors/coordinator/keeper.h"
#include "core/base/thread_name.h"

namespace starling::actors {

caf::actor spawn_checkpoint_keeper(caf::actor_system& system, const Job& job, const JobId& run,
                                   const Layout& layout) {
  const auto keeper = std::make_shared<Keeper>(job, run, layout, open_storage(job.checkpoint.dir));
  using namespace elastic::coordinator_command;
  return system.spawn<caf::detached>([keeper](caf::event_based_actor* self) -> caf::behavior {
    name_thread("keeper");
    return {
        [keeper](std::uint64_t term, const StoreCheckpoint& order) {
          return keeper->store(term, order);
        },
        [keeper](std::uint64_t term, const TidyCheckpoints& order) {
          return keeper->tidy(term, order);
        },
        [self](stop_atom) { self->quit(); },
    };
  });
}

}  // namespace starling::actors
