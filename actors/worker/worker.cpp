#include "actors/worker/worker.h"

#include <caf/all.hpp>
#include <numeric>
#include <thread>
#include <utility>

#include "actors/scheduling.h"
#include "actors/worker/archive.h"
#include "actors/worker/ask.h"
#include "actors/worker/data_stall.h"
#include "actors/worker/trainer.h"
#include "actors/worker/worker_loop.h"
#include "core/base/exception.h"
#include "core/base/exit.h"
#include "core/base/machine.h"
#include "core/base/tenfold.h"
#include "core/base/thread_name.h"
#include "core/observe/event_line.h"

namespace starling::actors {
namespace {

constexpr std::chrono::milliseconds kWorkerTick{10};

class Worker : public caf::event_based_actor {
 public:
  Worker(caf::actor_config& config, WorkerOptions options,
         std::shared_ptr<collectives::Listener> listener, caf::actor loader, caf::actor follower)
      : event_based_actor(config),
        options_(std::move(options)),
        listener_(std::move(listener)),
        loader_(std::move(loader)),
        follower_(std::move(follower)),
        log_(options_.log, {{"worker", options_.key.name}}) {}

  caf::behavior make_behavior() override {
    name_thread("worker");
    set_exit_handler([this](caf::exit_msg& message) { shut_down(message.reason); });
    set_exception_handler([this](std::exception_ptr& thrown) -> caf::error {
      try {
        std::rethrow_exception(thrown);
      } catch (...) {
        const Error error = error_of_exception("training");
        fail(error.code() == Code::kUnavailable ? kExitAlone : kExitInternal, error.text());
      }
      return caf::exit_reason::normal;
    });
    return {
        [this](start_atom) { begin(); },
        [this](tick_atom) {
          if (turned_away())
            return finish({2, false,
                           "the coordinators no longer let in the key of " + options_.key.name +
                               why_not_let_in(),
                           std::nullopt});
          if (const auto why = other_version(); !why.empty())
            return finish({2, false, why, std::nullopt});
          if (gateway_) options_.counters->control.look_at(*gateway_);
          if (const auto& data = options_.setup->dataset)
            for (const std::string& line : data->take_news()) log_.warn(line);
          drive([](WorkerLoop& loop) { loop.tick(); });
          rest_if_finished();
          if (loop_) delayed_send(this, kWorkerTick, tick_atom_v);
        },
        [this](const Arrival& arrival) {
          const auto* hint = std::get_if<LeaderHint>(&arrival.body);
          if (hint && !hint->note.empty()) log_.warn(hint->note);
          if (const auto* seats = std::get_if<Seats>(&arrival.body)) warn_of_unknown(*seats);
          drive([&](WorkerLoop& loop) { loop.on_message(arrival.body); });
        },
        [this](DataPlaneEvent& said) {
          drive([&](WorkerLoop& loop) { loop.on_data_plane(std::move(said)); });
        },
        [this](const MicroBatchComputed& computed) {
          if (!computed.error.empty() && !options_.setup->data_still_known())
            drive([](WorkerLoop& loop) { loop.on_data({}); });
          if (!computed.error.empty())
            return fail(computed.error_code == Code::kUnavailable ? kExitAlone : kExitBadInput,
                        computed.error);
          if (computed.skipped > 0 && !computed.again) warn_of_skipped(computed);
          drive([&](WorkerLoop& loop) {
            if (computed.again)
              return loop.on_again(computed.version, computed.row, computed.begun);
            loop.on_micro_batch(computed.version, computed.row, computed.took / options_.threads);
          });
        },
        [this](EvaluationDone& evaluated) {
          if (!evaluated.error.empty())
            return fail(evaluated.error_code == Code::kUnavailable ? kExitAlone : kExitBadInput,
                        evaluated.error);
          drive([&](WorkerLoop& loop) {
            loop.on_evaluated(evaluated.version, std::move(evaluated.values));
          });
        },
        [this](ShardDone& shard) {
          drive([&](WorkerLoop& loop) { loop.on_shard(std::move(shard)); });
        },
        [this](const DataHashed& hashed) {
          drive([&](WorkerLoop& loop) { loop.on_data(hashed.data); });
        },
        [this](LoadDone& loaded) {
          drive([&](WorkerLoop& loop) { loop.on_loaded(std::move(loaded)); });
        },
        [this](const Notice& notice) { drive([&](WorkerLoop& loop) { loop.on_notice(notice); }); },
    };
  }

