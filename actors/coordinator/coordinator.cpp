// The coordinator's actor. Long because one class carries out all that elastic::Coordinator orders.

#include "actors/coordinator/coordinator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <caf/all.hpp>
#include <optional>
#include <utility>

#include "actors/coordinator/checkpoint_keeper.h"
#include "actors/coordinator/door.h"
#include "actors/coordinator/first_start.h"
#include "actors/coordinator/identity_desk.h"
#include "actors/coordinator/journal.h"
#include "actors/coordinator/key_changes.h"
#include "actors/coordinator/leader_config.h"
#include "actors/coordinator/other_job.h"
#include "actors/coordinator/place_claim.h"
#include "actors/files.h"
#include "core/base/address.h"
#include "core/base/check.h"
#include "core/base/mac.h"
#include "core/base/thread_name.h"
#include "core/formats/checkpoint.h"
#include "core/formats/raft_log.h"
#include "core/job/schedule.h"
#include "core/observe/event_line.h"
#include "elastic/membership/coordinator.h"

namespace starling::actors {
namespace {

using namespace elastic::coordinator_command;
namespace input = elastic::coordinator_event;

constexpr std::chrono::milliseconds kCoordinatorTick{10}, kTimeAtOnce{100};
constexpr std::chrono::milliseconds kAskAgain{50}, kClaimAgain{250};
constexpr std::chrono::seconds kSeatsAgain{5};
constexpr std::chrono::seconds kClaimTold{10};  // then a warning says that nobody answers
constexpr std::chrono::seconds kSlowDisk{5};    // a longer write of the log is worth a warning
// Bounds the events that followers have not looked at yet, in ledger rows (some 40 MiB);
// another event counts as kEventRows. Beyond it steps are dropped, and the next event says so.
constexpr std::size_t kBehindMax = std::size_t{1} << 20;
constexpr std::size_t kEventRows = 16;

template <class T>
T random_value() {
  T value{};
  random_bytes({reinterpret_cast<std::uint8_t*>(&value), sizeof value});
  return value;
}

elastic::HardState hard_state_of(const RaftTerm& term) {
  return {term.term, term.vote, term.lost, {term.floor_term, term.floor_index}};
}

// The log's content when it was opened.
struct Begun {
  elastic::RaftSnapshot snapshot;
  std::vector<RaftEntry> entries;
};

class Coordinator : public caf::event_based_actor {
 public:
  Coordinator(caf::actor_config& actor, CoordinatorOptions options, std::shared_ptr<Door> door,
              std::shared_ptr<RaftLog> raft_log, Begun begun, std::optional<PlaceClaim> claim)
      : event_based_actor(actor),
        options_(std::move(options)),
        door_(std::move(door)),
        log_(options_.log, {{"coordinator", options_.self}}),
        allowed_(options_.allowed),
        raft_log_(std::move(raft_log)),
        begun_(std::move(begun)),
        claim_(std::move(claim)) {
    const std::uint32_t size = options_.founders;
    if (raft_log_->cut_bytes() != 0)
      log_.warn(raft_log_->name() + " ended in a record that was never completed; the last " +
                std::to_string(raft_log_->cut_bytes()) + " bytes are kept in " + raft_log_->name() +
                ".torn");
    if (options_.first_start && size > 1)
      first_.emplace(options_.self, size, random_value<std::uint64_t>() >> 1);
    else if (!claim_ || claim_->has_begun())
      begin();
  }

  // The coordinator takes part from here on.
  void begin() {
    elastic::CoordinatorConfig config;
    config.raft.self = options_.self;
    config.raft.size = options_.founders;
    // A busy machine may keep a process from its core for 100 ms, and one sync
    // of the log may take 10 ms; a needless election is harmless but noisy.
    config.raft.election_ms = 300;
    config.raft.heartbeat_ms = 60;
    config.raft.seed = random_value<std::uint64_t>();
    config.leader = leader_config(options_);
    config.job = {options_.job_id, config.leader.job_hash, options_.checkpoints};
    config.secret = random_value<EpochKey>();
    config.told = options_.told;
    looked_ = std::chrono::steady_clock::now();
    term_ = raft_log_->term().term;
    machine_ =
        std::make_unique<elastic::Coordinator>(std::move(config), hard_state_of(raft_log_->term()),
                                               std::move(begun_.entries), begun_.snapshot);
    const caf::actor me = caf::actor_cast<caf::actor>(this);
    journal_ = std::make_unique<Journal>(std::move(*raft_log_), [me](Result<> saved) {
      caf::anon_send(me, LogSaved{saved ? "" : saved.error().text()});
    });
  }

