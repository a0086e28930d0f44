#include "core/text/tokenizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/has.h"

namespace starling {
namespace {

const std::string kFixtures = "tests/fixtures/bpe/";

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

// A small tokenizer.json, to be changed in one place.
nlohmann::json small() {
  return nlohmann::json::parse(text_of(kFixtures + "gpt2.json"));
}

std::string error(const nlohmann::json& json) {
  const auto parsed = parse_tokenizer(json.dump());
  if (parsed) return "no error";
  CHECK(parsed.error().code() == Code::kBadInput);
  return parsed.error().text();
}

std::vector<std::uint32_t> encoded(const Tokenizer& tokenizer, const std::string& text,
                                   Marks marks) {
  std::vector<std::uint32_t> tokens;
  Encoder encoder(tokenizer, marks);
  REQUIRE(encoder.encode(text, tokens));
  return tokens;
}

}  // namespace

// tests/pytorch/tokens.py has written the tokens of `tokenizers` there.
TEST_CASE("tokenizer: tokens are those of the reference, and back they are the text") {
  const auto cases = nlohmann::json::parse(text_of(kFixtures + "cases.json"));
  REQUIRE(cases.size() == 4);
  for (const auto& [name, rows] : cases.items()) {
    const Tokenizer tokenizer(read_tokenizer(kFixtures + name + ".json").value());
    REQUIRE(rows.size() > 50);
    Encoder encoder(tokenizer);  // one for all: what it has met before changes nothing
    for (const auto& row : rows) {
      const auto text = row[0].get<std::string>();
      CAPTURE(text);
      std::vector<std::uint32_t> tokens;
      REQUIRE(encoder.encode(text, tokens));
      CHECK(tokens == row[1].get<std::vector<std::uint32_t>>());
      CHECK(encoded(tokenizer, text, Marks::kText) == tokens);
      CHECK(tokenizer.decode(tokens) == text);
      CHECK(encoded(tokenizer, text, Marks::kTokens) == row[2].get<std::vector<std::uint32_t>>());
    }
  }
}

TEST_CASE("tokenizer: a mark in a text is text, unless it is asked for") {
  const Tokenizer tokenizer(read_tokenizer(kFixtures + "gpt2.json").value());
  const auto end = tokenizer.find("<|endoftext|>");
  REQUIRE(end.has_value());
  const std::string text = "a<|endoftext|>b";
  const auto as_text = encoded(tokenizer, text, Marks::kText);
  CHECK(std::find(as_text.begin(), as_text.end(), *end) == as_text.end());
  CHECK(tokenizer.decode(as_text) == text);
  const std::vector<std::uint32_t> as_mark{*tokenizer.find("a"), *end, *tokenizer.find("b")};
  CHECK(encoded(tokenizer, text, Marks::kTokens) == as_mark);
}

TEST_CASE("tokenizer: an added token that is no mark is found always") {
  auto json = small();
  json["added_tokens"].push_back(
      {{"id", 400}, {"content", "<tool>"}, {"special", false}, {"lstrip", false}});
  const Tokenizer tokenizer(parse_tokenizer(json.dump()).value());
  CHECK(tokenizer.vocabulary() == 401);
  CHECK(encoded(tokenizer, "<tool>", Marks::kText) == std::vector<std::uint32_t>{400});
}

// Each as tokenizers 0.23.3 has it.
TEST_CASE("tokenizer: added tokens that are of the vocabulary, hide others, or come first") {
  const auto with = [](const std::vector<nlohmann::json>& added) {
    auto json = small();
    for (const auto& one : added) json["added_tokens"].push_back(one);
    return Tokenizer(parse_tokenizer(json.dump()).value());
  };
  const auto token = [](int id, const char* content, bool special, bool normalized) {
    return nlohmann::json{
        {"id", id}, {"content", content}, {"special", special}, {"normalized", normalized}};
  };
  using Ids = std::vector<std::uint32_t>;
  const auto of = [&](const Tokenizer& t, const char* text) { return *t.find(text); };
  {
    // A mark that is also a byte: text has that byte all the same.
    const auto byte = small()["model"]["vocab"]["!"].get<int>();
    const Tokenizer t = with({token(byte, "!", true, false)});
    CHECK(encoded(t, "a!b", Marks::kText) == Ids{of(t, "a"), of(t, "!"), of(t, "b")});
    CHECK(encoded(t, "!", Marks::kTokens) == Ids{static_cast<std::uint32_t>(byte)});
  }
  {
    const Tokenizer t = with({token(400, "<|abc|>", true, false), token(401, "abc", false, false)});
    CHECK(encoded(t, "xabcy", Marks::kText) == Ids{of(t, "x"), 401, of(t, "y")});
    const Ids hidden = encoded(t, "x<|abc|>y", Marks::kText);
    CHECK(std::find(hidden.begin(), hidden.end(), 401) == hidden.end());
    CHECK(encoded(t, "x<|abc|>y", Marks::kTokens) == Ids{of(t, "x"), 400, of(t, "y")});
  }
  {
    const Tokenizer t = with({token(400, "wab", false, true), token(401, "bcy", false, false)});
    CHECK(encoded(t, "wabcy", Marks::kText) == Ids{of(t, "w"), of(t, "a"), 401});
  }
  {
    std::vector<nlohmann::json> many;
    for (int i = 0; i < 3000; ++i)
      many.push_back(token(
          400 + i, ("<|reserved_special_token_" + std::to_string(i) + "|>").c_str(), true, false));
    const Tokenizer t = with(many);
    CHECK(encoded(t, "<|reserved_special_token_2999|>", Marks::kTokens) == Ids{3399});
  }
}

TEST_CASE("tokenizer: vocab.json and merges.txt are what tokenizer.json is") {
  const auto json = small();
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : json["model"]["merges"]) merges += merge.get<std::string>() + "\n";
  const Tokenizer one(parse_tokenizer(json.dump()).value());
  const Tokenizer other(parse_vocabulary(json["model"]["vocab"].dump(), merges).value());
  const std::string text = "Don't  the <|endoftext|> über 123";
  for (const Marks marks : {Marks::kText, Marks::kTokens})
    CHECK(encoded(one, text, marks) == encoded(other, text, marks));
}

