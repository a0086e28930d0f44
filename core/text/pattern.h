#pragma once
// A Pattern is a regular expression over UTF-8, as tokenizer files have them.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace starling {

// PCRE2 runs it. Such expressions are written for Oniguruma: what the two mean alike is taken, what they mean
// otherwise is put into words of PCRE2 (\s is Unicode's White_Space) or refused (scripts, ^, $, a dot, possessive
// counts, sets within classes). Classes follow PCRE2's version of Unicode.
// Threads: const functions from any thread, each with a Scan of its own.
class Pattern {
 public:
  // Errors: kBadInput  no expression, one that may match nothing, something in it that is not understood, or
  //                    longer than 4096 bytes.
  static Result<Pattern> compile(std::string_view expression);
  // The version of Unicode that classes follow: "14.0.0".
  static std::string unicode();

  struct Match {
    std::size_t begin, end;  // bytes
  };

  // A Scan is what one thread needs to search.
  class Scan {
   public:
    explicit Scan(const Pattern& pattern);
    // The first match that begins at `from` or later and is not empty. `text` is valid UTF-8 and
    // `from` the first byte of a character. Errors: kBadInput  the expression takes too long here.
    Result<std::optional<Match>> next(std::string_view text, std::size_t from);

   private:
    struct Free {
      void operator()(pcre2_real_match_data_8* data) const;
    };
    const pcre2_real_code_8* code_;
    std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  };

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  static Result<Pattern> compile_words(const std::string& words);
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace starling
