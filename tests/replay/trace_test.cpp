#include "tools/replay/trace.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace starling::replay {
namespace {

using Names = std::vector<std::string>;

Trace trace_of(const std::string& text, std::uint64_t seed = 1) {
  auto trace = parse_trace(text, seed);
  REQUIRE_MESSAGE(trace, trace.error().text());
  return trace.value();
}

std::string refusal(const std::string& text) {
  auto trace = parse_trace(text);
  return trace ? "accepted" : trace.error().text();
}

}  // namespace

TEST_CASE("names: what happens in one instant is one change") {
  const Trace trace =
      trace_of("0,add,a\n0,add,b\r\n60000,remove,a\n60000,add,c\n120000,remove,c\n");
  REQUIRE(trace.changes.size() == 3);
  CHECK(trace.changes[0] == Change{0, {"a", "b"}, {}});
  CHECK(trace.changes[1] == Change{60000, {"c"}, {"a"}});
  CHECK(trace.end_ms() == 120000);
  CHECK(trace.present(0) == Names{"a", "b"});
  CHECK(trace.present(119999) == Names{"b", "c"});
  CHECK(trace.present(120000) == Names{"b"});
  CHECK(trace.most(0, 120000) == 2);
  CHECK(trace.most(120000, 120000) == 1);
}

// Who goes is drawn: another seed may take others, never more or fewer.
TEST_CASE("counts: so many come or go, and who goes is a function of the seed") {
  const std::string text = "0,40\n1000,10\n2000,12\n3000,12\n4000,0\n";
  const Trace trace = trace_of(text);
  REQUIRE(trace.changes.size() == 5);
  CHECK(trace.changes[0].added.size() == 40);
  CHECK(trace.changes[1].removed.size() == 30);
  CHECK(trace.changes[2].added == Names{"instance-41", "instance-42"});
  CHECK(trace.changes[3] == Change{3000, {}, {}});
  CHECK(trace.present(4000).empty());
  CHECK(trace.most(500, 4000) == 40);
  CHECK(trace.most(1000, 4000) == 12);
  CHECK(trace_of(text) == trace);
  CHECK(trace_of(text, 2).changes[1].removed != trace.changes[1].removed);
  std::set<std::string> gone;
  for (const Change& change : trace.changes)
    for (const auto& node : change.removed) CHECK(gone.insert(node).second);
}

TEST_CASE("one node in so many stays, with its coming and going") {
  const Trace trace = trace_of("0,add,a\n0,add,b\n0,add,c\n5,add,d\n7,remove,a\n9,remove,b\n");
  const Trace thin = thinned(trace, 3);
  CHECK(thin.present(0) == Names{"a"});
  CHECK(thin.present(5) == Names{"a", "d"});
  CHECK(thin.present(7) == Names{"d"});
  CHECK(thin.end_ms() == 9);
  CHECK(thinned(trace, 1) == trace);
}

TEST_CASE("the first wrong line is named, and what was expected") {
  const struct {
    std::string text, word, line;
  } cases[] = {
      {"", "at least one line", ""},
      {"0,add,a\n\n", "expected time_ms", "line 2"},
      {"0,add,a\n5\n", "expected time_ms", "line 2"},
      {"0,add,a,b\n", "expected time_ms", "line 1"},
      {"0,add,a\n9,12\n", "other form", "line 2"},
      {"0,12\n9,add,a\n", "other form", "line 2"},
      {"-1,add,a\n", "time_ms must be", "line 1"},
      {"1.5,add,a\n", "time_ms must be", "line 1"},
      {" 1,add,a\n", "time_ms must be", "line 1"},
      {"99999999999999999999,5\n", "time_ms must be", "line 1"},
      {"316224000001,5\n", "time_ms must be", "line 1"},
      {"0,add,a\n9,add,b\n8,add,c\n", "goes back from 9 to 8", "line 3"},
      {"0,Add,a\n", "add or remove", "line 1"},
      {"time_ms,op,node\n", "time_ms must be", "line 1"},
      {"0,add,\n", "node must be", "line 1"},
      {"0,add,a b\n", "node must be", "line 1"},
      {"0,add," + std::string(65, 'x') + "\n", "node must be", "line 1"},
      {"0,add,a\n5,add,a\n", "comes twice", "line 2"},
      {"0,add,a\n5,remove,a\n9,add,a\n", "comes twice", "line 3"},
      {"0,add,a\n5,remove,b\n", "is not there", "line 2"},
      {"0,add,a\n5,remove,a\n6,remove,a\n", "is not there", "line 3"},
      {"0,add,a\n0,remove,a\n", "in one instant", "line 2"},
      {"0,5\n0,6\n", "second count", "line 2"},
      {"0,five\n", "count must be", "line 1"},
      {"0,10001\n", "count must be", "line 1"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const std::string said = refusal(c.text);
    CHECK_MESSAGE(said.find(c.word) != std::string::npos, said);
    CHECK_MESSAGE(said.find(c.line) != std::string::npos, said);
    CHECK(said.size() < 300);
  }
}

TEST_CASE("a file that is not there, or is too large, is refused") {
  const auto path =
      std::filesystem::temp_directory_path() / ("starling-trace-" + std::to_string(::getpid()));
  auto missing = load_trace(path.string());
  REQUIRE_FALSE(missing);
  CHECK(missing.error().text().find("no such file") != std::string::npos);
  std::ofstream(path) << "0,3\n10,2\n";
  auto there = load_trace(path.string());
  REQUIRE(there);
  CHECK(there.value().end_ms() == 10);
  std::filesystem::resize_file(path, kTraceBytesMax + 1);
  auto large = load_trace(path.string());
  std::filesystem::remove(path);
  REQUIRE_FALSE(large);
  CHECK(large.error().text().find("16 MiB") != std::string::npos);
}

}  // namespace starling::replay
