#include "tools/replay/scenario.h"

#include <doctest/doctest.h>

namespace starling::replay {
namespace {

using chaos::Fault;
using chaos::FaultKind;
namespace faults = chaos::faults;
using Names = std::vector<std::string>;

// a and b are there; c comes at 300 s, a and b go at 600 s, c at 660 s.
const Trace kTrace{
    {{0, {"a", "b"}, {}}, {300'000, {"c"}, {}}, {600'000, {}, {"a", "b"}}, {660'000, {}, {"c"}}}};

chaos::Plan plan(const Stretch& stretch, const Trace& trace = kTrace) {
  auto made = plan_of(trace, stretch);
  REQUIRE_MESSAGE(made, made.error().text());
  return made.value();
}

Fault fault(const FaultKind* kind, double at_s, Names nodes, double for_s = 0) {
  Fault made;
  made.kind = kind;
  made.at_s = at_s;
  made.count = static_cast<std::uint32_t>(nodes.size());
  made.nodes = std::move(nodes);
  made.for_s = for_s;
  return made;
}

}  // namespace

TEST_CASE("unannounced: who goes in one instant is killed in one instant") {
  const auto made = plan({0, 660'000, 60, std::nullopt});
  CHECK(made.workers == 2);
  CHECK(made.nodes == Names{"a", "b"});
  CHECK(made.faults == std::vector{fault(&faults::kJoin, 5, {"c"}),
                                   fault(&faults::kKill, 10, {"a", "b"}),
                                   fault(&faults::kKill, 11, {"c"})});
}

TEST_CASE("announced: told the notice before, scaled, and taken at the trace's time") {
  const auto made = plan({0, 660'000, 60, 120});
  CHECK(made.faults == std::vector{fault(&faults::kJoin, 5, {"c"}),
                                   fault(&faults::kLeave, 8, {"a", "b"}, 2),
                                   fault(&faults::kLeave, 9, {"c"}, 2)});
}

TEST_CASE("a notice begins neither before the stretch nor before the node comes") {
  const auto late = plan({540'000, 660'000, 60, 120});
  CHECK(late.nodes == Names{"a", "b", "c"});
  CHECK(late.faults ==
        std::vector{fault(&faults::kLeave, 0, {"a", "b"}, 1), fault(&faults::kLeave, 0, {"c"}, 2)});
  const auto short_lived = plan({0, 660'000, 60, 480});
  CHECK(short_lived.faults == std::vector{fault(&faults::kLeave, 2, {"a", "b"}, 8),
                                          fault(&faults::kJoin, 5, {"c"}),
                                          fault(&faults::kLeave, 5, {"c"}, 6)});
}

TEST_CASE("a stretch begins with who is there then, and leaves out what comes after it") {
  const auto made = plan({300'000, 600'000, 600, std::nullopt});
  CHECK(made.nodes == Names{"a", "b", "c"});
  CHECK(made.faults == std::vector{fault(&faults::kKill, 0.5, {"a", "b"})});
  const auto nodes = nodes_over_time(kTrace, {0, 660'000, 60, std::nullopt});
  REQUIRE(nodes.size() == 4);
  CHECK(nodes[0].value == 2);
  CHECK(nodes[1].t == 5);
  CHECK(nodes[1].value == 3);
  CHECK(nodes[3].value == 0);
}

TEST_CASE("a stretch that begins with nobody is refused") {
  auto made = plan_of({{{0, {"a"}, {}}, {1000, {}, {"a"}}, {2000, {"b"}, {}}}},
                      {1000, 2000, 60, std::nullopt});
  REQUIRE_FALSE(made);
  CHECK(made.error().text().find("nobody is there at 1 s") != std::string::npos);
}

TEST_CASE("a plan of a trace reads back from its file") {
  auto made = plan({0, 660'000, 60, 120});
  made.steps = 5;
  auto read = chaos::parse_plan(chaos::format_plan(made));
  REQUIRE_MESSAGE(read, read.error().text());
  CHECK(read.value() == made);
}

}  // namespace starling::replay
