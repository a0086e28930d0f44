// Workers, guards and those who ask, whose coordinators are reached at other addresses than at first.

#include "actors/gateway/seats.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "actors/guard/guard.h"
#include "actors/inbox.h"
#include "actors/messages.h"
#include "actors/system.h"
#include "actors/worker/ask.h"
#include "actors/worker/loader.h"
#include "actors/worker/worker.h"
#include "kernels/models/model.h"
#include "tests/actors/gateway_rig.h"

namespace starling::actors {
namespace {

std::string at(std::uint16_t port) {
  return "tcp://127.0.0.1:" + std::to_string(port);
}
std::string at(const Peer& server) {
  return at(server.gateway->port());
}

// Of coordinator-0 and coordinator-1; the second has no address yet.
std::vector<GatewayOptions::Server> coordinators(const std::string& first) {
  return {{"coordinator-0", first, ring().find("coordinator-0")->public_key},
          {"coordinator-1", "", ring().find("coordinator-1")->public_key}};
}

std::unique_ptr<Peer> make_second() {
  return std::make_unique<Peer>(server_options(101, "tcp://127.0.0.1:0", "coordinator-1"));
}

// The next message of this kind; nothing for a failing test alone.
template <class Kind>
std::optional<Kind> next(Peer& server) {
  while (const auto arrival = server.inbox.next())
    if (const auto* kind = std::get_if<Kind>(&arrival->body)) return *kind;
  return std::nullopt;
}

// What is written to stderr while this lives, by any thread.
class Stderr {
 public:
  Stderr() : file_(std::tmpfile()), before_(::dup(2)) { ::dup2(::fileno(file_), 2); }
  ~Stderr() {
    ::dup2(before_, 2);
    ::close(before_);
    std::fclose(file_);
  }
  std::string text() const {
    std::string all(65536, '\0');
    const ssize_t size = ::pread(::fileno(file_), all.data(), all.size(), 0);
    all.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return all;
  }

 private:
  std::FILE* const file_;
  const int before_;
};

Result<Batch> one_sequence(std::uint64_t step, MicroBatch m) {
  Batch batch;
  batch.sequences = 1;
  batch.draw = {1, step, m};
  return batch;
}

std::shared_ptr<const TrainingSetup> small_setup() {
  Job job;
  job.name = "test";
  job.steps = 4;
  job.micro_batches = 4;
  job.model = SyntheticSpec{.parameters = 4096};
  auto setup = set_up(job, kernels::make_model(job.model, "auto").value(), one_sequence, Digest{});
  REQUIRE_MESSAGE(setup, setup.error().text());
  return std::move(setup).value();
}

// A worker's actor, and how it ended.
struct SeatedWorker {
  caf::actor_system_config config = make_system_config();
  caf::actor_system system{config};
  ThreadInbox<WorkerOver> inbox{system};
  caf::actor loader = spawn_loader(system, one_sequence);

