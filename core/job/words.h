#pragma once
// How job files spell choices, numbers and texts: shared by the reader and the writer of job files.

#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"

namespace starling::job_words {

struct Choice {
  std::string_view word;
  int value;
  bool told = true;  // in the error for another word; false: only tests use this one
};
inline constexpr Choice kOptimizers[] = {
    {"adamw", static_cast<int>(OptimizerKind::kAdamW)},
    {"adam", static_cast<int>(OptimizerKind::kAdam)},
    {"sgd", static_cast<int>(OptimizerKind::kSgd)},
    {"elementwise", static_cast<int>(OptimizerKind::kElementwise)},
    {"own", static_cast<int>(OptimizerKind::kOwn)}};
inline constexpr Choice kData[] = {{"text", static_cast<int>(DataKind::kText)},
                                   {"tokens", static_cast<int>(DataKind::kTokens)},
                                   {"classified", static_cast<int>(DataKind::kClassified)}};
inline constexpr Choice kShares[] = {{"equal", static_cast<int>(ShareRule::kEqual)},
                                     {"speed", static_cast<int>(ShareRule::kSpeed)}};
inline constexpr Choice kMismatches[] = {{"warn", static_cast<int>(OnMismatch::kWarn)},
                                         {"stop", static_cast<int>(OnMismatch::kStop)}};
inline constexpr Choice kNonFinite[] = {{"skip", static_cast<int>(NonFinite::kSkip)},
                                        {"stop", static_cast<int>(NonFinite::kStop)}};
inline constexpr Choice kPrecisions[] = {{"fp32", static_cast<int>(Precision::kFp32)},
                                         {"bf16", static_cast<int>(Precision::kBf16)},
                                         {"fp16", static_cast<int>(Precision::kFp16)}};
inline constexpr Choice kOrders[] = {{"global", static_cast<int>(DataOrder::kGlobal)},
                                     {"lanes", static_cast<int>(DataOrder::kLanes)}};
inline constexpr Choice kGridRoundings[] = {
    {"nearest", static_cast<int>(GridRounding::kNearest)},
    {"stochastic", static_cast<int>(GridRounding::kStochastic)}};
inline constexpr Choice kOffloads[] = {{"none", static_cast<int>(Offload::kNone)},
                                       {"moments", static_cast<int>(Offload::kMoments)}};
inline constexpr Choice kSeals[] = {{"auto", static_cast<int>(SealRule::kAuto)},
                                    {"on", static_cast<int>(SealRule::kOn)},
                                    {"off", static_cast<int>(SealRule::kOff)}};
inline constexpr Choice kIsa[] = {{"auto", 0},   {"reference", 1}, {"avx2", 2},
                                  {"avx512", 3}, {"cuda", 5},      {"emulated", 4, false}};

inline std::string_view word_of(std::span<const Choice> choices, int value) {
  for (const Choice& c : choices)
    if (c.value == value) return c.word;
  return "?";
}

// The shortest text that reads back as the same double, in TOML's spelling.
inline std::string number_text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";  // else TOML reads an integer
  return text;
}

// The text in TOML's quotes.
inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      ((out += "\\u00") += kDigits[static_cast<unsigned>(c) / 16]) +=
          kDigits[static_cast<unsigned>(c) % 16];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// "[a, b]" of what `text_of` makes of each value.
template <class Values, class TextOf>
std::string list_text(const Values& values, const TextOf& text_of) {
  std::string list;
  for (const auto& value : values) list += (list.empty() ? "" : ", ") + text_of(value);
  return "[" + list + "]";
}

// The line of that key, or none if there are no texts.
inline std::string texts_line(const std::string& key, const std::vector<std::string>& texts) {
  return texts.empty() ? "" : key + " = " + list_text(texts, quoted) + "\n";
}

}  // namespace starling::job_words