  caf::behavior make_behavior() override {
    name_thread("coordinator");
    set_exit_handler([this](caf::exit_msg& message) { shut_down(message.reason); });
    return {
        [this](std::shared_ptr<Gateway> gateway) {
          gateway_ = std::move(gateway);
          asks_since_ = std::chrono::steady_clock::now();
          send(this, tick_atom_v);
        },
        [this](std::shared_ptr<IdentityDesk> desk) { identity_desk_ = std::move(desk); },
        [this](tick_atom) {
          if (first_) ask_the_others();
          if (claim_) ask_for_place();
          if (machine_) feed_time();
          if (machine_) tell_what_is_slow();
          tell_seats();
          if (gateway_) options_.control->look_at(*gateway_);
          if (gateway_) delayed_send(this, kCoordinatorTick, tick_atom_v);
        },
        [this](const Arrival& arrival) {
          door_->leave(arrival);
          // The gateway's thread may be faster than the message that
          // brings the gateway; a sender that wants an answer asks again.
          if (!gateway_) return;
          if (arrival.server) return hear_coordinator(arrival);
          if (first_) return hear_at_first(arrival);
          if (!machine_) return;
          feed_time();
          if (machine_) on_arrival(arrival);
        },
        [this](const input::Stored& stored) {
          if (!machine_) return;
          feed_time();
          if (machine_) handle(stored);
        },
        [this](const CheckpointsGone& gone) {
          for (const Version version : gone.versions)
            warn("the checkpoint of step " + std::to_string(version) + " is gone; " +
                 checkpoint_folder(options_.job.checkpoint.dir, version));
        },
        [this](const LogSaved& saved) {
          if (!machine_) return;
          on_saved(saved);
        },
        [this](const KeyRefused& refused) { warn(refused.line); },
        [this](const KeysChanged& keys) {
          if (!gateway_) return;
          gateway_->allow(keys.allowed);
          const std::string changes = changes_of(allowed_, keys.allowed);
          if (!changes.empty()) warn(changes);
          input::Revoked revoked;
          for (const auto& [key, name] : allowed_)
            if (!keys.allowed.contains(key)) revoked.names.push_back(name);
          allowed_ = keys.allowed;
          if (machine_ && !revoked.names.empty()) handle(revoked);
        },
        [this](follow_atom, const caf::actor& follower) {
          followers_.push_back(follower);
          if (leads_) send(follower, leads_);
          if (gone_) send(follower, *gone_);
          if (ended_) send(follower, ended_);
        },
        [this](ask_checkpoint_atom) {
          if (machine_) handle(input::AskCheckpoint{});
        },
        [this](const EndRun& end) {
          if (machine_) handle(input::EndRun{end.signal, end.reason});
        },
        [this](hand_over_atom) -> bool {
          const bool leads = machine_ && machine_->leads() && !machine_->group().end();
          if (!leads || machine_->raft().members().voters.size() == 1) return false;
          handle(input::HandOver{});
          return true;
        },
        [this](stop_atom) { shut_down(caf::exit_reason::normal); },
    };
  }

 private:
  // Advances time by at most kTimeAtOnce, so that a coordinator that was held up reads what
  // waits for it before it finds its peers silent. No decision rests on the difference.
  void feed_time() {
    const auto now = std::chrono::steady_clock::now();
    passed_ += std::min<std::chrono::nanoseconds>(now - looked_, kTimeAtOnce);
    looked_ = now;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(passed_).count();
    handle(input::Tick{1 + static_cast<std::uint64_t>(ms)});
  }

  // Returns the place of a coordinator, which its key says.
  std::optional<std::uint32_t> place_of(const std::string& name) const {
    for (std::uint32_t i = 0; i < options_.group.size(); ++i)
      if (options_.group[i].name == name) return i;
    return std::nullopt;
  }

  // Returns a Raft message with the place of its sender.
  std::optional<input::RaftArrived> raft_of(const Arrival& arrival) const {
    const auto* raft = std::get_if<RaftMessage>(&arrival.body);
    const auto place = raft ? place_of(arrival.sender) : std::nullopt;
    if (!place) return std::nullopt;
    return input::RaftArrived{*place, *raft};
  }

