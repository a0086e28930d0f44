#include "actors/worker/worker.h"

#include <utility>

#include "actors/worker/archive.h"
#include "actors/worker/trainer.h"

namespace starling::actors {
namespace {

constexpr std::chrono::milliseconds kTick{10};

class Worker : public caf::event_based_actor {
 public:
  Worker(caf::actor_config& config, WorkerOptions options,
         std::shared_ptr<collectives::Listener> listener, caf::actor loader)
      : event_based_actor(config),
        options_(std::move(options)),
        listener_(std::move(listener)),
        loader_(std::move(loader)),
        log_(options_.log, {{"worker", options_.key.name}}) {}

  caf::behavior make_behavior() override {
    set_exit_handler([this](caf::exit_msg& message) { shut_down(message.reason); });
    return {
        [this](start_atom) { begin(); },
        [this](tick_atom) {
          drive([](Engine& engine) { engine.tick(); });
          if (engine_) delayed_send(this, kTick, tick_atom_v);
        },
        [this](const Arrival& arrival) {
          drive([&](Engine& engine) { engine.on_message(arrival.body); });
        },
        [this](MeshEvent& event) {
          drive([&](Engine& engine) { engine.on_mesh(std::move(event)); });
        },
        [this](const MicroBatchComputed& computed) {
          if (!computed.error.empty()) return finish({2, false, computed.error, std::nullopt});
          drive([&](Engine& engine) {
            engine.on_micro_batch(computed.version, computed.row, computed.took / options_.threads);
          });
        },
        [this](ShardDone& shard) {
          drive([&](Engine& engine) { engine.on_shard(std::move(shard)); });
        },
        [this](const LoadDone& loaded) {
          drive([&](Engine& engine) { engine.on_loaded(loaded); });
        },
        [this](const Notice& notice) { drive([&](Engine& engine) { engine.on_notice(notice); }); },
        [this](follow_atom, const caf::actor& follower) { followers_.push_back(follower); },
    };
  }

 private:
  void begin() {
    const caf::actor me = caf::actor_cast<caf::actor>(this);
    GatewayOptions gateway;
    gateway.job = options_.job_id;
    gateway.self = options_.self;
    gateway.key = options_.key;
    gateway.servers = options_.coordinators;
    auto started = Gateway::start(
        std::move(gateway), [me](Arrival arrival) { caf::anon_send(me, std::move(arrival)); });
    if (!started) return finish({2, false, started.error().text(), std::nullopt});
    gateway_ = std::move(started).value();

    EngineOptions engine;
    engine.setup = options_.setup;
    engine.job_id = options_.job_id;
    engine.phase = options_.phase;
    engine.times = options_.times;
    engine.join.who = options_.self;
    engine.join.name = options_.key.name;
    engine.join.host = options_.advertised_host.empty() ? options_.host : options_.advertised_host;
    engine.join.port = options_.advertised_port == 0 ? listener_->port() : options_.advertised_port;
    engine.join.failure_domain = options_.failure_domain;
    engine.join.job_hash = job_hash(options_.setup->job);
    engine.join.fingerprint = options_.setup->fingerprint;
    engine.join.fingerprint_text = options_.setup->fingerprint_text;
    engine.join.pid = options_.pid;
    EngineCalls calls;
    calls.to_coordinators = [this](const Message& body) { gateway_->broadcast_to_servers(body); };
    calls.compute = [this](ComputeOrder order) { this->send(trainer_, std::move(order)); };
    calls.post = [me](MeshEvent event) { caf::anon_send(me, std::move(event)); };
    calls.over = [this](const elastic::worker_command::Exit& exit) { over_ = exit; };
    calls.set_counter = [this](std::uint64_t counter) { gateway_->set_counter(counter); };
    calls.write_shard = [this](ShardOrder order) { this->send(archive(), std::move(order)); };
    calls.load = [this](LoadOrder order) { this->send(archive(), std::move(order)); };
    engine_ = std::make_shared<Engine>(std::move(engine), *listener_, std::move(calls), log_);

    TrainerOptions trainer;
    trainer.setup = options_.setup;
    trainer.threads = options_.threads;
    trainer.loader = loader_;
    trainer.engine = engine_;
    trainer.slowness = options_.slowness;
    trainer_ = spawn_trainer(home_system(), std::move(trainer), me);
    engine_->start();
    delayed_send(this, kTick, tick_atom_v);
  }

  const caf::actor& archive() {
    if (!archive_) archive_ = spawn_archive(home_system(), options_.setup);
    return archive_;
  }

  template <class Call>
  void drive(Call call) {
    if (!engine_) return;
    call(*engine_);
    if (over_) finish(*over_);
  }

  void finish(const elastic::worker_command::Exit& exit) {
    WorkerOver over;
    over.code = exit.code;
    over.fenced = exit.fenced;
    over.reason = exit.reason;
    over.told = exit.end.has_value();
    if (exit.end && exit.code == 0) {
      over.job_done = true;
      over.digest = exit.end->digest;
      over.loss = exit.end->loss;
      const auto parameters = engine_->parameters();
      over.parameters =
          std::make_shared<const std::vector<float>>(parameters.begin(), parameters.end());
    }
    for (const auto& follower : followers_) this->send(follower, over);
    shut_down(caf::exit_reason::normal);
  }

  // The last messages leave first; the engine goes when the last compute thread lets go of it.
  void shut_down(caf::error reason) {
    if (trainer_) this->send_exit(trainer_, caf::exit_reason::user_shutdown);
    trainer_ = nullptr;
    if (archive_) this->send_exit(archive_, caf::exit_reason::user_shutdown);
    archive_ = nullptr;
    if (engine_) engine_->stop();
    engine_.reset();
    gateway_.reset();
    quit(std::move(reason));
  }

  const WorkerOptions options_;
  const std::shared_ptr<collectives::Listener> listener_;
  const caf::actor loader_;
  const Log log_;
  std::unique_ptr<Gateway> gateway_;
  std::shared_ptr<Engine> engine_;
  caf::actor trainer_;
  caf::actor archive_;  // null: nothing was to be written or loaded yet
  std::vector<caf::actor> followers_;
  std::optional<elastic::worker_command::Exit> over_;
};

}  // namespace

Result<caf::actor> spawn_worker(caf::actor_system& system, WorkerOptions options,
                                caf::actor loader) {
  collectives::ListenerOptions listen;
  listen.host = options.host;
  listen.port = options.port;
  STARLING_TRY(listener, collectives::Listener::open(listen));
  auto worker = system.spawn<Worker, caf::detached>(
      std::move(options), std::shared_ptr<collectives::Listener>(std::move(listener)),
      std::move(loader));
  caf::anon_send(worker, start_atom_v);
  return worker;
}

}  // namespace starling::actors
