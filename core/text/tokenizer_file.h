#pragma once
// The files of a byte-level BPE tokenizer, as values. Nothing in them is trusted.
//
// `tokenizer.json` as transformers writes it for GPT-2, Llama-3 and Qwen's kind of vocabulary, or
// `vocab.json` and `merges.txt` as GPT-2 was published. In both a token is written with a character for
// each byte: 0x21-0x7e, 0xa1-0xac and 0xae-0xff stand for themselves, the other 68 bytes, in rising
// order, are U+0100, U+0101, ..

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace starling {

struct TokenizerFile {
  struct Merge {
    std::uint32_t left, right, whole;  // ids
  };
  struct Added {
    std::uint32_t id;
    bool special;     // a mark, which text does not become unless it is asked for
    bool first;       // looked for before the others
    bool vocabulary;  // also a token of the vocabulary, which text may become by merges
  };

  std::vector<std::string> tokens;  // by id, the bytes that each stands for
  std::vector<Merge> merges;        // the first ones before the later ones
  std::vector<Added> added;         // tokens that are found as they stand, before all else
  std::string split;  // the expression that cuts text into pieces, which are merged apart
  bool whole_pieces =
      false;              // a piece that is a token is that token, whatever the merges make of it
  bool composed = false;  // text is brought to NFC between added tokens that are looked for first
};

inline constexpr std::size_t kTokenizerBytesMax = 64u << 20;
inline constexpr std::size_t kTokensMax = 1u << 20;

// Errors: kBadInput  no tokenizer of this kind; the text says what was found and expected. Every byte
// alone has to be a token, and ids have no gap.
Result<TokenizerFile> parse_tokenizer(std::string_view json);
Result<TokenizerFile> parse_vocabulary(std::string_view vocab_json, std::string_view merges_txt);

// Says to transformers what reads the tokenizer; decides nothing here.
inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";
// The names of a tokenizer's files in a folder: tokenizer.json, or vocab.json and merges.txt; none are there: none.
std::vector<std::string> tokenizer_files(const std::string& folder);
// A digest of the bytes of a folder's tokenizer, 32 hexadecimal digits; empty: there is none that can be read.
std::string tokenizer_digest(const std::string& folder);
// What a file of a tokenizer or a folder with its files holds. `files` are the paths that were read.
// Errors: kBadInput  none there, not readable, or as above; the text names the file.
Result<TokenizerFile> read_tokenizer(const std::string& path,
                                     std::vector<std::string>* files = nullptr);

}  // namespace starling
