#include "core/text/composed.h"

#include <doctest/doctest.h>

#include <string>

#include "core/text/tokenizer.h"
#include "core/text/utf8.h"

namespace starling {
namespace {

std::string nfc(const std::string& text) {
  std::string storage;
  return std::string(composed(text, storage).value());
}

}  // namespace

TEST_CASE("composed: a text is in Unicode's canonical composition, whatever form it came in") {
  CHECK(nfc("e\u0301") == "\u00e9");
  CHECK(nfc("o\u0323\u0302") == "\u1ed9");       // two marks
  CHECK(nfc("o\u0302\u0323") == "\u1ed9");       // in the other order
  CHECK(nfc("\u1112\u1161\u11ab") == "\ud55c");  // Hangul
  CHECK(nfc("\u212b") == "\u00c5");              // a sign that is another letter
  CHECK(nfc("\u0958") == "\u0915\u093c");        // one that is never composed
  CHECK(nfc("\u0344") == "\u0308\u0301");
  CHECK(nfc("a\n\u0301b\u0301\n") == "a\n\u0301b\u0301\n");  // nothing composes with a line's end
  CHECK(nfc("e\u0301\ne\u0301") == "\u00e9\n\u00e9");
  CHECK(nfc("\U0001f468\u200d\U0001f469 ") == "\U0001f468\u200d\U0001f469 ");
  CHECK(nfc(std::string("e\u0301\0x", 5)) == std::string("\u00e9\0x", 4));
  CHECK(nfc("") == "");
  // What stands before Hangul's last letters is none of them.
  CHECK(nfc("\uac00\u11a7\u11a8") == "\uac00\u11a7\u11a8");
  CHECK(nfc("\u1100\u1161\u11a7\u11a7e\u0301") == "\uac00\u11a7\u11a7\u00e9");
  CHECK(nfc("\u0f73\u0f71") == "\u0f71\u0f71\u0f72");
}

// Goal: a text of any kind takes a time by its length. Method: a million marks in no order, which a sort by exchanges
// would take hours for, beside the same ones in order.
TEST_CASE("composed: many marks behind one letter are put in order") {
  constexpr int kMarks = 500'000;
  std::string mixed = "a", above, below;
  for (int i = 0; i < kMarks; ++i) mixed += "\u0301\u0316", above += "\u0301", below += "\u0316";
  const std::string sorted = nfc(mixed);
  CHECK(sorted == nfc("a" + below + above));
  CHECK(sorted.starts_with(
      "\u00e1\u0316\u0316"));  // nothing of its class stands before the first one above
  CHECK(sorted.ends_with("\u0301"));
  std::string tibetan = "\u0f40";
  for (int i = 0; i < kMarks; ++i) tibetan += "\u0f73";
  CHECK(nfc(tibetan).size() == 3 + 6 * kMarks);
}

TEST_CASE("composed: a text that is so already is not copied") {
  std::string storage = "other";
  const std::string plain = "Stra\u00dfe, \u010desk\u00fd\n";
  CHECK(composed(plain, storage).value().data() == plain.data());
  CHECK(storage == "other");
}

TEST_CASE("composed: all that is composed is UTF-8 and stays as it is") {
  std::string all;
  for (char32_t c = 1; c < 0x20000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    if (c < 0x80) {
      all += static_cast<char>(c);
    } else if (c < 0x800) {
      all += static_cast<char>(0xc0 | c >> 6);
      all += static_cast<char>(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
      all += static_cast<char>(0xe0 | c >> 12);
      all += static_cast<char>(0x80 | (c >> 6 & 0x3f));
      all += static_cast<char>(0x80 | (c & 0x3f));
    } else {
      all += static_cast<char>(0xf0 | c >> 18);
      all += static_cast<char>(0x80 | (c >> 12 & 0x3f));
      all += static_cast<char>(0x80 | (c >> 6 & 0x3f));
      all += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  const std::string once = nfc(all);
  CHECK(once != all);
  CHECK_FALSE(not_utf8(once));
  CHECK(nfc(once) == once);
}

TEST_CASE("composed: a tokenizer that wants it has the tokens of the composed text") {
  TokenizerFile file = read_tokenizer("tests/fixtures/bpe/qwen2.json").value();
  const auto tokens_of = [&](bool composes, const std::string& text) {
    file.composed = composes;
    const Tokenizer tokenizer(file);
    std::vector<std::uint32_t> tokens;
    Encoder encoder(tokenizer, Marks::kTokens);
    REQUIRE(encoder.encode(text, tokens));
    return tokens;
  };
  const auto whole = tokens_of(false, "caf\u00e9 <|endoftext|>\u0301x");
  CHECK(tokens_of(true, "cafe\u0301 <|endoftext|>\u0301x") == whole);
  CHECK(tokens_of(false, "cafe\u0301 <|endoftext|>\u0301x") != whole);
}

}  // namespace starling
