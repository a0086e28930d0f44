#include "core/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <functional>

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

// The expression in PCRE2's words.
Result<std::string> words_of(std::string_view expression) {
  std::string words;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\') {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      words += c;
      continue;
    }
    if (++i == expression.size()) return bad_input("ends in the middle of an escape");
    const char escaped = expression[i];
    if (escaped == 's') {
      words += in_class ? kWhiteSpace : "[" + std::string(kWhiteSpace) + "]";
    } else if (escaped == 'S' && !in_class) {
      words += "[^" + std::string(kWhiteSpace) + "]";
    } else if (escaped == 'd') {
      words += "\\p{Nd}";
    } else if (std::string_view("pPrntfv").find(escaped) != std::string_view::npos ||
               std::ispunct(static_cast<unsigned char>(escaped))) {
      words += {'\\', escaped};
    } else {
      return bad_input(std::string("has the escape \\") + escaped +
                       (in_class ? " in a class" : "") +
                       ", expected \\s, \\d, \\p, \\P, \\r, \\n, \\t, \\f, \\v or a sign");
    }
  }
  return words;
}

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
  // Without the compiler of this processor matches are slower and the same.
  pcre2_jit_compile(pattern.code_.get(), PCRE2_JIT_COMPLETE);
  return pattern;
}

Result<Pattern> Pattern::compile(std::string_view expression) {
  if (expression.empty() || expression.size() > kExpressionMax)
    return bad_input("has " + std::to_string(expression.size()) + " bytes, expected 1 to " +
                     std::to_string(kExpressionMax));
  if (not_utf8(expression)) return bad_input("is not UTF-8");
  STARLING_TRY(words, words_of(expression));
  return compile_words(words);
}

Result<Pattern> Pattern::any_of(std::vector<std::string> texts) {
  std::ranges::sort(texts, std::greater(), &std::string::size);
  std::string words;
  for (const std::string& text : texts) {
    STARLING_CHECK(!text.empty());
    if (!words.empty()) words += '|';
    for (const char c : text) {
      if (std::ispunct(static_cast<unsigned char>(c))) words += '\\';
      words += c;
    }
  }
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
