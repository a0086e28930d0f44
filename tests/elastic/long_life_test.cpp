// A job that runs for a year: what its coordinator keeps does not grow with its history.
//
//   STARLING_YEAR=125143:64 elastic_tests -tc='a year*'     changes (one every 252 s) and workers
// prints the size of the log, the time of a restart and of a message as they go.

#include <doctest/doctest.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/formats/raft_log.h"
#include "core/wire/codec.h"
#include "elastic/membership/coordinator.h"
#include "elastic/protocol/plan.h"

namespace starling::elastic {
namespace {

constexpr JobId kJob{1, 2, 3};
constexpr std::uint32_t kManySegments = 512;

struct Directory {
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "long_life_XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

// The only coordinator, its log on a real disk, and workers that do what they are told.
class LongLife {
 public:
  explicit LongLife(std::uint32_t workers) : workers_(workers) { start(RaftLog::Life::kFirst); }

  void start(RaftLog::Life life) {
    coordinator_.reset();
    log_.reset();
    auto log = RaftLog::open(directory_.path, kJob, 0, life);
    REQUIRE_MESSAGE(log, (log ? "" : log.error().text()));
    log_.emplace(std::move(log).value());
    CoordinatorConfig config;
    config.leader.micro_batches = 1024;
    config.leader.steps = ~Version{0} >> 1;
    config.leader.segments = kManySegments;
    config.leader.bucket_segments = 64;
    config.leader.wanted_workers = workers_;
    config.leader.elastic.lease_ms = config.leader.report_deadline_ms = 1'000'000'000;
    config.leader.job_hash = config.job.job_hash = 7;
    const RaftTerm& term = log_->term();
    const RaftLogSnapshot snapshot = log_->take_snapshot();
    coordinator_.emplace(std::move(config), HardState{term.term, term.vote, term.lost},
                         log_->take_entries(),
                         RaftSnapshot{snapshot.index, snapshot.term, snapshot.data, {}});
    terms_ = 0;
    for (int i = 0; i < 4 && !coordinator_->leads(); ++i) tick(100);
    REQUIRE(coordinator_->leads());
  }

  // A life of its own for each worker that is missing, until all are in the last plan.
  void fill() {
    while (living_.size() < workers_) {
      const std::uint64_t nonce = ++nonces_;
      living_[nonce] = {};
      Join join;
      join.who = {0, Nonce(nonce)};
      join.name = "worker-" + std::to_string(nonce % workers_);
      join.host = "10.0.0.1";
      join.fingerprint = {1, 1};
      say(nonce, join);
    }
    for (int i = 0;
         i < 40 && (!plan() || plan()->members.size() < workers_ || !plan()->moves.empty()); ++i) {
      tick(100);
      for (auto& [nonce, life] : living_) say(nonce, Heartbeat{life.entered, life.version, {}});
      ++version_;
    }
    REQUIRE(plan());
    REQUIRE(plan()->members.size() == workers_);
  }

  // One change: a worker dies, and another comes in its place.
  void change() {
    const std::uint64_t nonce = living_.begin()->first;
    const Incarnation who = living_.begin()->second.who;
    living_.erase(living_.begin());
    say_as({0, ~std::uint64_t{0}}, "worker-" + std::to_string(nonce % workers_), Death{who});
    fill();
  }

  const std::optional<Plan>& plan() const { return coordinator_->group().plan(); }
  const Coordinator& coordinator() const { return *coordinator_; }
  std::uint64_t terms() const { return terms_; }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t log_bytes() const {
    return std::filesystem::file_size(directory_.path + "/raft.log");
  }

 private:
  struct Life {
    Incarnation who;
    EpochId entered;
    Version version = kNoVersion;
  };

  void tick(std::uint64_t ms) { on(coordinator_event::Tick{now_ms_ += ms}); }
  void say(std::uint64_t nonce, Message body) {
    say_as(living_[nonce].who.nonce ? living_[nonce].who : Incarnation{0, Nonce(nonce)},
           "worker-" + std::to_string(nonce % workers_), std::move(body));
  }
  void say_as(const Incarnation& who, const std::string& name, Message body) {
    ++messages_;
    on(coordinator_event::WorkerSaid{who, name, std::move(body)});
  }