  // Asks for its place until it has it and the one that it replaces is out; and now and then as long as it lives, for
  // others that begin again must hear where it is.
  void ask_for_place() {
    const auto now = std::chrono::steady_clock::now();
    if (!gateway_ || now < asks_next_) return;
    const bool has = machine_ && has_place();
    asks_next_ = now + (has ? std::chrono::milliseconds(kSeatsAgain) : kClaimAgain);
    gateway_->broadcast_to_servers(
        claim_->question("tcp://" + to_string(Address{options_.joins->host, gateway_->port()}),
                         options_.joins->replaces, job_hash(options_.job)));
    if (has || now - asks_since_ < kClaimTold) return;
    asks_since_ = now;
    warn(options_.key.name + (machine_ ? " is no member yet" : " may not take part yet") + ": " +
         (why_not_.empty()
              ? "no coordinator that leads has answered: most of the group is away, or "
                "--peers reaches none that lives"
              : why_not_) +
         "; it asks on");
  }

  // Whether all that it asked for is done, by its own log.
  bool has_place() const {
    const elastic::Raft& raft = machine_->raft();
    const auto& replaced = options_.joins->replaces;
    const bool out = !replaced || !raft.is_voter(*replaced);
    return raft.votes() && raft.members_settled() && out;
  }

  // Hears another coordinator answer.
  void hear_coordinator(const Arrival& arrival) {
    if (const auto* seats = std::get_if<Seats>(&arrival.body)) return dial(*seats);
    const auto* answer = std::get_if<ChangeAnswered>(&arrival.body);
    if (!answer || !claim_) return;
    if (answer->state == ChangeState::kRefused)
      return end_alone(
          machine_ ? 0 : 2,
          options_.key.name + (machine_ ? " ends: " : " does not take part: ") + answer->reason);
    why_not_ = answer->reason;
    if (answer->state == ChangeState::kUnderWay) return;
    if (!machine_) {
      Result<> saved = raft_log_->save(RaftTerm{}, {});
      if (saved) saved = claim_->begin();
      if (!saved)
        return end_alone(3, options_.key.name + " cannot write its log: " + saved.error().text());
      begin();
    }
  }

  void dial(const Seats& seats) {
    for (const Seat& seat : seats.seats) {
      if (seat.place == options_.self || seat.place >= options_.group.size()) continue;
      if (auto dialled = gateway_->dial(server_of(seat.place), seat.address); !dialled)
        warn(options_.group[seat.place].name + " cannot be reached: " + dialled.error().text());
    }
  }

  void hear_at_first(const Arrival& arrival) {
    const auto said = raft_of(arrival);
    if (!said || said->message.from != said->from) return;
    // One that joined later takes part: so the group has begun.
    if (said->from >= options_.founders) return first_->hear_member(said->from);
    if (said->message.kind == RaftKind::kRecall)
      send_raft(first_->answer(said->message));
    else
      first_->take(said->message);
  }

  // FirstStart treats this member as one that has lost its log until all is known: so it
  // is after a crash, and after a refusal, when this member comes back without --new.
  void ask_the_others() {
    const auto now = std::chrono::steady_clock::now();
    if (const auto begun = first_->begun()) {
      first_.reset();
      return end_alone(2, options_.key.name + " is started with --new, but the group has begun: " +
                              options_.group[*begun].name +
                              " has its log; leave out --new, and the others repair this one");
    }
    const bool spares = options_.group.size() > options_.founders;
    if (first_->over(std::chrono::duration_cast<std::chrono::milliseconds>(now - asks_since_),
                     spares)) {
      first_.reset();
      if (auto saved = raft_log_->save(RaftTerm{}, {}); !saved)
        return end_alone(3, options_.key.name + " cannot write its log: " + saved.error().text());
      return begin();
    }
    if (now < asks_next_) return;
    asks_next_ = now + kAskAgain;
    for (RaftMessage& question : first_->questions()) send_raft(std::move(question));
  }

