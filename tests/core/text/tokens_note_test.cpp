#include "core/text/tokens_note.h"

#include <doctest/doctest.h>

#include "tests/core/data_folder.h"

namespace starling {

TEST_CASE("tokens note: what is written is read back, and what is no note decides nothing") {
  const DataFolder folder;
  TokensNote note{.vocabulary = 50257,
                  .bits = 16,
                  .tokens = 6'000'000'000,
                  .documents = 7,
                  .bytes = 25'000'000'000,
                  .begin = {},
                  .end = 50256,
                  .learned = {},
                  .tokenizer = {}};
  folder.write("tokens.json", note.format());
  const auto read = TokensNote::read(folder.path());
  REQUIRE(read.has_value());
  CHECK(read->format() == note.format());
  note.learned = 0;
  note.tokenizer = "00ff";
  folder.write("tokens.json", note.format());
  CHECK(TokensNote::read(folder.path()).value().format() == note.format());
  for (const char* other : {"", "[]", "{}", "{\"vocabulary\": -1}", "{\"vocabulary\": 1e99}",
                            "{\"vocabulary\": 99999999999}", "{\"vocabulary\": \"1\"}"}) {
    folder.write("tokens.json", other);
    CHECK(!TokensNote::read(folder.path()));
  }
  CHECK(!TokensNote::read(folder.path() + "/none"));
}

}  // namespace starling
