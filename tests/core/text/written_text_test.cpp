#include "core/text/written_text.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/text/utf8.h"

namespace starling {
namespace {

// What is shown of these bytes, one piece for each; the last is what was held back.
std::vector<std::string> shown(const std::string& bytes, std::vector<std::string> stops = {}) {
  WrittenText text(std::move(stops));
  std::vector<std::string> all;
  for (const char byte : bytes) all.push_back(text.add({&byte, 1}));
  all.push_back(text.rest());
  return all;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("written text: characters are shown whole") {
  CHECK(shown("a\u00fc\u65e5") == Texts{"a", "", "\u00fc", "", "", "\u65e5", ""});
  CHECK(shown("\U0001f600") == Texts{"", "", "", "\U0001f600", ""});
  CHECK(shown("\xe6\x97") == Texts{"", "", "\ufffd"});        // the end comes within a character
  CHECK(shown("\x80\xff") == Texts{"\ufffd", "", "\ufffd"});  // no characters
  CHECK(shown("\xe6zz") == Texts{"", "\ufffdz", "z", ""});
}

TEST_CASE("utf-8: what is none is replaced, a beginning that does not go on by one character") {
  CHECK(with_replacements("a\u00fc\u65e5\U0001f600") == "a\u00fc\u65e5\U0001f600");
  CHECK(with_replacements("\xe6\x97z") == "\ufffdz");
  CHECK(with_replacements("\xf0\x9f\x98\xf0\x9f\x98\x80") == "\ufffd\U0001f600");
  CHECK(with_replacements("\xc0\x80\xed\xa0\x80\xff") == "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
  CHECK(!not_utf8("\u00fc\ud7ff\ue000\U0010ffff"));
  CHECK(not_utf8("a\xf4\x90\x80\x80") == 1);
}

TEST_CASE("written text: ends before the first stop, however it is cut into pieces") {
  CHECK(shown("ab##c", {"##"}) == Texts{"a", "b", "", "", "", ""});
  CHECK(shown("a#b", {"##"}) == Texts{"a", "", "#b", ""});
  CHECK(shown("a#", {"##"}) == Texts{"a", "", "#"});
  CHECK(shown("xaab", {"aab", "q"}) == Texts{"x", "", "", "", ""});
  WrittenText text({"END", "\n\n"});
  CHECK(text.add("one\n") == "one");
  CHECK(!text.over());
  CHECK(text.add("two E") == "\ntwo ");
  CHECK(text.add("ND three") == "");
  CHECK(text.over());
  CHECK(text.add("four") == "");
  CHECK(text.rest() == "");
}

}  // namespace starling