TEST_CASE("tokenizer: long pieces take a time that grows little faster than they do") {
  const Tokenizer tokenizer(read_tokenizer(kFixtures + "gpt2.json").value());
  for (const char* unit : {" ", "a", "ab", "\n"}) {
    std::string text;
    while (text.size() < 4u << 20) text += unit;
    CHECK(tokenizer.decode(encoded(tokenizer, text, Marks::kText)) == text);
  }
}

TEST_CASE("tokenizer: what is not UTF-8 is an error with its byte") {
  const Tokenizer tokenizer(read_tokenizer(kFixtures + "gpt2.json").value());
  Encoder encoder(tokenizer);
  std::vector<std::uint32_t> tokens;
  for (const char* wrong : {"abc\xff", "abc\xc0\x80", "abc\xed\xa0\x80", "abc\xf4\x90\x80\x80",
                            "abc\xe2\x82", "abc\x80", "abc\xe0\x80\x80", "abc\xf0\x80\x80\x80"}) {
    const auto done = encoder.encode(wrong, tokens);
    REQUIRE(!done);
    CHECK(done.error().text() == "is not UTF-8 at byte 3");
    CHECK(tokens.empty());
  }
}

TEST_CASE("tokenizer: files that are refused, and what is said") {
  CHECK(error(small()) == "no error");
  const auto changed = [](const auto& change) {
    auto json = small();
    change(json);
    return error(json);
  };
  using Json = nlohmann::json;
  CHECK(changed([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }) == "no error");
  CHECK(has(changed([](Json& j) {
              j["normalizer"] = {{"type", "NFKC"}};
            }),
            "has a normalizer other"));
  CHECK(has(changed([](Json& j) {
              j["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
            }),
            "has a normalizer other"));
  CHECK(has(changed([](Json& j) { j["model"]["type"] = "Unigram"; }), "no BPE"));
  CHECK(has(changed([](Json& j) { j["model"]["byte_fallback"] = true; }), "byte_fallback"));
  CHECK(has(changed([](Json& j) { j["model"]["dropout"] = 0.1; }), "dropout"));
  CHECK(has(changed([](Json& j) { j["model"]["unk_token"] = "<unk>"; }), "unk_token"));
  CHECK(has(changed([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }),
            "pre_tokenizer"));
  CHECK(has(changed([](Json& j) {
              j["pre_tokenizer"] = {{"type", "Whitespace"}};
            }),
            "pre_tokenizer"));
  CHECK(has(changed([](Json& j) { j["model"]["vocab"]["a"] = 3; }), "two tokens have the id 3"));
  CHECK(has(changed([](Json& j) { j["model"]["vocab"]["a"] = 4000; }),
            "has the id 4000 in a vocabulary of 400 tokens"));
  CHECK(has(changed([](Json& j) { j["model"]["vocab"]["a"] = -1; }), "the id of token \"a\" is"));
  CHECK(has(changed([](Json& j) { j["model"]["vocab"]["a"] = 1e9; }), "the id of token \"a\" is"));
  CHECK(has(changed([](Json& j) { j["model"]["vocab"]["\u65e5"] = 400; }), "stands for no byte"));
  CHECK(has(changed([](Json& j) {
              const auto id = j["model"]["vocab"]["a"];
              j["model"]["merges"] = Json::array();
              j["model"]["vocab"].erase("a");
              j["model"]["vocab"]["aa"] = id;
            }),
            "byte 97 alone is no token"));
  CHECK(has(changed([](Json& j) { j["model"]["vocab"] = Json::object(); }), "no vocabulary"));
  CHECK(has(changed([](Json& j) { j["model"]["merges"].push_back("zz yy"); }), "is no token"));
  CHECK(has(changed([](Json& j) { j["model"]["merges"].push_back(j["model"]["merges"][0]); }),
            "twice"));
  CHECK(has(changed([](Json& j) { j["model"]["merges"].push_back(7); }), "expected two tokens"));
  CHECK(has(changed([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }), "lstrip"));
  CHECK(has(changed([](Json& j) { j["added_tokens"][0]["id"] = 5; }),
            "has the id 5, expected 0 as in the vocabulary"));
  CHECK(has(parse_tokenizer("{").error().text(), "not JSON"));
  CHECK(has(parse_tokenizer("[1]").error().text(), "no tokenizer.json"));
  CHECK(
      has(parse_tokenizer("{\"a\\nb\":1,\"a\\nb\":2}").error().text(), "the key \"a\\nb\" twice"));
  CHECK(has(parse_tokenizer(R"({"model":1,"model":2})").error().text(), "\"model\" twice"));
  CHECK(has(parse_tokenizer(std::string(1u << 20, '[')).error().text(), "nested deeper"));
  CHECK(has(read_tokenizer("tests/fixtures").error().text(), "no tokenizer.json, nor vocab.json"));
  CHECK(has(read_tokenizer("tests/fixtures/none.json").error().text(), "no such file"));
}

TEST_CASE("pattern: expressions mean to PCRE2 what they mean to tokenizers") {
  const auto cut = [](const char* expression, std::string_view text) {
    const Pattern pattern = Pattern::compile(expression).value();
    Pattern::Scan scan(pattern);
    std::vector<std::string> found;
    for (std::size_t from = 0; from < text.size();) {
      const auto match = scan.next(text, from).value();
      if (!match) break;
      found.emplace_back(text.substr(match->begin, match->end - match->begin));
      from = match->end;
    }
    return found;
  };
  using Texts = std::vector<std::string>;
  // U+180E is white space to PCRE2 alone, U+0085 to both; 0x1c to neither.
  CHECK(cut("\\s", "a\u180e\u0085\x1c ") == Texts{"\u0085", " "});
  CHECK(cut("[^\\s]+", "a\u180eb c") == Texts{"a\u180eb", "c"});
  CHECK(cut("\\S+", "a\u180eb\u3000c") == Texts{"a\u180eb", "c"});
  CHECK(cut("\\d+", "1\u0663\u00b2") == Texts{"1\u0663"});
  CHECK(cut("\\p{N}{1,3}|\\p{Lu}\\p{Ll}*|[^\\s\\p{L}\\p{N}]++", "12345Ab--") ==
        Texts{"123", "45", "Ab", "--"});
  // What Oniguruma means otherwise, or does not know.
  for (const char* wrong :
       {"",      "(",       "\\w",        "\\bx",     "[\\S]",       "x\\",
        "\\C",   "\xff",    "x*",         "(?=x)",    "x|",          "\\p{N}{1,3}+",
        "x{2}?", "x{,2}",   "x{a}",       "\\p{Han}", "\\p{Latin}",  "\\p{L&}",
        "\\pL",  "^x",      "x$",         "a.b",      "\\v",         "(?m)x",
        "(?s)x", "(*UTF)x", "(?|x)",      "(?<=a)x",  "[a-z&&[^b]]", "[a[bc]]",
        "[]x]",  "[^]x]",   "[[:word:]]", "[x",       "\\x41",       "\\p{L"})
    CHECK_MESSAGE(!Pattern::compile(wrong), wrong);
}

TEST_CASE("text finder: the first text, and of those that begin there the longest") {
  const TextFinder finder({"<a>", "<a>>", "*", "b<a"});
  CHECK(finder.text(finder.next("x<a>>", 0)->which) == "<a>>");
  CHECK(finder.next("x*", 0)->begin == 1);
  CHECK(finder.text(finder.next("xb<a>", 0)->which) == "b<a");
  CHECK(!finder.next("x<", 0));
  CHECK(!finder.next("*x", 1));
}

TEST_CASE("pattern: an expression that takes for ever is an error") {
  const Pattern slow = Pattern::compile("(a|a)+[bc]").value();
  Pattern::Scan scan(slow);
  const auto found = scan.next(std::string(40, 'a'), 0);
  REQUIRE(!found);
  CHECK(has(found.error().text(), "cannot be searched at byte 0"));
}

}  // namespace starling
