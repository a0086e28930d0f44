#include "core/text/documents.h"

#include <doctest/doctest.h>

#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {

TEST_CASE("documents: a file of text is one, a line of JSON lines is one, in their order") {
  const DataFolder folder;
  const std::string
      a = folder.write("a.txt", "first\nfile"),
      empty = folder.write("b.txt", ""),
      lines = folder.write(
          "c.jsonl", "{\"text\":\"one\"}\r\n\n{\"text\":\"\",\"x\":[1]}\n{\"text\":\"t\\u00fc\"}"),
      last = folder.write("d", "last");
  for (const std::uint64_t at_once : {1u, 1000u}) {
    Documents documents({a, empty, lines, last}, "text");
    std::vector<Document> all;
    for (;;) {
      auto some = documents.next(at_once).value();
      if (some.empty()) break;
      if (at_once == 1) CHECK(some.size() == 1);
      for (auto& one : some) all.push_back(std::move(one));
    }
    REQUIRE(all.size() == 4);
    CHECK(all[0].text == "first\nfile");
    CHECK(all[1].text == "one");
    CHECK(all[2].text == "t\u00fc");
    CHECK(all[2].place == lines + ", line 4");
    CHECK(all[3].text == "last");
    CHECK(all[3].place == last);
  }
}

TEST_CASE("documents: what is no document is an error with its file and line") {
  const DataFolder folder;
  const auto error = [&](const std::string& lines) {
    const std::string path = folder.write("x.jsonl", "{\"body\":\"good\"}\n" + lines);
    Documents documents({path}, "body");
    const auto some = documents.next(1000);
    REQUIRE(!some);
    CHECK(has(some.error().text(), path + ", line 2"));
    return some.error().text();
  };
  CHECK(has(error("{\"text\":\"a\"}"), "has no \"body\""));
  CHECK(has(error("{\"body\":1}"), "has no text in \"body\""));
  CHECK(has(error("[\"body\"]"), "is no object"));
  CHECK(has(error("{\"body\":\"a\",\"body\":\"b\"}"), "twice"));
  CHECK(has(error("{\"body\":\"a\""), "is not JSON"));
  CHECK(has(error("{\"body\":\"\\ud800\"}"), "is not JSON"));
  CHECK(has(error("{\"body\":\"\xff\"}"), "is not JSON"));
  CHECK(has(error("\xef\xbb\xbf{\"body\":\"a\"}"), "byte order mark"));
  CHECK(has(error("{\"a\":" + std::string(100000, '[')), "nested deeper"));
  Documents none({folder.path() + "/none"}, "text");
  CHECK(has(none.next(1).error().text(), "no such file"));
}

}  // namespace starling
