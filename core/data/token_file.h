#pragma once
// Token files, as llm.c reads and writes them: 256 int32 of header (magic, version, count), then the
// tokens, little-endian: of 16 bits (magic 20240520, version 1), or of 32 (20240801, version 7). Files of 16-bit
// tokens without a header, as nanoGPT writes them. And our own with a loss mask (magic 20261101, version 1): tokens of
// 32 bits, of which the highest says that the token is read and not learned, as what a user says in a chat; the fourth
// number of the header is the length of the sequences in which documents begin, or 0.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace starling {

enum class TokenWidth : std::uint8_t { k16, k32, kMasked32 };
inline constexpr std::size_t bytes_of(TokenWidth width) {
  return width == TokenWidth::k16 ? 2 : 4;
}
// The narrower of the two that has room for all tokens of a vocabulary.
inline constexpr TokenWidth width_for(std::uint32_t vocabulary) {
  return vocabulary <= 1u << 16 ? TokenWidth::k16 : TokenWidth::k32;
}
inline constexpr std::uint32_t kTokensOfFileMax = 0x7fffffff;
inline constexpr std::uint32_t kNotLearned = 1u << 31;  // in a token of kMasked32
inline constexpr std::size_t kTokenHeader = 1024;       // bytes

// The tokens of a file, where they lie.
struct TokenFile {
  ByteView tokens;  // without the header, a whole number of them
  TokenWidth width = TokenWidth::k16;
  std::uint32_t sequence = 0;  // documents begin at multiples of it; 0: anywhere

  std::uint64_t size() const { return tokens.size() / bytes_of(width); }
  std::uint32_t operator[](std::uint64_t i) const {
    return width == TokenWidth::kMasked32 ? written(i) & ~kNotLearned : written(i);
  }
  bool is_learned(std::uint64_t i) const {
    return width != TokenWidth::kMasked32 || (written(i) & kNotLearned) == 0;
  }

 private:
  std::uint32_t written(std::uint64_t i) const {
    std::uint32_t token = 0;
    std::memcpy(&token, tokens.data() + i * bytes_of(width), bytes_of(width));
    return token;
  }
};

// The header of a file of so many tokens.
std::array<std::uint32_t, kTokenHeader / 4> token_header(TokenWidth width, std::uint32_t count,
                                                         std::uint32_t sequence);
// Whether a file that begins with this number has a header.
bool has_token_header(std::uint32_t magic);
// Errors: kBadInput  no such file: another magic or version, not as long as its header says, or raw
// numbers that are wider than 16 bits; the text names `path`.
Result<TokenFile> parse_token_file(ByteView file, const std::string& path);
// Errors: kBadInput  a token is not below `vocabulary`: an embedding has a row for each and no more.
Result<> check_vocabulary(const TokenFile& file, std::int64_t vocabulary, const std::string& path);

// Writes token files FOLDER/tokens-000000.bin and so on, each but the last with `tokens_of_file` tokens.
// One thread. A file has a header of no tokens until it is full: nobody takes one that was cut for whole.
class TokenFiles {
 public:
  // 1 <= tokens_of_file <= kTokensOfFileMax. `sequence`: of TokenFile, for kMasked32 alone; files have whole ones.
  TokenFiles(std::string folder, TokenWidth width, std::uint32_t tokens_of_file,
             std::uint32_t sequence = 0);
  ~TokenFiles();
  TokenFiles(const TokenFiles&) = delete;
  TokenFiles& operator=(const TokenFiles&) = delete;

  // Each token fits in the width; one of kMasked32 may have kNotLearned. Errors: kBadInput  a file cannot be
  // written, with what the system says.
  Result<> append(std::span<const std::uint32_t> tokens);
  // After it the last file is whole, and on the disk. Errors: as append().
  Result<> finish();
  std::uint64_t tokens() const { return tokens_; }
  std::uint32_t files() const { return files_; }

 private:
  Result<> begin();
  Result<> end();
  Error cannot_write() const;

  std::string folder_, path_;
  TokenWidth width_;
  std::uint32_t of_file_, sequence_, here_ = 0, files_ = 0;
  std::uint64_t tokens_ = 0;
  Bytes buffer_;
  std::FILE* file_ = nullptr;
};

}  // namespace starling
