#include "kernels/cuda/plans.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

namespace starling::kernels::cuda {
namespace {

constexpr std::string_view kHead =
    "# Algorithms of cuBLASLt for matrix products, of one version and one kind of device.\n";
constexpr std::string_view kColumns =
    "# m n k in out a b lda ldb ldc ldadd bias epilogue, alignment of a b c add bias aux, way, "
    "algorithm\n";

// These are words by the number of an enumerator.
constexpr std::array<const char*, 3> kTypes{"f32", "bf16", "f16"};
constexpr std::array<const char*, 2> kTransposed{"n", "t"};
constexpr std::array<const char*, 2> kBias{"-", "bias"};
constexpr std::array<const char*, 5> kEpilogues{"none", "gelu", "gelu_backward", "relu",
                                                "relu_backward"};
constexpr std::array<const char*, 3> kWays{"fused", "plain", "own"};

std::uint16_t alignment_of(const void* at) {
  const auto bits = reinterpret_cast<std::uintptr_t>(at) | 256;
  return static_cast<std::uint16_t>(bits & (~bits + 1));
}

std::string hex(const lt::Algorithm& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(word));
    text += digits;
  }
  return text;
}

// Reads a line word by word; ok() is false after an error.
class Words {
 public:
  explicit Words(const std::string& line) : line_(line) {}

  template <class Number>
  void number(Number& to) {
    unsigned long long value = 0;
    good_ = good_ && line_ >> value && value <= static_cast<Number>(-1);
    to = static_cast<Number>(value);
  }
  template <std::size_t kSize, class To>
  void word(const std::array<const char*, kSize>& words, To& to) {
    std::string text;
    line_ >> text;
    const auto found = std::find(words.begin(), words.end(), std::string_view(text));
    good_ = good_ && found != words.end();
    if (good_) to = static_cast<To>(found - words.begin());
  }
  void algorithm(lt::Algorithm& to) {
    std::string text;
    line_ >> text;
    good_ = good_ && text.size() == 16 * std::size(to.data) &&
            text.find_first_not_of("0123456789abcdef") == std::string::npos;
    for (std::size_t i = 0; good_ && i < std::size(to.data); ++i)
      to.data[i] = std::stoull(text.substr(16 * i, 16), nullptr, 16);
  }
  bool ok() {
    std::string more;
    return good_ && !(line_ >> more);
  }

 private:
  std::istringstream line_;
  bool good_ = true;
};

Result<> parse_line(const std::string& line, PlanTable& table) {
  PlanKey key{};
  Plan plan;
  Words words(line);
  words.number(key.m), words.number(key.n), words.number(key.k);
  words.word(kTypes, key.in), words.word(kTypes, key.out);
  words.word(kTransposed, key.a_transposed), words.word(kTransposed, key.b_transposed);
  for (std::uint32_t* const ld : {&key.lda, &key.ldb, &key.ldc, &key.ldadd}) words.number(*ld);
  words.word(kBias, key.bias), words.word(kEpilogues, key.epilogue);
  for (std::uint16_t* const align :
       {&key.align_a, &key.align_b, &key.align_c, &key.align_add, &key.align_bias, &key.align_aux})
    words.number(*align);
  words.word(kWays, plan.way);
  if (plan.way != Way::kOwn) words.algorithm(plan.algorithm);
  if (!words.ok()) return Error(Code::kBadInput, "not the line of a product: " + line);
  if (!table.plans.emplace(key, plan).second)
    return Error(Code::kBadInput, "a product has two lines: " + line);
  return ok();
}

}  // namespace

PlanKey key_of(const Product& p) {
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .lda = p.lda,
          .ldb = p.ldb,
          .ldc = p.ldc,
          .ldadd = p.add ? p.ldadd : 0,
          .in = p.in,
          .out = p.out,
          .a_transposed = p.a_transposed,
          .b_transposed = p.b_transposed,
          .bias = p.bias != nullptr,
          .epilogue = p.epilogue,
          .align_a = alignment_of(p.a),
          .align_b = alignment_of(p.b),
          .align_c = alignment_of(p.c),
          .align_add = alignment_of(p.add),
          .align_bias = alignment_of(p.bias),
          .align_aux = alignment_of(p.aux)};
}

std::string text_of(const PlanKey& k) {
  const auto word = [](const auto& words, auto i) { return words[static_cast<std::size_t>(i)]; };
  std::ostringstream text;
  text << k.m << ' ' << k.n << ' ' << k.k << ' ' << word(kTypes, k.in) << ' ' << word(kTypes, k.out)
       << ' ' << word(kTransposed, k.a_transposed) << ' ' << word(kTransposed, k.b_transposed)
       << ' ' << k.lda << ' ' << k.ldb << ' ' << k.ldc << ' ' << k.ldadd << ' '
       << word(kBias, k.bias) << ' ' << word(kEpilogues, k.epilogue) << ' ' << k.align_a << ' '
       << k.align_b << ' ' << k.align_c << ' ' << k.align_add << ' ' << k.align_bias << ' '
       << k.align_aux;
  return text.str();
}

std::string text_of(const PlanTable& table) {
  std::string text(kHead);
  text += "cublaslt " + std::to_string(table.version) + "\ndevice " + table.device + '\n';
  text += kColumns;
  for (const auto& [key, plan] : table.plans) {
    text += text_of(key) + ' ' + kWays[static_cast<std::size_t>(plan.way)];
    if (plan.way != Way::kOwn) text += ' ' + hex(plan.algorithm);
    text += '\n';
  }
  return text;
}

Result<PlanTable> parse_plans(const std::string& text) {
  PlanTable table;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("cublaslt ")) {
      Words words(line.substr(9));
      words.number(table.version);
      if (!words.ok()) return Error(Code::kBadInput, "not a version: " + line);
    } else if (line.starts_with("device ")) {
      table.device = line.substr(7);
    } else {
      STARLING_TRY(parse_line(line, table));
    }
  }
  if (table.version == 0 || table.device.empty())
    return Error(Code::kBadInput, "the lines `cublaslt VERSION` and `device NAME` are missing");
  return table;
}

Result<PlanTable> read_plans(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return Error(Code::kUnavailable, path.string() + " cannot be read");
  auto table = parse_plans(text.str());
  if (!table) return std::move(table).error().in("reading " + path.string());
  return table;
}

}  // namespace starling::kernels::cuda
