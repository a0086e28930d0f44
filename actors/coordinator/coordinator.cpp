#include "actors/coordinator/coordinator.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "actors/coordinator/checkpoint_keeper.h"
#include "core/base/check.h"
#include "core/base/mac.h"
#include "core/formats/raft_log.h"
#include "elastic/membership/coordinator.h"

namespace starling::actors {
namespace {

using namespace elastic::coordinator_command;
namespace event = elastic::coordinator_event;

constexpr std::chrono::milliseconds kTick{10}, kTimeAtOnce{100};

template <class T>
T random_value() {
  T value{};
  random_bytes({reinterpret_cast<std::uint8_t*>(&value), sizeof value});
  return value;
}

// What it has decided may not be on disk, so this process says nothing any more: it neither answers
// nor cleans up. The other coordinators go on.
[[noreturn]] void end_unsaved(std::uint32_t self, const Error& error) {
  std::fprintf(stderr, "starling: coordinator %u ends, it cannot write its log: %s\n", self,
               error.text().c_str());
  std::fflush(stderr);
  ::_exit(3);
}

// Segments of state (weights and two moments) from one source in one step: a sixteenth of all,
// about a tenth of what it sends in a step anyway. At least 4 MiB, as every step of moving costs;
// at most 32 MiB, which a frame holds.
std::uint32_t move_budget(const Layout& layout) {
  const std::uint64_t bytes = std::uint64_t{layout.segment_blocks()} * kBlock * 12;
  const std::uint64_t wanted = layout.segments() / 16;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(
      1, std::clamp(wanted, (std::uint64_t{4} << 20) / bytes, (std::uint64_t{32} << 20) / bytes)));
}

elastic::LeaderConfig leader_config(const CoordinatorOptions& options) {
  const Job& job = options.job;
  const Layout& layout = *options.layout;
  elastic::LeaderConfig config;
  config.micro_batches = job.micro_batches;
  config.steps = job.steps;
  config.segments = layout.segments();
  config.bucket_segments = layout.bucket(0).count;
  config.replicas = job.replicas;
  config.wanted_workers = options.wanted_workers;
  config.move_budget = move_budget(layout);
  config.lease_ms = job.lease_ms;
  config.report_deadline_ms = job.lease_ms;
  config.start_timeout_ms = job.start_timeout_ms;
  config.state_timeout_ms = job.state_timeout_ms;
  config.checkpoint_every = job.checkpoint.every;
  config.checkpoint_keep = job.checkpoint.keep;
  config.checkpoint_dir = job.checkpoint.dir;
  config.digest_every = job.digest_every;
  config.job_hash = job_hash(job);
  for (SegmentId s = 0; s < layout.segments(); ++s)
    config.tensors.push_back(layout.tensors()[layout.tensor_of(layout.first_block(s))].spec.name);
  return config;
}

class Coordinator : public caf::event_based_actor {
 public:
  Coordinator(caf::actor_config& actor, CoordinatorOptions options,
              std::shared_ptr<RaftLog> raft_log)
      : event_based_actor(actor),
        options_(std::move(options)),
        raft_log_(std::move(raft_log)),
        log_(options_.log, {{"coordinator", options_.self}}),
        looked_(std::chrono::steady_clock::now()) {
    elastic::CoordinatorConfig config;
    config.raft.self = options_.self;
    config.raft.size = static_cast<std::uint32_t>(options_.group.size());
    // A busy machine may keep a process from its core for 100 ms, and one sync of the log may take
    // 10 ms; an election that nobody needs is harmless but noisy.
    config.raft.election_ms = 300;
    config.raft.heartbeat_ms = 60;
    config.raft.seed = random_value<std::uint64_t>();
    config.leader = leader_config(options_);
    config.job = {options_.job_id, config.leader.job_hash, options_.checkpoints};
    config.secret = random_value<EpochKey>();
    const RaftTerm& term = raft_log_->term();
    machine_ = std::make_unique<elastic::Coordinator>(
        std::move(config), elastic::HardState{term.term, term.vote}, raft_log_->take_entries());
  }

  caf::behavior make_behavior() override {
    set_exit_handler([this](caf::exit_msg& message) { shut_down(message.reason); });
    return {
        [this](std::shared_ptr<Gateway> gateway) {
          gateway_ = std::move(gateway);
          send(this, tick_atom_v);
        },
        [this](tick_atom) {
          if (!machine_) return;
          feed_time();
          delayed_send(this, kTick, tick_atom_v);
        },
        [this](const Arrival& arrival) {
          // The gateway's thread may be faster than the message that brings the gateway; whoever
          // wants an answer asks again.
          if (!machine_ || !gateway_) return;
          feed_time();
          on_arrival(arrival);
        },
        [this](const event::Stored& stored) {
          if (!machine_) return;
          feed_time();
          handle(stored);
        },
        [this](follow_atom, const caf::actor& follower) {
          followers_.push_back(follower);
          if (leads_) send(follower, leads_);
        },
        [this](stop_atom) { shut_down(caf::exit_reason::normal); },
    };
  }

