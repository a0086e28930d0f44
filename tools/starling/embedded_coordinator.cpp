// This is the coordinator of `starling run --coordinators 1`: an actor inside the launcher.

#include <filesystem>
#include <optional>
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "actors/inbox.h"
#include "actors/system.h"
#include "core/base/exit.h"
#include "core/observe/anomalies.h"
#include "tools/starling/coordinators.h"
#include "tools/starling/group.h"
#include "tools/starling/key_watch.h"

namespace starling::tools {
namespace {

constexpr std::size_t kBatch = 256;  // events taken at once; then signals get their turn

class Embedded : public Coordinators {
  using Inbox = actors::ThreadInbox<actors::Observed, actors::CoordinatorOver>;

 public:
  Embedded(const Job& job, EventWriter& events)
      : events_(events),
        anomalies_(job),
        config_(actors::make_system_config()),
        system_(std::make_unique<caf::actor_system>(config_)),
        inbox_(std::make_unique<Inbox>(*system_)) {}

  ~Embedded() override {
    caf::anon_send(coordinator_, actors::stop_atom_v);
    coordinator_ = nullptr;
  }

  Result<> start(const CoordinatorsOptions& options) {
    actors::CoordinatorOptions coordinator;
    coordinator.job = options.job;
    coordinator.layout = options.layout;
    coordinator.job_id = job_id_of(*options.ring);
    STARLING_TRY(listens, address_to_listen(to_string(Address{options.host, options.port})));
    coordinator.address = std::move(listens);
    coordinator.key = *options.ring->find("coordinator-0");
    coordinator.group = {{coordinator.key.name, "", coordinator.key.public_key}};
    coordinator.allowed = options.ring->allow_list();
    coordinator.state_dir = (std::filesystem::path(options.folder) / "coordinator-0").string();
    coordinator.first_start = true;
    coordinator.wanted_workers = options.workers;
    coordinator.checkpoints = options.checkpoints;
    STARLING_TRY(level, log_level(options.log));
    coordinator.log = level;
    STARLING_TRY(handle, actors::spawn_coordinator(*system_, std::move(coordinator)));
    coordinator_ = handle.actor;
    address_ = "tcp://" + to_string(Address{options.host, handle.port});
    keys_.emplace(options.keys, "coordinator-0", job_id_of(*options.ring));
    caf::anon_send(coordinator_, actors::follow_atom_v, inbox_->address());
    return ok();
  }

  const std::string& address() const override { return address_; }

  Result<std::vector<Event>> wait(std::chrono::milliseconds time) override {
    std::vector<Event> happened;
    if (auto list = keys_->changed()) {
      if (*list) {
        caf::anon_send(coordinator_, actors::KeysChanged{std::move(*list).value()});
      } else {
        const event::Warning warning{list->error().text()};
        STARLING_TRY(events_.write(warning));
        happened.push_back(warning);
      }
    }
    Result<bool> written = false;
    std::optional<actors::CoordinatorOver> over;
    const auto take = [&](const actors::Observed& seen) {
      written = events_.write(seen->event);
      if (!written || !written.value()) return;
      happened.push_back(seen->event);
      if (const auto warning = anomalies_.take(seen->event)) {
        written = events_.write(*warning);
        happened.push_back(*warning);
      }
    };
    for (std::size_t taken = 0; written && !over && taken < kBatch; ++taken) {
      const auto word = inbox_->take(taken == 0 ? time : std::chrono::milliseconds(0));
      if (!word) break;
      if (const auto* seen = std::get_if<actors::Observed>(&*word)) take(*seen);
      if (const auto* gone = std::get_if<actors::CoordinatorOver>(&*word)) over = *gone;
    }
    if (!written) return std::move(written).error();
    if (auto news = events_.news()) happened.push_back(event::Warning{*news});
    if (over) {
      STARLING_TRY(events_.write(event::Warning{over->reason}));
      return Error(over->code == kExitBadInput ? Code::kBadInput : Code::kUnavailable,
                   over->reason);
    }
    return happened;
  }

  void ask_checkpoint() override { caf::anon_send(coordinator_, actors::ask_checkpoint_atom_v); }

  void end_run(int signal) override { caf::anon_send(coordinator_, end_of_run(signal)); }

  Result<bool> child_ended(pid_t) override { return false; }

 private:
  EventWriter& events_;
  Anomalies anomalies_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<Inbox> inbox_;
  caf::actor coordinator_;
  std::string address_;
  std::optional<KeyWatch> keys_;
};

}  // namespace

Result<std::unique_ptr<Coordinators>> start_embedded(const CoordinatorsOptions& options,
                                                     EventWriter& events) {
  auto embedded = std::make_unique<Embedded>(options.job, events);
  STARLING_TRY(embedded->start(options));
  return std::unique_ptr<Coordinators>(std::move(embedded));
}

}  // namespace starling::tools
