#include "core/data/lanes.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace starling {
namespace {

struct Shape {
  std::uint64_t chunks;
  std::uint32_t samples, lanes;
};
constexpr Shape kShapes[] = {{1, 1, 1},  {1, 5, 1},  {3, 1, 3},  {7, 3, 2},
                             {50, 3, 4}, {64, 2, 4}, {100, 4, 7}};

}  // namespace

TEST_CASE("lanes: each sample is once in every pass, and its place leads back to its position") {
  constexpr std::uint64_t kPasses = 3;
  for (const Shape& s : kShapes) {
    CAPTURE(s.chunks);
    CAPTURE(s.lanes);
    const Lanes lanes(11, s.chunks, s.samples, s.lanes);
    std::map<std::uint64_t, std::set<std::uint64_t>> seen;  // by pass
    for (std::uint32_t lane = 0; lane < s.lanes; ++lane) {
      const std::uint64_t end = lanes.chunks_before(kPasses) + 1;
      std::uint64_t pass = 0;
      for (std::uint64_t p = 0; p < end * s.samples; ++p) {
        const LanePlace place = lanes.place_of(lane, p);
        REQUIRE(place.chunk < s.chunks);
        REQUIRE(place.sample < s.samples);
        CHECK(seen[place.pass].insert(place.chunk * s.samples + place.sample).second);
        CHECK(lanes.position_of(place) == std::pair(lane, p));
        CHECK(place.pass >= pass);  // a lane ends a pass before it begins the next one
        pass = place.pass;
        CHECK(lanes.chunks_before(pass) * s.samples <= p);
      }
    }
    for (std::uint64_t pass = 0; pass < kPasses; ++pass)
      CHECK(seen[pass].size() == s.chunks * s.samples);
  }
}

TEST_CASE("lanes: a window is of one lane and one pass, and as long as its neighbours") {
  const Lanes lanes(3, 402, 6, 4);  // 100 and 101 chunks a lane: windows of 25 and 26
  std::set<std::uint64_t> all;
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    const std::uint64_t of_pass = lane < 2 ? 101 : 100;
    for (std::uint64_t at = 0; at < of_pass;) {
      const LaneWindow window = lanes.window_of(lane, at);
      CHECK(window.first == at);
      CHECK((window.chunks() == 25 || window.chunks() == 26));
      std::set<std::uint64_t> read, named;
      for (std::uint64_t p = window.first * 6; p < window.behind * 6; ++p) {
        read.insert(lanes.place_of(lane, p).chunk);
        CHECK(lanes.place_of(lane, p).pass == 0);
      }
      for (std::uint64_t i = window.first; i < window.behind; ++i) {
        CHECK(lanes.window_of(lane, i) == window);
        named.insert(lanes.chunk_of(lane, i));
      }
      CHECK(read == named);
      CHECK(read.size() == window.chunks());
      all.merge(read);
      CHECK(read.empty());  // no chunk twice in a pass
      at = window.behind;
    }
    CHECK(lanes.place_of(lane, of_pass * 6).pass == 1);
  }
  CHECK(all.size() == 402);
}

TEST_CASE("lanes: few chunks make short windows") {
  const Lanes few(1, 7, 5, 4);
  CHECK(few.window_of(0, 0) == LaneWindow{0, 2});
  CHECK(few.window_of(3, 0) == LaneWindow{0, 1});
  CHECK(Lanes(1, 128, 5, 4).window_of(0, 3) == LaneWindow{0, 32});
  CHECK(Lanes(1, 132, 5, 4).window_of(0, 3) == LaneWindow{0, 16});
}

TEST_CASE("lanes: another seed, another order; samples that follow are of many chunks") {
  const Lanes one(1, 500, 4, 2), other(2, 500, 4, 2);
  int same = 0, neighbours = 0;
  for (std::uint64_t p = 0; p < 200; ++p) {
    same += one.place_of(0, p) == other.place_of(0, p);
    neighbours += one.place_of(0, p).chunk == one.place_of(0, p + 1).chunk;
  }
  CHECK(same < 10);
  CHECK(neighbours < 40);  // of 32 chunks: 6 are expected
}

TEST_CASE("the order of lanes never changes between versions: it is part of a job's bits") {
  // From a second implementation, in Python.
  const Lanes lanes(7, 150, 3, 4);
  const std::pair<std::uint32_t, std::uint64_t> positions[] = {
      {0, 0}, {1, 0}, {3, 5}, {2, 100}, {3, 1000}};
  const LanePlace expected[] = {{0, 12, 1}, {0, 16, 2}, {0, 91, 1}, {0, 94, 1}, {8, 59, 1}};
  for (std::size_t i = 0; i < std::size(expected); ++i)
    CHECK(lanes.place_of(positions[i].first, positions[i].second) == expected[i]);
}

}  // namespace starling