  void on(const CoordinatorEvent& event) {
    for (auto& command : coordinator_->on(event))
      std::visit([this](auto& c) { execute(c); }, command);
  }
  void execute(coordinator_command::Persist& c) {
    std::optional<RaftTerm> term;
    if (c.hard_state) term = RaftTerm{c.hard_state->term, c.hard_state->vote};
    std::optional<RaftLogSnapshot> snapshot;
    if (c.snapshot)
      snapshot = RaftLogSnapshot{c.snapshot->index, c.snapshot->term, c.snapshot->data};
    REQUIRE(log_->save(term, c.append, snapshot));
    on(coordinator_event::Persisted{});
  }
  void execute(coordinator_command::SendWorker& c) {
    const auto it = living_.find(c.to.nonce);
    if (it == living_.end()) return;
    Life& life = it->second;
    if (const auto* welcome = std::get_if<Welcome>(&c.body)) life.who = welcome->who;
    if (const auto* freeze = std::get_if<Freeze>(&c.body)) report(life, it->first, freeze->asked);
    if (const auto* committed = std::get_if<Committed>(&c.body)) enter(life, committed->plan);
  }
  void execute(coordinator_command::Tell& c) {
    if (std::holds_alternative<event::LeaderElected>(c.event)) ++terms_;
  }
  template <class Other>
  void execute(Other&) {}

  void report(Life& life, std::uint64_t nonce, EpochId asked) {
    Report report;
    report.promise = asked;
    report.entered = life.entered;
    report.version = life.version;
    report.parameters_complete = true;
    report.copies.assign(kManySegments, false);
    if (plan()) {
      const auto rank = rank_in(*plan(), life.who);
      if (rank && life.version != kNoVersion) report.copies = held_by(*plan(), *rank);
    }
    if (life.version != kNoVersion) report.version = life.version = version_;
    say(nonce, report);
  }
  void enter(Life& life, const Plan& plan) {
    if (life.entered >= plan.id) return;
    life.entered = plan.id;
    life.version = version_;
  }

  const std::uint32_t workers_;
  const Directory directory_;
  std::optional<RaftLog> log_;
  std::optional<Coordinator> coordinator_;
  std::map<std::uint64_t, Life> living_;
  std::uint64_t nonces_ = 0, now_ms_ = 1, terms_ = 0, messages_ = 0;
  Version version_ = 1;
};

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace

// Goal: log, restart and state stay as they were after the first changes. Method: a real leader,
// its log on disk, a worker lost and another joined per change; restarts in between.
TEST_CASE("a year of changes: log, state and restart do not grow with them") {
  unsigned long changes = 300, workers = 8;
  if (const char* text = std::getenv("STARLING_YEAR"))
    std::sscanf(text, "%lu:%lu", &changes, &workers);
  LongLife life(static_cast<std::uint32_t>(workers));
  life.fill();
  std::printf("changes  log KB  snapshot KB  lives  restart ms  elections  us/message\n");
  std::uint64_t largest = 0, most_lives = 0;
  for (unsigned long done = 0; done < changes;) {
    const unsigned long until = std::min(changes, done + std::max(changes / 10, 1ul));
    const auto begun = std::chrono::steady_clock::now();
    const auto before = life.messages();
    for (; done < until; ++done) {
      life.change();
      largest = std::max(largest, life.log_bytes());
      most_lives = std::max<std::uint64_t>(most_lives, life.coordinator().group().workers().size());
    }
    const double us = seconds_since(begun) * 1e6 / double(life.messages() - before);
    const Bytes state = encode_group(life.coordinator().group().state());
    const std::uint64_t log = life.log_bytes();
    const auto restart = std::chrono::steady_clock::now();
    life.start(RaftLog::Life::kLater);
    const double ms = seconds_since(restart) * 1e3;
    std::printf("%7lu %7.0f %12.1f %6zu %11.1f %10llu %11.1f\n", done, double(log) / 1024,
                double(state.size()) / 1024, life.coordinator().group().workers().size(), ms,
                static_cast<unsigned long long>(life.terms()), us);
    CHECK(life.terms() == 1);
    CHECK(encode_group(life.coordinator().group().state()) == state);
  }
  CHECK(largest < 4u << 20);
  CHECK(most_lives <= 2 * workers + Group::kRemembered + 4);
}

}  // namespace starling::elastic
