#pragma once
// The tokens of a token file, or of many, one behind the other, all of one width.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/data/bytes_source.h"
#include "core/data/token_file.h"

namespace starling {

// "sequences of 1024 tokens", for people.
std::string sequences_text(std::uint32_t sequence);

struct TokenSource {
  using Check = std::function<Result<>(const TokenFile& file, const std::string& path)>;

  std::unique_ptr<BytesSource> bytes;  // without headers
  TokenWidth width = TokenWidth::k16;
  std::uint32_t sequence = 0;  // TokenFile::sequence

  std::uint64_t tokens() const { return bytes->size() / bytes_of(width); }

  // A file, a folder (`extensions`; none: ".bin") or a pattern. Headers are no data: the same tokens with and without
  // one, in one file or many, are the same. Errors: kBadInput  those of BytesSource::open(), parse_token_file() and
  // `check`; files of two kinds.
  static Result<TokenSource> open(const std::string& path,
                                  const std::vector<std::string>& extensions, const Check& check);
};

}  // namespace starling