  explicit SeatedWorker(const std::string& first) {
    WorkerOptions options;
    options.setup = small_setup();
    options.job_id = kJob;
    options.self = life(200);
    options.key = *ring().find("worker-0");
    options.coordinators = coordinators(first);
    REQUIRE(spawn_worker(system, std::move(options), loader, inbox.address()));
  }
  ~SeatedWorker() { caf::anon_send_exit(loader, caf::exit_reason::user_shutdown); }
  std::string reason() {
    const auto word = inbox.take(kPatience);
    const auto* over = word ? std::get_if<WorkerOver>(&*word) : nullptr;
    return over != nullptr ? over->reason : "nothing was said";
  }
};

TEST_CASE("seats: addresses are taken by place; wrong ones and other places are passed over") {
  auto servers = coordinators("tcp://10.0.0.1:7000");
  take_seats({{{1, "tcp://host:7001"}, {2, "tcp://host:7002"}, {0, "10.0.0.1:7003"}}}, servers);
  CHECK(servers[0].address == "tcp://10.0.0.1:7000");
  CHECK(servers[1].address == "tcp://host:7001");
  CHECK(address_to_dial("tcp://[::1]:7").value() == "tcp://[::1]:7");
  CHECK(!address_to_dial("tcp://*:7"));
}

// Goal: a worker is not lost with the address that it began with. Method: its one coordinator says
// another address, at which another process with that key answers.
TEST_CASE("seats: a worker whose one coordinator moves goes on at its new address") {
  const auto former = make_server(100);
  const auto present = make_server(102);
  SeatedWorker worker(at(*former));
  REQUIRE(next<Join>(*former));
  CHECK(former->gateway->send_to(life(200), Seats{{{0, at(*present)}}}));
  REQUIRE(next<Join>(*present));
  CHECK(present->gateway->send_to(life(200), Refused{"there are enough"}));
  CHECK(worker.reason().find("there are enough") != std::string::npos);
}

TEST_CASE("seats: a worker reaches a coordinator that came later, and says which it cannot reach") {
  auto first = make_server(100);
  const auto second = make_second();
  const Stderr errors;
  SeatedWorker worker(at(*first));
  REQUIRE(next<Join>(*first));
  for (int i = 0; i < 3; ++i)
    CHECK(first->gateway->send_to(life(200),
                                  Seats{{{1, at(*second)}, {9, "tcp://127.0.0.1:9"}, {1, "?"}}}));
  REQUIRE(next<Join>(*second));
  first.reset();
  CHECK(second->gateway->send_to(life(200), Refused{"there are enough"}));
  CHECK(worker.reason().find("there are enough") != std::string::npos);
  const std::string said = errors.text();
  const auto line = said.find("coordinator-9 is not in this worker's token");
  CHECK(line != std::string::npos);
  CHECK(said.find("coordinator-9", line + 1) == std::string::npos);
}

TEST_CASE(
    "seats: who asks is answered by a coordinator that it learned of, and tells the address") {
  const auto first = make_server(100);
  const auto second = make_second();
  std::thread answering([&] {
    if (next<Join>(*first)) first->gateway->send_to(life(200), Seats{{{1, at(*second)}}});
    if (next<Join>(*second)) second->gateway->send_to(life(200), Welcome{life(200), "the job"});
  });
  AskOptions options;
  options.job_id = kJob;
  options.self = life(200);
  options.key = *ring().find("worker-0");
  options.coordinators = coordinators(at(*first));
  const auto asked = ask_for_job(options);
  answering.join();
  REQUIRE_MESSAGE(asked, asked.error().text());
  CHECK(asked.value().job_text == "the job");
  REQUIRE(asked.value().coordinators.size() == 2);
  CHECK(asked.value().coordinators[0].address == at(*first));
  CHECK(asked.value().coordinators[1].address == at(*second));
}

// Goal: a guard tells a death to a coordinator whose address it learned in the run. Method: a guard in a process of its own,
// forked before this one has threads; its worker ends when the pipe to it does.
TEST_CASE("seats: a guard tells a death to a coordinator that it learned of") {
  std::array<int, 2> to_worker{};
  REQUIRE(::pipe(to_worker.data()) == 0);
  (void)ring();
  std::fflush(nullptr);  // else both processes would write what is buffered
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(to_worker[1]);
    std::uint16_t port = 0;
    if (::read(to_worker[0], &port, sizeof port) != sizeof port) ::_exit(9);
    GuardOptions options;
    options.job_id = kJob;
    options.self = life(7);
    options.key = *ring().find("worker-0");
    options.coordinators = coordinators(at(port));
    Seats moved;
    options.moved = [&moved](const Seats& seats) { moved = seats; };
    const auto status = run_guard(options, [&](SharedLife&) {
      char byte = 0;
      return ::read(to_worker[0], &byte, 1) == 0 ? 3 : 9;
    });
    const bool right = status && status.value() == 3 && moved.seats.size() == 1;
    ::_exit(right ? 0 : 1);
  }
  ::close(to_worker[0]);
  auto first = make_server(100);
  const auto second = make_second();
  const std::uint16_t port = first->gateway->port();
  REQUIRE(::write(to_worker[1], &port, sizeof port) == sizeof port);
  const auto asked = first->inbox.next();
  REQUIRE(asked);
  CHECK(first->gateway->send_to(asked->from, Seats{{{1, at(*second)}}}));
  REQUIRE(second->inbox.next());
  first.reset();
  ::close(to_worker[1]);
  const auto death = next<Death>(*second);
  REQUIRE(death);
  CHECK(death->who == life(7));
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace starling::actors