 private:
  void begin() {
    const caf::actor me = caf::actor_cast<caf::actor>(this);
    auto started = Gateway::start(gateway_options(options_), [me](Arrival arrival) {
      caf::anon_send(me, std::move(arrival));
    });
    if (!started)
      return fail(started.error().code() == Code::kUnavailable ? kExitAlone : kExitBadInput,
                  started.error().text());
    gateway_ = std::move(started).value();

    WorkerLoopOptions loop_options{options_, options_.job_id, /*join=*/{}};
    loop_options.join.who = options_.self;
    loop_options.join.name = options_.key.name;
    loop_options.join.host =
        options_.advertised_host.empty() ? options_.host : options_.advertised_host;
    loop_options.join.port =
        options_.advertised_port == 0 ? listener_->port() : options_.advertised_port;
    loop_options.join.failure_domain = options_.failure_domain;
    loop_options.join.role = options_.role;
    loop_options.join.job_hash = job_hash(options_.setup->job);
    loop_options.join.fingerprint = options_.setup->fingerprint;
    loop_options.join.fingerprint_text = options_.setup->fingerprint_text;
    loop_options.join.pid = options_.pid;
    loop_options.join.data = options_.data;
    loop_options.join.machine = machine();
    WorkerLoopCalls calls;
    calls.to_coordinators = [this](const Message& body, std::optional<std::uint32_t> turn) {
      const auto* told = std::get_if<Progress>(&body);
      if (told && options_.latest)
        options_.latest->put({told->record.version, told->record.loss, told->record.tokens,
                              told->epoch, told->world});
      Message now = body;
      if (auto* join = std::get_if<Join>(&now)) join->machine.clock_ms = utc_us() / 1000;
      if (auto* beat = std::get_if<Heartbeat>(&now)) beat->data_wait_percent = waits_for_data();
      if (told) ++options_.counters->steps;
      if (!turn) return gateway_->broadcast_to_servers(std::move(now));
      gateway_->send_to_server(in_turn(*turn), std::move(now));
    };
    calls.compute = [this](ComputeOrder order) { this->send(trainer_, std::move(order)); };
    calls.evaluate = [this](EvaluateOrder order) { this->send(trainer_, order); };
    calls.post = [me](DataPlaneEvent said) { caf::anon_send(me, std::move(said)); };
    calls.over = [this](const elastic::worker_command::Exit& exit) { over_ = exit; };
    calls.set_counter = [this](std::uint64_t counter) { gateway_->set_counter(counter); };
    calls.write_shard = [this](ShardOrder order) { this->send(archive(), std::move(order)); };
    calls.load = [this](LoadOrder order) { this->send(archive(), std::move(order)); };
    loop_ =
        std::make_unique<WorkerLoop>(std::move(loop_options), *listener_, std::move(calls), log_);

    TrainerOptions trainer;
    trainer.setup = options_.setup;
    trainer.threads = options_.threads;
    trainer.loader = loader_;
    trainer.workbench = loop_->workbench();
    trainer.slowness = options_.slowness;
    trainer.counters = options_.counters;
    trainer_ = spawn_trainer(home_system(), std::move(trainer), me);
    hash_data(me);
    loop_->start();
    delayed_send(this, kWorkerTick, tick_atom_v);
  }

