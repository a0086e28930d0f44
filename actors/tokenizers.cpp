#include "actors/tokenizers.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/text/tokenizer_file.h"

namespace starling::actors {
namespace {

namespace fs = std::filesystem;

// The folder of a path that may be that of a file.
std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool have_the_same_bytes(const std::string& a, const std::string& b) {
  const auto files = tokenizer_files(a);
  return files == tokenizer_files(b) && std::ranges::all_of(files, [&](const std::string& name) {
           return bytes_of(a + "/" + name) == bytes_of(b + "/" + name);
         });
}

// Whether `more` has all tokens of `some`, and text becomes them alike.
bool has_all_of(const TokenizerFile& more, const TokenizerFile& some) {
  const auto same_merge = [](const TokenizerFile::Merge& a, const TokenizerFile::Merge& b) {
    return a.left == b.left && a.right == b.right && a.whole == b.whole;
  };
  return more.split == some.split && more.whole_pieces == some.whole_pieces &&
         more.composed == some.composed && more.tokens.size() >= some.tokens.size() &&
         std::equal(some.tokens.begin(), some.tokens.end(), more.tokens.begin()) &&
         std::ranges::equal(more.merges, some.merges, same_merge);
}

// Errors: `folder` has another tokenizer than `tokens`, whose tokens are at `tokens`. exactly: no further tokens.
Result<> check(const std::string& folder, const std::string& tokens, bool exactly,
               const std::string& what) {
  if (tokenizer_files(folder).empty() || tokenizer_files(tokens).empty() ||
      have_the_same_bytes(folder, tokens))
    return ok();
  STARLING_TRY(of_tokens, read_tokenizer(tokens));
  const auto other = read_tokenizer(folder);
  // One that cannot be read has made none of these tokens.
  if (other && has_all_of(of_tokens, other.value()) &&
      (!exactly || of_tokens.tokens.size() == other.value().tokens.size()))
    return ok();
  return bad_input(what + " " + folder + " has another tokenizer than the tokens of [data], " +
                   tokens + (other ? "" : ": " + other.error().text()));
}

}  // namespace

Result<> check_tokenizers(const Job& job) {
  if (job.data.kind != DataKind::kTokens || job.data.path.empty()) return ok();
  const std::string tokens = folder_of(job.data.path);
  if (job.evaluate.on()) {
    STARLING_TRY(check(folder_of(job.evaluate.path), tokens, /*exactly=*/true, "[evaluate]"));
  }
  const std::string weights = weights_of(job.model);
  return weights.empty() ? ok() : check(folder_of(weights), tokens, false, "[model].from");
}

}  // namespace starling::actors
