// A pass reads a part only when all of it is there at the pass's version.

#include "actors/worker/arrivals.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

using namespace starling;
using namespace starling::actors;
using std::chrono::nanoseconds;

namespace {

// Two parts: the first of at least two segments.
Layout two_parts() {
  return Layout({{.name = "a", .shape = {8 * kBlock}, .layer = 0},
                 {.name = "b", .shape = {kBlock}, .layer = 1}},
                Layout::kSegmentBlocksMin);
}

}  // namespace

TEST_CASE("arrivals: a part is there with the last of its segments") {
  const Layout layout = two_parts();
  const SegmentRange first = layout.parts()[0].segments;
  REQUIRE(first.count >= 2);
  Arrivals arrivals(layout);
  std::atomic<bool> through = false;
  std::thread pass([&] {
    arrivals.wait(0, 5);
    through = true;
  });
  for (const SegmentId s : first) {
    CHECK(!through);
    CHECK(!arrivals.has(s, 5));
    arrivals.note(s, 5);
    CHECK(arrivals.has(s, 5));
  }
  pass.join();
  CHECK(arrivals.wait(0, 5) == nanoseconds(0));
}

TEST_CASE("arrivals: another version of a part, or another part, ends no wait") {
  const Layout layout = two_parts();
  Arrivals arrivals(layout);
  std::atomic<bool> through = false;
  std::thread pass([&] {
    arrivals.wait(1, 6);
    through = true;
  });
  for (const SegmentId s : layout.parts()[0].segments) arrivals.note(s, 6);
  for (const SegmentId s : layout.parts()[1].segments) arrivals.note(s, 5);
  CHECK(!through);
  for (const SegmentId s : layout.parts()[1].segments) arrivals.note(s, 6);
  pass.join();
}

TEST_CASE("arrivals: a gather that is begun again notes only what was lacking") {
  const Layout layout = two_parts();
  const SegmentRange first = layout.parts()[0].segments;
  Arrivals arrivals(layout);
  arrivals.note(first.first, 7);
  for (const SegmentId s : first) arrivals.note(s, 3);  // from a checkpoint, between the two
  for (const SegmentId s : first) arrivals.note(s, 7);
  for (const SegmentId s : first) arrivals.note(s, 7);
  CHECK(arrivals.wait(0, 7) == nanoseconds(0));
}

TEST_CASE("arrivals: what was written before the note is seen after the wait") {
  const Layout layout = two_parts();
  Arrivals arrivals(layout);
  std::vector<int> memory(layout.segments());
  for (Version v = 0; v < 200; ++v) {
    std::thread pass([&] {
      for (PartId p = 0; p < layout.parts().size(); ++p) {
        arrivals.wait(p, v);
        for (const SegmentId s : layout.parts()[p].segments) CHECK(memory[s] == int(v + 1));
      }
    });
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      memory[s] = static_cast<int>(v + 1);
      arrivals.note(s, v);
    }
    pass.join();
  }
}

TEST_CASE("arrivals: a wait ends with the life that it is in") {
  const Layout layout = two_parts();
  Arrivals arrivals(layout);
  std::atomic<bool> cancelled = false;
  std::thread pass([&] { cancelled = !arrivals.wait(0, 1); });
  arrivals.cancel();
  pass.join();
  CHECK(cancelled);
  CHECK_FALSE(arrivals.wait(1, 1));
}
