#include "core/text/documents.h"

#include <doctest/doctest.h>

#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {
namespace {

// Of a document that is one text.
std::string text_of(const Document& document) {
  REQUIRE(document.stretches.size() == 1);
  CHECK(document.stretches[0].learned);
  return document.stretches[0].text;
}

}  // namespace

TEST_CASE("documents: a file of text is one, a line of JSON lines is one, in their order") {
  const DataFolder folder;
  const std::string
      a = folder.write("a.txt", "first\nfile"),
      empty = folder.write("b.txt", ""),
      lines = folder.write(
          "c.jsonl", "{\"text\":\"one\"}\r\n\n{\"text\":\"\",\"x\":[1]}\n{\"text\":\"t\\u00fc\"}"),
      last = folder.write("d", "last");
  for (const std::uint64_t at_once : {1u, 1000u}) {
    Documents documents({a, empty, lines, last}, {});
    std::vector<Document> all;
    for (;;) {
      auto some = documents.next(at_once).value();
      if (some.empty()) break;
      if (at_once == 1) CHECK(some.size() == 1);
      for (auto& one : some) all.push_back(std::move(one));
    }
    REQUIRE(all.size() == 4);
    CHECK(text_of(all[0]) == "first\nfile");
    CHECK(text_of(all[1]) == "one");
    CHECK(text_of(all[2]) == "t\u00fc");
    CHECK(all[2].place == lines + ", line 4");
    CHECK(text_of(all[3]) == "last");
    CHECK(all[3].place == last);
  }
}

TEST_CASE("documents: a prompt is read and its answer learned") {
  const DataFolder folder;
  const std::string path = folder.write(
      "x.jsonl",
      "{\"q\":\"2+2?\",\"a\":\" 4\"}\n{\"q\":\"\",\"a\":\"alone\"}\n{\"q\":\"none\",\"a\":\"\"}");
  Documents documents({path}, {.field = "a", .prompt = "q"});
  const auto first = documents.next(1).value(), second = documents.next(1).value();
  REQUIRE(first.size() == 1);
  REQUIRE(first[0].stretches.size() == 2);
  CHECK(first[0].stretches[0].text == "2+2?");
  CHECK_FALSE(first[0].stretches[0].learned);
  CHECK(first[0].stretches[1].text == " 4");
  CHECK(first[0].stretches[1].learned);
  CHECK(text_of(second.at(0)) == "alone");
  const auto third = documents.next(1);
  CHECK(has(third.error().text(), "has an empty text in \"a\""));
  CHECK(has(third.error().text(), path + ", line 3"));
  Documents texts({folder.write("x.txt", "text")}, {.field = "a", .prompt = "q"});
  CHECK(has(texts.next(1).error().text(), "expected lines with prompts or chats"));
  Documents lacks({path}, {.field = "a", .prompt = "p"});
  CHECK(has(lacks.next(1).error().text(), "has no \"p\", which --prompt-field names"));
}

TEST_CASE("documents: what is no document is an error with its file and line") {
  const DataFolder folder;
  const auto error = [&](const std::string& lines) {
    const std::string path = folder.write("x.jsonl", "{\"body\":\"good\"}\n" + lines);
    Documents documents({path}, {.field = "body"});
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
  CHECK(has(error("{\"body\":\"a\"}" + std::string(1, '\0') + "x"), "is not JSON"));
  Documents none({folder.path() + "/none"}, {});
  CHECK(has(none.next(1).error().text(), "no such file"));
}

}  // namespace starling
