#include "tools/judge/audit/history.h"

#include <doctest/doctest.h>

#include "tests/judge/histories.h"

namespace starling::audit {

TEST_CASE("lines that are none are named") {
  const auto refused = [](const std::function<void(Lines&)>& change, const char* why) {
    Lines lines = good_run();
    change(lines);
    const auto history = history_of(lines);
    REQUIRE_FALSE(history);
    CHECK(history.error().code() == Code::kBadInput);
    CAPTURE(history.error().text());
    CHECK(has(history.error().text(), why));
  };
  refused([](Lines& l) { l.clear(); }, "has no `start`");
  refused([](Lines& l) { l.erase(l.begin()); }, "line 1 is not `start`");
  refused([](Lines& l) { l.insert(l.begin() + 3, l[0]); }, "line 4 is a second `start`");
  refused([](Lines& l) { l[6] = l[6].substr(0, 30); }, "line 7 is not a JSON object");
  refused([](Lines& l) { l[6] = "[1]"; }, "line 7 is not a JSON object");
  refused([](Lines& l) { l[6] = "\xff\xfe"; }, "line 7 is not a JSON object");
  refused([](Lines& l) { l[6] = "{}"; }, "line 7 has no `ev`");
  refused(edit(6, "\"version\":0", "\"version\":-1"), "line 7 step: has a wrong `version`");
  refused(edit(6, "\"version\":0", "\"version\":1e3"), "line 7 step: has a wrong `version`");
  refused(edit(6, "\"epoch\":\"1.1\"", "\"epoch\":\"1,1\""), "has a wrong `epoch`");
  refused(edit(6, "\"epoch\":\"1.1\",", ""), "line 7 step: has no `epoch`");
  refused(edit(6, digest_of(0), "abc"), "has a wrong `digest`, expected 32 hex digits");
  refused(edit(7, "[0,1]", "[0]"), "line 8 ledger: has a wrong `workers`");
  refused(edit(7, "[0,1]", "[0,-1]"), "line 8 ledger: has a wrong `workers`");
  refused(edit(5, "\"id\":1", "\"id\":\"x\""), "line 6 epoch: has a wrong `members`");
  refused(edit(0, "\"micro_batches\":2", "\"micro_batches\":0"), "has a wrong `micro_batches`");
  refused(edit(0, "\"micro_batches\":2", "\"micro_batches\":99999"), "at most 4096");
  HistoryReader reader;
  const auto long_line = reader.take(std::string(kLineBytesMax + 1, ' '));
  REQUIRE_FALSE(long_line);
  CHECK(has(long_line.error().text(), "line 1 is longer than 64 MiB"));
}

TEST_CASE("a kind of a newer build is passed over") {
  CHECK(changed([](Lines& l) { l.insert(l.begin() + 9, R"({"t":1,"ev":"weather"})"); }).lines ==
        24);
}

}  // namespace starling::audit
