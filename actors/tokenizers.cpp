#include "actors/tokenizers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/base/data_files.h"
#include "core/data/token_file.h"
#include "core/text/tokenizer_file.h"
#include "core/text/tokenizer_place.h"
#include "core/text/tokens_note.h"

namespace starling::actors {
namespace {

namespace fs = std::filesystem;

// Whether an added token is found in text as it was in the other's.
bool is_added_alike(const TokenizerFile::Added& a, const TokenizerFile::Added& b) {
  return a.id == b.id && a.first == b.first && a.vocabulary == b.vocabulary;
}

bool is_among(const std::vector<TokenizerFile::Added>& all, const TokenizerFile::Added& added) {
  return std::ranges::any_of(all, [&](const auto& one) { return is_added_alike(one, added); });
}

// Whether `more` has all tokens of `some`, and text becomes them alike; its further ones are added ones.
bool has_all_of(const TokenizerFile& more, const TokenizerFile& some) {
  const auto same_merge = [](const TokenizerFile::Merge& a, const TokenizerFile::Merge& b) {
    return a.left == b.left && a.right == b.right && a.whole == b.whole;
  };
  return more.split == some.split && more.whole_pieces == some.whole_pieces &&
         more.composed == some.composed && more.tokens.size() >= some.tokens.size() &&
         std::equal(some.tokens.begin(), some.tokens.end(), more.tokens.begin()) &&
         std::ranges::equal(more.merges, some.merges, same_merge) &&
         std::ranges::all_of(some.added, [&](const auto& a) { return is_among(more.added, a); }) &&
         std::ranges::all_of(more.added, [&](const auto& a) {
           return a.id >= some.tokens.size() || is_among(some.added, a);
         });
}

// Whether marks in texts become tokens alike, too.
bool have_the_same_marks(const TokenizerFile& a, const TokenizerFile& b) {
  const auto marks_of = [](const TokenizerFile& file) {
    std::set<std::uint32_t> marks;
    for (const auto& added : file.added)
      if (added.special) marks.insert(added.id);
    return marks;
  };
  return a.tokens.size() == b.tokens.size() && marks_of(a) == marks_of(b);
}

// Whether two that are of no kind that is read here say the same.
bool say_the_same(const std::string& a, const std::string& b) {
  const auto said = [](const std::string& folder) {
    std::ifstream file(folder + "/tokenizer.json", std::ios::binary);
    return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  };
  if (tokenizer_digest(a).empty() || tokenizer_digest(b).empty()) return false;  // not readable
  const auto one = said(a);
  return !one.is_discarded() && one == said(b);
}

// Errors: `folder` has another tokenizer than `tokens`, whose tokens are at `tokens`. exactly: no further tokens.
Result<> compare(const std::string& folder, const std::string& tokens, bool exactly,
                 const std::string& section) {
  if (tokenizer_files(folder).empty() || folder == tokens) return ok();
  const std::string digest = tokenizer_digest(folder);
  if (!digest.empty() && digest == tokenizer_digest(tokens)) return ok();
  const auto ours = read_tokenizer(tokens), other = read_tokenizer(folder);
  bool same = false;
  if (ours && other)
    same = has_all_of(ours.value(), other.value()) &&
           (!exactly || have_the_same_marks(ours.value(), other.value()));
  else
    same = !ours && !other && say_the_same(folder, tokens);
  if (same) return ok();
  std::string why;
  if (!other)
    why = ": " + other.error().text();
  else if (!ours)
    why = ": " + ours.error().text();
  return bad_input(section + " " + folder + " has another tokenizer than the tokens of [data], " +
                   tokens + why);
}

// The tokens of those of the files that lie in a folder itself, as their headers or sizes say.
std::uint64_t tokens_in(const std::string& folder, const std::vector<std::string>& files) {
  std::uint64_t tokens = 0;
  std::error_code error;
  for (const std::string& file : files) {
    if (!fs::equivalent(fs::path(file).parent_path() / ".", folder, error)) continue;
    std::array<std::uint32_t, 3> words{};
    std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(words.data()), sizeof words);
    tokens += has_token_header(words[0]) ? words[2] : fs::file_size(file, error) / 2;
  }
  return tokens;
}

// Errors: what lies in a folder of tokens is not what their note says.
Result<> check_note(const std::string& folder, const std::vector<std::string>& files,
                    std::int64_t vocabulary) {
  const auto note = TokensNote::read(folder);
  if (!note) return ok();
  const std::string where = "; " + folder + "/" + TokensNote::kFile;
  if (const std::string digest = tokenizer_digest(folder);
      !note->tokenizer.empty() && !digest.empty() && digest != note->tokenizer)
    return bad_input(
        "the tokenizer beside the tokens is not, byte for byte, the one that made them" + where);
  if (const std::uint64_t there = tokens_in(folder, files); there > note->tokens)
    return bad_input("the token files beside it that are read have " + std::to_string(there) +
                     " tokens, expected at most the " + std::to_string(note->tokens) +
                     " that were made together" + where);
  if (note->vocabulary > vocabulary)
    return bad_input("the vocabulary of the tokens' tokenizer is " +
                     std::to_string(note->vocabulary) + ", the model must have as much, has " +
                     std::to_string(vocabulary) + where);
  return ok();
}

}  // namespace

Result<> check_tokenizers(const Job& job) {
  const auto input = input_of(job.model);
  if (job.data.kind != DataKind::kTokens || job.data.path.empty() || !input) return ok();
  const std::string tokens = place_of_tokenizer(job.data.path);
  const auto check_tokens = [&](const std::string& path, const std::string& section) -> Result<> {
    const auto found = data_files(path, {".bin"});
    const auto files = found ? found.value().files : std::vector<std::string>();
    for (const std::string& place : places_of_tokens(path)) {
      STARLING_TRY(check_note(place, files, input->vocabulary));
      if (tokens.empty()) continue;
      STARLING_TRY(compare(place, tokens, /*exactly=*/true, section));
    }
    return ok();
  };
  STARLING_TRY(check_tokens(job.data.path, "[data]"));
  if (job.evaluate.on()) {
    STARLING_TRY(check_tokens(job.evaluate.path, "[evaluate]"));
  }
  const std::string weights = weights_of(job.model);
  if (weights.empty() || tokens.empty()) return ok();
  for (const std::string& place : places_of_weights(weights)) {
    STARLING_TRY(compare(place, tokens, /*exactly=*/false, "[model].from"));
  }
  return ok();
}

}  // namespace starling::actors
