#include "core/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>

#include "core/base/check.h"
#include "core/text/utf8.h"

namespace starling {
namespace {

constexpr std::size_t kExpressionMax = 4096;
// Backtracking of one match; expressions of tokenizers need a few for each character of white space.
constexpr std::uint32_t kMatchMax = 50'000'000;
// Unicode's White_Space. PCRE2's own \s has U+180E as well.
constexpr const char* kWhiteSpace =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{"
    "3000}";

// Reads an expression of a tokenizer and writes it in PCRE2's words. Oniguruma, for which such expressions are
// written, and PCRE2 mean the same by what is let through here.
class Translation {
 public:
  explicit Translation(std::string_view expression) : rest_(expression) {}

  Result<std::string> operator()() {
    while (!rest_.empty()) {
      STARLING_TRY(next());
    }
    return std::move(words_);
  }

 private:
  Result<> next() {
    const char c = rest_[0];
    if (c == '[') return take_class();
    if (c == '\\') return take_escape(/*in_class=*/false);
    if (c == '(') return take_group();
    if (c == '{') return take_count();
    // Ends of lines and what a dot leaves out are other ones.
    if (c == '^' || c == '$' || c == '.') return refuse(std::string(1, c));
    return take(1);
  }

  Result<> take(std::size_t bytes) {
    words_ += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return ok();
  }
  static Error refuse(const std::string& what) {
    return bad_input(
        "has " + what +
        ", which is not understood here; expected what tokenizers have: classes, \\s, \\p{L}, "
        "(?: ), (?i: ), (?! ), (?= ), *, +, ?, {1,3}");
  }

  Result<> take_group() {
    for (const std::string_view open : {"(?:", "(?i:", "(?!", "(?="})
      if (rest_.starts_with(open)) return take(open.size());
    if (rest_.starts_with("(?") || rest_.starts_with("(*"))
      return refuse(std::string(rest_.substr(0, 3)));
    return take(1);
  }

  // {2}, {2,}, {1,3}; a sign behind it is another one's.
  Result<> take_count() {
    const auto end = rest_.find('}');
    const std::string_view count = rest_.substr(0, end == rest_.npos ? rest_.size() : end + 1);
    const auto digits = count.find_first_not_of("0123456789", 1);
    const bool fine =
        end != rest_.npos && digits > 1 &&
        count.find_first_not_of("0123456789", count[digits] == ',' ? digits + 1 : digits) == end;
    const std::string_view behind = fine ? rest_.substr(end + 1) : std::string_view();
    if (!fine || behind.starts_with('+') || behind.starts_with('?'))
      return refuse(std::string(rest_.substr(0, std::min<std::size_t>(count.size() + 1, 16))));
    return take(count.size());
  }

  Result<> take_class() {
    STARLING_TRY(take(rest_.starts_with("[^") ? 2 : 1));
    if (rest_.starts_with(']')) return refuse("] first in a class");
    while (!rest_.empty()) {
      if (rest_[0] == ']') return take(1);
      if (rest_[0] == '[' || rest_.starts_with("&&"))
        return refuse(std::string(rest_[0] == '[' ? "[" : "&&") + " in a class");
      STARLING_TRY(rest_[0] == '\\' ? take_escape(/*in_class=*/true) : take(1));
    }
    return bad_input("ends in the middle of a class");
  }

  Result<> take_escape(bool in_class) {
    if (rest_.size() < 2) return bad_input("ends in the middle of an escape");
    const char escaped = rest_[1];
    if (escaped == 'p' || escaped == 'P') return take_category();
    if (escaped == 's' || (escaped == 'S' && !in_class)) {
      words_ += in_class         ? std::string(kWhiteSpace)
                : escaped == 's' ? "[" + std::string(kWhiteSpace) + "]"
                                 : "[^" + std::string(kWhiteSpace) + "]";
    } else if (escaped == 'd') {
      words_ += "\\p{Nd}";
    } else if (std::string_view("rntf").find(escaped) != std::string_view::npos ||
               std::ispunct(static_cast<unsigned char>(escaped))) {
      return take(2);
    } else {
      return refuse(std::string("the escape \\") + escaped + (in_class ? " in a class" : ""));
    }
    rest_.remove_prefix(2);
    return ok();
  }

  // A general category: scripts have other members in PCRE2.
  Result<> take_category() {
    static constexpr std::string_view kMajor = "LMNPSZC", kMinor = "ultmonedcfskpi";
    const std::size_t letters = rest_.size() > 5 && rest_[4] == '}' ? 1 : 2;
    const bool fine = rest_.size() > letters + 3 && rest_[2] == '{' && rest_[letters + 3] == '}' &&
                      kMajor.find(rest_[3]) != kMajor.npos &&
                      (letters == 1 || kMinor.find(rest_[4]) != kMinor.npos);
    if (!fine) return refuse(std::string(rest_.substr(0, 12)));
    return take(letters + 4);
  }

  std::string_view rest_;
  std::string words_;
};

}  // namespace

void Pattern::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}
void Pattern::Scan::Free::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}

Result<Pattern> Pattern::compile_words(const std::string& words) {
  int error = 0;
  std::size_t at = 0;
  Pattern pattern;
  pattern.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(words.data()), words.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                                    nullptr));
  if (!pattern.code_) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    return bad_input(std::string("is no regular expression: ") +
                     reinterpret_cast<const char*>(text));
  }
  std::uint32_t may_be_empty = 0;
  pcre2_pattern_info(pattern.code_.get(), PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  if (may_be_empty != 0) return bad_input("can match nothing at all, and would cut anywhere");
  // Without the compiler of this processor matches are slower and the same.
  pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE);
  return pattern;
}

Result<Pattern> Pattern::compile(std::string_view expression) {
  if (expression.empty() || expression.size() > kExpressionMax)
    return bad_input("has " + std::to_string(expression.size()) + " bytes, expected 1 to " +
                     std::to_string(kExpressionMax));
  if (not_utf8(expression)) return bad_input("is not UTF-8");
  STARLING_TRY(words, Translation(expression)());
  return compile_words(words);
}

std::string Pattern::unicode() {
  char version[32]{};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
  return version;
}

Pattern::Scan::Scan(const Pattern& pattern)
    : code_(pattern.code_.get()), data_(pcre2_match_data_create(1, nullptr)) {
  STARLING_CHECK(data_ != nullptr);
}

Result<std::optional<Pattern::Match>> Pattern::Scan::next(std::string_view text, std::size_t from) {
  struct Context {
    pcre2_match_context* of = pcre2_match_context_create(nullptr);
    Context() { pcre2_set_match_limit(of, kMatchMax); }
    ~Context() { pcre2_match_context_free(of); }
  };
  static thread_local const Context context;
  const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data_.get(), context.of);
  if (found == PCRE2_ERROR_NOMATCH) return std::optional<Match>();
  if (found < 0) {
    PCRE2_UCHAR why[256];
    pcre2_get_error_message(found, why, sizeof why);
    return bad_input("the tokenizer's expression cannot be searched at byte " +
                     std::to_string(from) + ": " + reinterpret_cast<const char*>(why));
  }
  const std::size_t* ends = pcre2_get_ovector_pointer(data_.get());
  return std::optional(Match{ends[0], ends[1]});
}

}  // namespace starling