 private:
  // Whoever was held up hears what waits for it before it finds that nobody has said anything: at
  // most kTimeAtOnce passes between two looks at the clock. No decision rests on the difference.
  void feed_time() {
    const auto now = std::chrono::steady_clock::now();
    passed_ += std::min<std::chrono::nanoseconds>(now - looked_, kTimeAtOnce);
    looked_ = now;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(passed_).count();
    handle(event::Tick{1 + static_cast<std::uint64_t>(ms)});
  }

  void on_arrival(const Arrival& arrival) {
    if (const auto* raft = std::get_if<RaftMessage>(&arrival.body)) {
      for (std::uint32_t i = 0; i < options_.group.size(); ++i)
        if (options_.group[i].name == arrival.sender) handle(event::RaftArrived{i, *raft});
      return;
    }
    if (arrival.server) return;  // another coordinator's answer
    handle(event::WorkerSaid{arrival.from, arrival.sender, arrival.body});
  }

  void handle(const elastic::CoordinatorEvent& e) {
    for (auto& command : machine_->on(e)) std::visit([this](auto& c) { execute(c); }, command);
  }

  void execute(Persist& c) {
    std::optional<RaftTerm> term;
    if (c.hard_state) term = RaftTerm{c.hard_state->term, c.hard_state->vote};
    if (auto saved = raft_log_->save(term, c.append); !saved)
      end_unsaved(options_.self, saved.error());
    handle(event::Persisted{});
  }

  void execute(SendRaft& c) {
    // Servers of our gateway are the others, in order.
    const std::uint32_t to = c.message.to;
    gateway_->send_to_server(to < options_.self ? to : to - 1, std::move(c.message));
  }

  void execute(SendWorker& c) { gateway_->send_to(c.to, std::move(c.body)); }

  void execute(StoreCheckpoint& c) { send(keeper(), std::move(c)); }
  void execute(TidyCheckpoints& c) { send(keeper(), std::move(c)); }

  const caf::actor& keeper() {
    if (!keeper_) keeper_ = spawn_checkpoint_keeper(home_system(), options_.job, *options_.layout);
    return keeper_;
  }

  void execute(elastic::Observation& c) {
    const auto seen = std::make_shared<const elastic::Observation>(std::move(c));
    if (seen->kind == elastic::Observation::Kind::kWarning) log_.warn(seen->what);
    if (seen->kind == elastic::Observation::Kind::kLeader) leads_ = seen;
    for (const auto& follower : followers_) send(follower, seen);
  }

  void shut_down(caf::error reason) {
    machine_.reset();
    gateway_.reset();
    if (keeper_) send_exit(keeper_, caf::exit_reason::user_shutdown);
    keeper_ = nullptr;
    quit(std::move(reason));
  }

  const CoordinatorOptions options_;
  const std::shared_ptr<RaftLog> raft_log_;
  const Log log_;
  std::chrono::steady_clock::time_point looked_;  // at the clock
  std::chrono::nanoseconds passed_{};             // as the machine knows it
  std::shared_ptr<Gateway> gateway_;
  std::unique_ptr<elastic::Coordinator> machine_;
  std::vector<caf::actor> followers_;
  Observed leads_;     // what was told of its last lead; null: it has not led
  caf::actor keeper_;  // null: there was nothing to keep yet
};

}  // namespace

Result<CoordinatorHandle> spawn_coordinator(caf::actor_system& system, CoordinatorOptions options) {
  const KeyPair key = options.key;
  if (options.group.empty()) options.group.push_back({key.name, "", key.public_key});
  STARLING_CHECK(options.self < options.group.size());
  STARLING_TRY(raft_log, RaftLog::open(options.state_dir, options.job_id, options.self));
  GatewayOptions gateway;
  gateway.job = options.job_id;
  gateway.self = Incarnation{0, random_value<std::uint64_t>() | 1};
  gateway.key = options.key;
  gateway.listen = GatewayOptions::Listen{options.address, options.allowed};
  for (std::uint32_t i = 0; i < options.group.size(); ++i)
    if (i != options.self) gateway.servers.push_back(options.group[i]);

  auto actor = system.spawn<Coordinator, caf::detached>(
      std::move(options), std::make_shared<RaftLog>(std::move(raft_log)));
  auto started = Gateway::start(
      std::move(gateway), [actor](Arrival arrival) { caf::anon_send(actor, std::move(arrival)); });
  if (!started) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    return std::move(started).error();
  }
  std::shared_ptr<Gateway> opened = std::move(started).value();
  const std::uint16_t port = opened->port();
  caf::anon_send(actor, std::move(opened));
  const std::string address = "tcp://127.0.0.1:" + std::to_string(port);
  return CoordinatorHandle{actor, port, {key.name, address, key.public_key}};
}

}  // namespace starling::actors