  void on_arrival(const Arrival& arrival) {
    if (std::holds_alternative<RaftMessage>(arrival.body)) {
      if (const auto said = raft_of(arrival)) handle(*said);
      return;
    }
    if (const auto* asked = std::get_if<ChangeAsked>(&arrival.body)) {
      if (const auto place = place_of(arrival.sender))
        handle(input::ChangeArrived{arrival.from, *place, *asked});
      return;
    }
    if (const auto* asked = std::get_if<AdminAsked>(&arrival.body))
      return handle(input::AdminArrived{arrival.from, arrival.sender, *asked});
    if (const auto* asks = std::get_if<Join>(&arrival.body); asks && asks->machine.clock_ms != 0) {
      Join join = *asks;
      constexpr std::int64_t kFar = std::int64_t{1} << 52;  // ms; a worker may say anything
      join.machine.clock_ahead_ms =
          std::clamp(join.machine.clock_ms, -kFar, kFar) - utc_ms_at(arrival.at);
      return handle(input::WorkerSaid{arrival.from, arrival.sender, std::move(join)});
    }
    handle(input::WorkerSaid{arrival.from, arrival.sender, arrival.body});
  }

  // Returns what the system's clock said at a time.
  static std::int64_t utc_ms_at(std::chrono::steady_clock::time_point at) {
    const auto since = std::chrono::steady_clock::now() - at;
    return utc_us() / 1000 - std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  }

  void handle(const elastic::CoordinatorEvent& e) {
    for (auto& command : machine_->on(e))
      if (machine_) std::visit([this](auto& c) { execute(c); }, command);
  }

  void execute(Persist& c) {
    saving_since_ = std::chrono::steady_clock::now();
    if (c.hard_state) term_ = c.hard_state->term;
    journal_->save(std::move(c));
  }

  void on_saved(const LogSaved& saved) {
    // The machine's decisions may not be on the disk, so it falls silent. The others go on.
    if (!saved.error.empty())
      return end_alone(3, options_.key.name + " cannot write its log: " + saved.error);
    const auto took = std::chrono::steady_clock::now() - *std::exchange(saving_since_, {});
    if (std::exchange(told_slow_, false))
      warn("the disk of the coordinator's log has answered, after " +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(took).count()) + " s");
    feed_time();
    if (machine_) handle(input::Persisted{});
  }

  // Warns once each time: steps go on, but no worker can join, leave or be replaced meanwhile.
  void tell_what_is_slow() {
    const auto now = std::chrono::steady_clock::now();
    if (saving_since_ && !told_slow_ && now - *saving_since_ > kSlowDisk) {
      told_slow_ = true;
      warn("the disk of the coordinator's log has not answered for " +
           std::to_string(kSlowDisk.count()) + " s; " + options_.state_dir);
    }
    if (const auto turned = door_->turned_away(); turned >= turned_told_) {
      warn("this coordinator is too slow for what it is told; messages not taken so far: " +
           std::to_string(turned));
      turned_told_ = turned * 10;
    }
  }

  void warn(std::string text) {
    Tell told{event::Warning{std::move(text)}};
    execute(told);
  }

  void execute(RefuseJob& c) {
    end_alone(2, other_job(options_.state_dir, c.of_log, options_.job).text());
  }

  // The job goes on without this coordinator. The actor stays until it is stopped, for followers.
  void end_alone(int code, std::string reason) {
    machine_.reset();
    identity_desk_.reset();
    gateway_.reset();
    journal_.reset();
    raft_log_.reset();
    gone_ = CoordinatorOver{code, std::move(reason)};
    for (const auto& follower : followers_) send(follower, *gone_);
  }

  void execute(Fail& c) {
    end_alone(c.taken_out ? 0 : 3, options_.key.name + " ends, " + c.reason);
  }

  void execute(Dial& c) {
    seats_ = std::move(c.seats);
    seats_next_ = {};
    dial(seats_);
  }

  // Tells workers and guards now and then: a guard says nothing while all is well, and a message may be lost.
  void tell_seats() {
    const auto now = std::chrono::steady_clock::now();
    if (!gateway_ || seats_.seats.empty() || now < seats_next_) return;
    seats_next_ = now + kSeatsAgain;
    gateway_->broadcast_to_clients(seats_);
  }

  void execute(SendRaft& c) { send_raft(std::move(c.message)); }

  void send_raft(RaftMessage message) {
    const std::uint32_t to = message.to;
    if (to < options_.group.size()) gateway_->send_to_server(server_of(to), std::move(message));
  }

  // Our gateway's servers are the other coordinators, in order.
  std::size_t server_of(std::uint32_t place) const {
    return place < options_.self ? place : place - 1;
  }

  void execute(SendWorker& c) { gateway_->send_to(c.to, std::move(c.body)); }

