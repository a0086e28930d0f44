#pragma once
// tokens.json, which `starling tokenize` leaves beside token files.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace starling {

struct TokensNote {
  std::uint32_t vocabulary = 0, bits = 16;
  std::uint64_t tokens = 0, documents = 0, bytes = 0;
  std::optional<std::uint32_t> begin,
      end;  // tokens around each document, or behind each answer of a chat
  std::optional<std::uint64_t> learned;  // tokens to learn, where not all are
  std::string tokenizer = {};  // tokenizer_digest() of the one that made them; empty: not said

  static constexpr const char* kFile = "tokens.json";
  static constexpr std::size_t kBytesMax = 1u << 16;
  std::string format() const;
  // Nothing where the text is no note.
  static std::optional<TokensNote> parse(std::string_view text);
  // Of a folder; nothing where there is none, or none that can be read.
  static std::optional<TokensNote> read(const std::string& folder);
};

}  // namespace starling
