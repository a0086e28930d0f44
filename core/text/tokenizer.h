#pragma once
// Byte-level BPE: text to tokens and back, as `tokenizers` and tiktoken make them.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/result.h"
#include "core/text/pattern.h"
#include "core/text/text_finder.h"
#include "core/text/tokenizer_file.h"

namespace starling {

// Text is cut into pieces by the tokenizer's expression. A piece begins as its bytes; the two neighbours
// that merge first by the order of the merges become one, the left ones of equals first, until no two
// neighbours merge.
// Threads: immutable; each thread encodes with an Encoder of its own.
class Tokenizer {
 public:
  // `file` as parse_tokenizer() has checked it.
  explicit Tokenizer(TokenizerFile file);
  Tokenizer(const Tokenizer&) = delete;  // its maps point into it
  Tokenizer& operator=(const Tokenizer&) = delete;

  // One more than the largest id.
  std::uint32_t vocabulary() const { return static_cast<std::uint32_t>(file_.tokens.size()); }
  // The token that is written so: an added one as it stands, any other by its bytes. Added ones first.
  std::optional<std::uint32_t> find(std::string_view text) const;
  // The token that ends a document, by its usual names: <|endoftext|>, <|end_of_text|>, </s>.
  std::optional<std::uint32_t> end_of_document() const;
  // Whether text is brought to NFC first, so that its tokens may stand for another form of it.
  bool composes() const { return file_.composed; }
  // The bytes of tokens, each below vocabulary(): UTF-8 only where they end with a whole character.
  std::string decode(std::span<const std::uint32_t> tokens) const;

 private:
  friend class Encoder;
  struct Merged {
    std::uint32_t rank, token;
  };
  static std::uint64_t pair(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << 32 | right;
  }

  TokenizerFile file_;
  Pattern split_;
  TextFinder first_, others_;  // added tokens, those that are looked for first and the rest
  std::unordered_set<std::string_view> marks_;  // special ones
  std::unordered_map<std::string_view, std::uint32_t> ids_, added_;
  std::unordered_map<std::uint64_t, Merged> merges_;
  std::uint32_t of_byte_[256];
};

// Marks in a text, such as <|endoftext|>: kText takes them for text, as it comes from anybody; kTokens
// makes them the tokens that they name.
enum class Marks : std::uint8_t { kText, kTokens };

// An Encoder belongs to one thread, and its Tokenizer outlives it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer, Marks marks = Marks::kText);

  // Appends the tokens of a text. Errors: kBadInput  not UTF-8, with the byte; or the expression takes
  // too long. kInternal  no memory.
  Result<> encode(std::string_view text, std::vector<std::uint32_t>& tokens);

 private:
  struct Symbol {
    std::uint32_t token, before, after;  // neighbours by place
  };
  struct Candidate {
    std::uint32_t rank, place, left, right;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  // Takes out the added tokens of a finder, and gives what is between them to `rest`.
  template <class Rest>
  Result<> take_out(const TextFinder& finder, std::string_view text,
                    std::vector<std::uint32_t>& tokens, const Rest& rest);
  Result<> encode_plain(std::string_view text, std::vector<std::uint32_t>& tokens);
  void encode_piece(std::string_view piece, std::vector<std::uint32_t>& tokens);
  void merge(std::string_view piece, std::vector<std::uint32_t>& tokens);
  void look_at(std::uint32_t place);

  const Tokenizer& tokenizer_;
  Pattern::Scan pieces_;
  const Marks marks_;
  std::string composed_;  // of the text between added tokens
  // Pieces that were met before: most of a language is the same few thousand.
  std::unordered_map<std::string, std::vector<std::uint32_t>> known_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;  // a heap
};

}  // namespace starling
