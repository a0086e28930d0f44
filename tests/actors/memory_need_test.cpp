#include "actors/worker/memory_need.h"

#include <doctest/doctest.h>

#include <string>

#include "core/job/layout.h"

namespace starling::actors {
namespace {

// A model of a mebi parameters: 8 MiB of parameters and sums, and the gradient of its largest part.
struct Needs {
  Job job;
  const Layout layout{{{"a", {1 << 19}}, {"b", {1 << 19}}}};
  std::uint64_t least = 0;
  Needs() {
    // No part of the state: of a group that is large enough, each worker's is nothing.
    least = memory_of_worker(job, layout, 1 << 20, 1).host;
  }
};

TEST_CASE("memory: what a worker needs falls with the size of the group, to parameters and sums") {
  const Needs needs;
  const auto of = [&](std::uint32_t workers) {
    return memory_of_worker(needs.job, needs.layout, workers, 1).host;
  };
  CHECK(of(1) > of(4));
  CHECK(of(4) > of(16));
  CHECK(needs.least >= 8u << 20);
  CHECK(needs.least < of(1024));
}

TEST_CASE("memory: a machine that has too little, or too little left, is refused in a line") {
  const Needs needs;
  const auto refusal = [&](std::uint64_t memory, std::uint64_t free) {
    Machine machine;
    machine.memory = memory;
    machine.memory_free = free;
    const auto answer = enough_memory_for_one(needs.job, needs.layout, 1, machine);
    return answer ? std::string() : answer.error().text();
  };
  const std::uint64_t much = std::uint64_t{1} << 30;
  CHECK(refusal(much, much).empty());
  CHECK(refusal(0, 0).empty());  // not known
  CHECK(refusal(needs.least + 1024, needs.least + 1024).empty());
  const std::string need = memory_text(needs.least);
  CHECK(refusal(5 << 20, 5 << 20) ==
        "not enough memory: a worker of this job needs at least " + need + ", there is 5120 KiB");
  CHECK(refusal(much, 2 << 20) == "not enough memory: a worker of this job needs at least " + need +
                                      ", there is 2048 KiB free of 1.0 GiB");
}

TEST_CASE("memory: each thread that computes needs a gradient more") {
  const Needs needs;
  Machine machine;
  machine.memory = machine.memory_free = needs.least + 1024;
  CHECK(enough_memory_for_one(needs.job, needs.layout, 1, machine));
  CHECK(!enough_memory_for_one(needs.job, needs.layout, 8, machine));
}

}  // namespace
}  // namespace starling::actors