  std::uint8_t waits_for_data() {
    const WorkerCounters& counters = *options_.counters;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return stall_.look({counters.data_wait_ns, counters.computing_ns + counters.parameters_wait_ns},
                       static_cast<std::uint64_t>(
                           std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  }

  Machine machine() const {
    Machine here = machine_here(options_.folder);
    here.first_gradient_ns = options_.setup->first_gradient_ns;
    const kernels::Device& device = *options_.setup->device;
    if (!device.host_memory()) here.device = device.name();
    return here;
  }

  // Takes turns among the coordinators whose address is known.
  std::size_t in_turn(std::uint32_t turn) const {
    std::vector<std::size_t> known;
    for (std::size_t i = 0; i < options_.coordinators.size(); ++i)
      if (gateway_->has_address(i)) known.push_back(i);
    return known.empty() ? 0 : known[turn % known.size()];
  }

  // Warns of the first micro-batch with such local steps, the tenth, the hundredth and so on.
  void warn_of_skipped(const MicroBatchComputed& computed) {
    local_skipped_ += computed.skipped;
    if (!skipping_.count()) return;
    log_.warn(std::to_string(computed.skipped) + " of " +
              std::to_string(options_.setup->job.local.steps) + " local steps of micro-batch " +
              std::to_string(computed.row.micro_batch.value()) + " of step " +
              std::to_string(computed.version) +
              " were skipped, as their gradients are not finite; " +
              std::to_string(local_skipped_) + " of this worker so far");
  }

  // Says once that there is a coordinator which this worker cannot reach.
  void warn_of_unknown(const Seats& seats) {
    for (const Seat& seat : seats.seats) {
      if (warned_ || seat.place < options_.coordinators.size()) continue;
      warned_ = true;
      log_.warn("coordinator-" + std::to_string(seat.place) +
                " is not in this worker's token or keys; the worker goes on with the others");
    }
  }

  // Lets the threads rest once no step follows: a script's processes are free for reading then.
  void rest_if_finished() {
    if (!loop_ || *computed_flag_ || !loop_->worker().waits_for_data()) return;
    *computed_flag_ = true;
    this->send(trainer_, rest_atom_v);
  }

  // Reads in a thread of its own that no other thread waits for: storage may hang.
  void hash_data(const caf::actor& me) {
    std::thread([weak = caf::actor_cast<caf::weak_actor_ptr>(me), setup = options_.setup,
                 over = over_flag_, computed = computed_flag_, known = options_.data]() mutable {
      run_behind();
      const auto tell = [&](const Digest& data) {
        known = data;
        const auto worker = caf::actor_cast<caf::actor>(weak);
        if (worker && !*over) caf::anon_send(worker, DataHashed{data});
      };
      while (!*over) {
        if (known == Digest{}) {
          const auto data = setup->data([&] { return !*over; }, [&] { return !*computed; });
          if (!data) return;
          tell(*data);
        }
        if (!setup->hash_data.still_known) return;
        if (!setup->data_still_known()) tell({});
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }).detach();
  }

  const caf::actor& archive() {
    if (!archive_) archive_ = spawn_archive(home_system(), options_.setup, options_.job_id);
    return archive_;
  }

  void fail(int code, const std::string& reason) {
    finish({code, false, reason, std::nullopt, false, false});
  }

  // True if the key was revoked: for some seconds no coordinator let it in, and one refused it.
  bool turned_away() {
    if (!loop_) return false;
    std::vector<LinkState> links;
    for (std::size_t i = 0; i < options_.coordinators.size(); ++i)
      links.push_back(gateway_->link(i));
    const auto now = TurnedAway::Clock::now();
    turned_away_.look(links, now);
    return turned_away_.for_too_long(now);
  }

  // Says why a coordinator refuses the token, where there is one; else empty.
  std::string why_not_let_in() const {
    for (std::size_t i = 0; options_.enrols && i < options_.coordinators.size(); ++i)
      if (const auto why = gateway_->refusal(i); !why.empty()) return ": " + why;
    return {};
  }

  // Says why no coordinator can be talked to, if their version is the reason; else empty.
  std::string other_version() const {
    std::string why;
    for (std::size_t i = 0; gateway_ && i < options_.coordinators.size(); ++i) {
      if (gateway_->link(i) == LinkState::kUp) return {};
      if (gateway_->link(i) == LinkState::kOtherVersion) why = gateway_->other_version(i);
    }
    return why;
  }

  template <class Call>
  void drive(Call call) {
    if (!loop_) return;
    call(*loop_);
    if (over_) finish(*over_);
  }

  void finish(const elastic::worker_command::Exit& exit) {
    WorkerOver over;
    over.code = exit.code;
    over.fenced = exit.fenced;
    over.reason = exit.reason;
    over.told = exit.end.has_value();
    over.left = exit.leaving;
    if (exit.end && exit.code == 0) {
      over.job_done = true;
      over.digest = exit.end->digest;
      over.loss = exit.end->loss;
      take_model(exit, over);
    }
    this->send(follower_, over);
    shut_down(caf::exit_reason::normal);
  }

  // Every worker is told of the end; the parameters of one that was not at the
  // last version, or whose memory has changed since, are not the trained model.
  void take_model(const elastic::worker_command::Exit& exit, WorkerOver& over) {
    if (!exit.trained) {
      const Version version = loop_->worker().version();
      over.why_not = version == kNoVersion ? "this worker has computed none of it"
                                           : "this worker was not there at the last step, only up "
                                             "to step " +
                                                 std::to_string(version);
      return;
    }
    WorkerMemory* const held = loop_->memory();
    if (!held) {
      over.why_not = "the thread that has the parameters hangs";
      return;
    }
    std::vector<SegmentId> all(held->layout().segments());
    std::iota(all.begin(), all.end(), SegmentId{0});
    over.parameters_digest = held->parameters_part(all);
    if (over.parameters_digest != exit.end->parameters) {
      over.why_not = "the parameters here have digest " + to_string(over.parameters_digest) +
                     ", those of the job's end " + to_string(exit.end->parameters);
      return;
    }
    over.parameters = std::make_shared<const std::vector<float>>(held->trained_parameters());
  }

  // The last messages leave first; the last compute thread that lets go of the workbench frees it.
  void shut_down(caf::error reason) {
    *over_flag_ = true;
    if (trainer_) this->send_exit(trainer_, caf::exit_reason::user_shutdown);
    trainer_ = nullptr;
    if (archive_) this->send_exit(archive_, caf::exit_reason::user_shutdown);
    archive_ = nullptr;
    if (loop_) loop_->stop();
    loop_.reset();
    gateway_.reset();
    quit(std::move(reason));
  }

  const WorkerOptions options_;
  const std::shared_ptr<collectives::Listener> listener_;
  const caf::actor loader_;
  const caf::actor follower_;
  const Log log_;
  std::unique_ptr<Gateway> gateway_;
  std::unique_ptr<WorkerLoop> loop_;
  DataStall stall_;
  caf::actor trainer_;
  caf::actor archive_;  // null: nothing was to be written or loaded yet
  std::optional<elastic::worker_command::Exit> over_;
  const std::shared_ptr<std::atomic<bool>> over_flag_ = std::make_shared<std::atomic<bool>>(false);
  // True: no step follows, and data are still to be read.
  const std::shared_ptr<std::atomic<bool>> computed_flag_ =
      std::make_shared<std::atomic<bool>>(false);
  TurnedAway turned_away_;
  bool warned_ = false;
  std::uint64_t local_skipped_ = 0;  // local steps
  Tenfold skipping_;                 // micro-batches with some of these
};

}  // namespace

Result<caf::actor> spawn_worker(caf::actor_system& system, WorkerOptions options, caf::actor loader,
                                caf::actor follower) {
  collectives::ListenerOptions listen;
  listen.host = options.host;
  listen.port = options.port;
  STARLING_TRY(listener, collectives::Listener::open(listen));
  auto worker = system.spawn<Worker, caf::detached>(
      std::move(options), std::shared_ptr<collectives::Listener>(std::move(listener)),
      std::move(loader), std::move(follower));
  caf::anon_send(worker, start_atom_v);
  return worker;
}

}  // namespace starling::actors