  void execute(StoreCheckpoint& c) { send(keeper(), term_, std::move(c)); }
  void execute(TidyCheckpoints& c) { send(keeper(), term_, std::move(c)); }

  const caf::actor& keeper() {
    if (!keeper_)
      keeper_ =
          spawn_checkpoint_keeper(home_system(), options_.job, options_.job_id, *options_.layout);
    return keeper_;
  }

  void execute(Tell& c) {
    const auto* warning = std::get_if<event::Warning>(&c.event);
    if (warning && followers_.empty()) log_.warn(warning->text);  // else followers show it
    if (auto* leads = std::get_if<event::LeaderElected>(&c.event))
      leads->pid = static_cast<std::uint64_t>(::getpid());
    if (auto* written = std::get_if<event::CheckpointWritten>(&c.event))
      written->path = checkpoint_folder(options_.job.checkpoint.dir, written->version);
    const OptimizerSpec& optimizer = options_.job.optimizer;
    if (auto* step = std::get_if<event::StepPassed>(&c.event); step && check_schedule(optimizer))
      step->rate =
          learning_rate(optimizer, step->record.version, options_.job.steps, step->peak_rate);
    const auto* ledger = std::get_if<event::LedgerPassed>(&c.event);
    if (ledger && !options_.job.elastic.ledger_events) return;
    const std::size_t rows = kEventRows + (ledger ? ledger->workers.size() : 0);
    const bool of_step = ledger || std::holds_alternative<event::StepPassed>(c.event) ||
                         std::holds_alternative<event::Evaluated>(c.event);
    if (of_step && *behind_ + rows > kBehindMax) {
      ++dropped_;
      return;
    }
    if (const auto dropped = std::exchange(dropped_, 0); dropped > 0)
      tell({event::Dropped{dropped, "whoever writes and shows them is too slow"}}, kEventRows);
    tell(std::move(c), rows);
  }

  // `behind_` counts the event until the last follower has dropped it.
  void tell(Tell told, std::size_t rows) {
    *behind_ += rows;
    const auto behind = behind_;
    const Observed seen(new Tell(std::move(told)), [behind, rows](const Tell* read) {
      delete read;
      *behind -= rows;
    });
    if (std::holds_alternative<event::LeaderElected>(seen->event)) leads_ = seen;
    if (std::holds_alternative<event::Done>(seen->event) ||
        std::holds_alternative<event::Ended>(seen->event) ||
        std::holds_alternative<event::Failed>(seen->event))
      ended_ = seen;
    for (const auto& follower : followers_) send(follower, seen);
  }

  void shut_down(caf::error reason) {
    machine_.reset();
    identity_desk_.reset();
    gateway_.reset();
    journal_.reset();
    if (keeper_) send(keeper_, stop_atom_v);  // after what it was told before
    keeper_ = nullptr;
    quit(std::move(reason));
  }

  const CoordinatorOptions options_;
  const std::shared_ptr<Door> door_;
  const Log log_;
  AllowList allowed_;
  std::shared_ptr<RaftLog> raft_log_;  // the journal's log once this coordinator takes part
  Begun begun_;
  std::optional<PlaceClaim> claim_;  // of one that did not begin the group
  std::string why_not_;              // what the leader has said of that last
  Seats seats_;                      // where coordinators are that did not begin the group
  std::chrono::steady_clock::time_point seats_next_;  // when clients are sent them again
  std::optional<FirstStart> first_;  // set while this one asks whether the group has begun
  std::chrono::steady_clock::time_point asks_since_, asks_next_;
  std::chrono::steady_clock::time_point looked_;  // at the clock
  std::chrono::nanoseconds passed_{};             // the time that the machine was told
  std::shared_ptr<Gateway> gateway_;
  std::shared_ptr<IdentityDesk> identity_desk_;  // of a job whose workers may show tokens
  std::unique_ptr<elastic::Coordinator> machine_;
  std::unique_ptr<Journal> journal_;
  std::uint64_t term_ = 0;  // of what the machine has saved last: if it leads, it leads in this one
  std::optional<std::chrono::steady_clock::time_point> saving_since_;
  bool told_slow_ = false;
  std::uint64_t turned_told_ = 1;  // the next warning comes at so many messages turned away
  std::vector<caf::actor> followers_;
  Observed leads_;                       // the event of its last lead; null: it has not led
  std::optional<CoordinatorOver> gone_;  // why it has ended by itself; none: it has not
  Observed ended_;  // the job's end, which a log may bring before there is a follower
  const std::shared_ptr<std::atomic<std::size_t>> behind_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::uint64_t dropped_ = 0;  // events of steps that were dropped and not reported yet
  caf::actor keeper_;          // null: there was nothing to keep yet
};

}  // namespace

