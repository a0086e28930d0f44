#pragma once
// tokens.json, which `starling tokenize` leaves beside token files.

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace starling {

struct TokensNote {
  std::uint32_t vocabulary = 0, bits = 16;
  std::uint64_t tokens = 0, documents = 0, bytes = 0;
  std::optional<std::uint32_t> begin, end;  // tokens around each document

  static constexpr const char* kFile = "tokens.json";
  std::string format() const;
  // Of a folder; nothing where there is none, or none that can be read: it decides nothing.
  static std::optional<TokensNote> read(const std::string& folder);
};

}  // namespace starling
