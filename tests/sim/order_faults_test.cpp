// Faults that only the executor of a worker's orders can have (actors/worker/executor.h): one kind of
// order carried out twice, left out, or after another one, at one of three workers of a calm world,
// which a fourth one joins. The world notices: a check ends the process, an oracle speaks, or the job
// does not end. A worker that says nothing of its share or parameters is left out like any other that
// stands still; no row is about that, nor about orders that may come twice (SetVersion, OpenStep).

#include <doctest/doctest.h>

#include <string>
#include <type_traits>
#include <variant>

#include "tests/sim/schedule.h"

namespace starling::sim {
namespace {

using namespace elastic::worker_command;

template <class Order, std::size_t I = 0>
constexpr std::size_t index_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<I, elastic::WorkerCommand>, Order>)
    return I;
  else
    return index_of<Order, I + 1>();
}

struct Planted {
  const char* what;
  OrderFault fault;
  std::size_t kind, after;
  const char* notice;  // how the violation begins
};

// A worker joins, so that state moves.
struct Joins : Schedule {
  using Schedule::Schedule;
  void on_moment(WorkerProcess&, Moment moment, Version version) override {
    if (moment != Moment::kVoted || version != 3 || done) return;
    done = true;
    world.start_worker(3);
  }
  bool done = false;
};

Verdict run_with(const Planted* planted) {
  Settings s;
  s.seed = 41;
  s.steps = 14;
  s.replicas = 1;
  s.deadline = 30 * kSecond;
  if (planted) {
    s.plant_order = planted->fault;
    s.plant_order_kind = planted->kind;
    s.plant_order_after = planted->after;
  }
  return run_schedule(s, [](World& world) { return std::make_unique<Joins>(world); });
}

constexpr const char* kCheck = "a check failed in the process";

TEST_CASE("orders: one that is carried out twice, left out or after another is noticed") {
  CHECK(run_with(nullptr).violation == "");
  const auto twice = OrderFault::kTwice, out = OrderFault::kLeftOut,
             after = OrderFault::kAfterAnother;
  const Planted table[] = {
      {"EndShare twice", twice, index_of<EndShare>(), 0, kCheck},
      {"SendVote twice", twice, index_of<SendVote>(), 0, "R3: "},
      {"Apply twice", twice, index_of<Apply>(), 0, "R4, R6: "},
      {"StartGather twice", twice, index_of<StartGather>(), 0, kCheck},
      {"SetVersion left out", out, index_of<SetVersion>(), 0, "P5: "},
      {"OpenStep left out", out, index_of<OpenStep>(), 0, kCheck},
      {"StartReduce left out", out, index_of<StartReduce>(), 0, kCheck},
      {"SendVote left out", out, index_of<SendVote>(), 0, "P5: "},
      {"Apply left out", out, index_of<Apply>(), 0, "R13: "},
      {"ClearAccumulators left out", out, index_of<ClearAccumulators>(), 0, "R3: "},
      {"ComputeDigest left out", out, index_of<ComputeDigest>(), 0, "P5: "},
      {"Hold left out", out, index_of<Hold>(), 0, "R13: "},
      {"SetVersion after StartReduce", after, index_of<SetVersion>(), index_of<StartReduce>(),
       "P5: "},
      {"OpenStep after StartReduce", after, index_of<OpenStep>(), index_of<StartReduce>(), kCheck},
      {"StartReduce after EndShare", after, index_of<StartReduce>(), index_of<EndShare>(), kCheck},
      {"Apply after StartGather", after, index_of<Apply>(), index_of<StartGather>(), "R13: "},
      {"StartGather after StartReduce", after, index_of<StartGather>(), index_of<StartReduce>(),
       "P5: "},
      {"ClearAccumulators after StartReduce", after, index_of<ClearAccumulators>(),
       index_of<StartReduce>(), "R3: "},
      {"ClearAccumulators after EndShare", after, index_of<ClearAccumulators>(),
       index_of<EndShare>(), "R7: "},
      {"SendVote after StartReduce", after, index_of<SendVote>(), index_of<StartReduce>(), "R4: "},
      {"SendMove after StartGather", after, index_of<SendMove>(), index_of<StartGather>(), kCheck},
      {"Hold after OpenStep", after, index_of<Hold>(), index_of<OpenStep>(), "R13: "},
  };
  for (const Planted& planted : table) {
    CAPTURE(planted.what);
    CHECK(run_with(&planted).violation.find(planted.notice) == 0);
  }
}

}  // namespace
}  // namespace starling::sim