Result<CoordinatorHandle> spawn_coordinator(caf::actor_system& system, CoordinatorOptions options) {
  const KeyPair key = options.key;
  if (options.group.empty()) options.group.push_back({key.name, "", key.public_key});
  STARLING_CHECK(options.self < options.group.size());
  if (options.founders == 0) options.founders = static_cast<std::uint32_t>(options.group.size());
  STARLING_CHECK((options.self < options.founders) != options.joins.has_value());
  const std::size_t workers = options.wanted_workers;
  const std::size_t files = files_of_coordinator(workers);
  if (auto why = too_many_files(workers, "coordinator", files); !why.empty())
    return Error(Code::kBadInput, std::move(why));
  const bool first = options.first_start && options.founders == 1;
  STARLING_TRY(raft_log, RaftLog::open(options.state_dir, options.job_id, options.self,
                                       first ? RaftLog::Life::kFirst : RaftLog::Life::kLater));
  if (options.first_start) {
    STARLING_TRY(raft_log.has_promised_nothing());
  }
  std::optional<PlaceClaim> claim;
  if (options.joins) {
    STARLING_TRY(claimed, PlaceClaim::open(options.state_dir, options.self, raft_log.term().lost));
    claim = std::move(claimed);
  }
  Begun log;
  log.entries = raft_log.take_entries();
  const RaftLogSnapshot snapshot = raft_log.take_snapshot();
  log.snapshot = {snapshot.index, snapshot.term, snapshot.data, snapshot.members};
  const auto begun = job_of(log.snapshot, log.entries);
  if (begun && begun->job_hash != job_hash(options.job))
    return other_job(options.state_dir, begun->job_hash, options.job);
  if (!begun) leave_job_file(options.state_dir, options.job);
  GatewayOptions gateway;
  gateway.job = options.job_id;
  gateway.self = Incarnation{0, fresh_nonce()};
  gateway.key = options.key;
  gateway.listen = GatewayOptions::Listen{options.address, options.allowed, {}};
  gateway.listen->other_version = [log = Log(options.log, {{"coordinator", options.self}})](
                                      const std::string& line) { log.warn(line); };
  for (std::uint32_t i = 0; i < options.group.size(); ++i)
    if (i != options.self) gateway.servers.push_back(options.group[i]);

  std::optional<oidc::Provider> provider;
  if (options.job.identity.on()) {
    const std::string kept = options.state_dir.empty() ? "" : options.state_dir + "/identity-keys";
    STARLING_TRY(made, oidc::Provider::make({options.job.identity, options.identity_ca, {}, kept}));
    provider = std::move(made);
  }
  const Log identity_log(options.log, {{"coordinator", options.self}});

  const auto door = std::make_shared<Door>();
  auto actor = system.spawn<Coordinator, caf::detached>(
      std::move(options), door, std::make_shared<RaftLog>(std::move(raft_log)), std::move(log),
      std::move(claim));
  gateway.listen->refused = [actor](const std::string& line) {
    caf::anon_send(actor, KeyRefused{line});
  };
  std::shared_ptr<IdentityDesk> desk;
  if (provider) {
    desk =
        std::make_shared<IdentityDesk>(*std::move(provider), identity_log, gateway.listen->refused);
    gateway.listen->identities.emplace().shown = [to = std::weak_ptr(desk)](Stranger stranger) {
      if (const auto there = to.lock()) there->take(std::move(stranger));
    };
  }
  auto started = Gateway::start(std::move(gateway), [actor, door](Arrival arrival) {
    if (door->enter(arrival)) caf::anon_send(actor, std::move(arrival));
  });
  if (!started) {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    return std::move(started).error();
  }
  std::shared_ptr<Gateway> opened = std::move(started).value();
  const std::uint16_t port = opened->port();
  if (desk) {
    desk->open(opened);
    caf::anon_send(actor, std::move(desk));
  }
  caf::anon_send(actor, std::move(opened));
  const std::string address = "tcp://127.0.0.1:" + std::to_string(port);
  return CoordinatorHandle{actor, port, {key.name, address, key.public_key}};
}

}  // namespace starling::actors
