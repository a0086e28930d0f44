// The coordinator of `starling run --coordinators 1`: an actor inside the launcher.

#include <filesystem>
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "actors/system.h"
#include "tools/starling/coordinators.h"
#include "tools/starling/group.h"

namespace starling::tools {
namespace {

constexpr std::size_t kBatch = 256;  // happenings taken at once, so that signals are looked after

class Embedded : public Coordinators {
 public:
  Embedded(EventWriter& events, bool ledger)
      : events_(events),
        ledger_(ledger),
        config_(actors::make_system_config()),
        system_(std::make_unique<caf::actor_system>(config_)),
        self_(std::make_unique<caf::scoped_actor>(*system_)) {}

  ~Embedded() override {
    (*self_)->send(coordinator_, actors::stop_atom_v);
    coordinator_ = nullptr;
  }

  Result<> start(const CoordinatorsOptions& options) {
    actors::CoordinatorOptions coordinator;
    coordinator.job = options.job;
    coordinator.layout = options.layout;
    coordinator.job_id = job_id_of(*options.ring);
    coordinator.address = "tcp://" + options.host + ":0";
    coordinator.key = *options.ring->find("coordinator-0");
    coordinator.group = {{coordinator.key.name, "", coordinator.key.public_key}};
    coordinator.allowed = options.ring->allow_list();
    coordinator.state_dir = (std::filesystem::path(options.folder) / "coordinator-0").string();
    coordinator.wanted_workers = options.workers;
    coordinator.checkpoints = options.checkpoints;
    STARLING_TRY(level, log_level(options.log));
    coordinator.log = level;
    STARLING_TRY(handle, actors::spawn_coordinator(*system_, std::move(coordinator)));
    coordinator_ = handle.actor;
    address_ = "tcp://" + options.host + ":" + std::to_string(handle.port);
    (*self_)->send(coordinator_, actors::follow_atom_v, caf::actor_cast<caf::actor>(*self_));
    return ok();
  }

  const std::string& address() const override { return address_; }

  Result<std::vector<Happening>> wait(std::chrono::milliseconds time) override {
    std::vector<Happening> happenings;
    Result<> written = ok();
    const auto take = [&](const actors::Observed& seen) {
      written = write_event(events_, *seen, ledger_);
      happenings.push_back(happening_of(*seen));
    };
    bool more = true;
    while (more && written && happenings.size() < kBatch) {
      const auto patience = happenings.empty() ? time : std::chrono::milliseconds(0);
      (*self_)->receive(
          take, caf::after(patience) >> [&] { more = false; });
    }
    if (!written) return std::move(written).error();
    return happenings;
  }

  Result<bool> child_ended(pid_t) override { return false; }

 private:
  EventWriter& events_;
  const bool ledger_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<caf::scoped_actor> self_;
  caf::actor coordinator_;
  std::string address_;
};

}  // namespace

Result<std::unique_ptr<Coordinators>> start_embedded(const CoordinatorsOptions& options,
                                                     EventWriter& events) {
  auto embedded = std::make_unique<Embedded>(events, options.job.ledger_events);
  STARLING_TRY(embedded->start(options));
  return std::unique_ptr<Coordinators>(std::move(embedded));
}

}  // namespace starling::tools
