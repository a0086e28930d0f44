#include "core/text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/check.h"
#include "core/text/utf8.h"

namespace starling {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;  // no neighbour; also a token that has been merged away
constexpr std::size_t kKnownMax = 1u << 16;  // pieces; some 10 MB
constexpr std::size_t kKnownBytes = 64;      // longer pieces do not come again
constexpr std::size_t kPieceMax = 0x7fffffff;

std::optional<Pattern> any_of(const TokenizerFile& file, bool marks) {
  std::vector<std::string> texts;
  for (const auto& added : file.added)
    if (marks || !added.special) texts.push_back(file.tokens[added.id]);
  if (texts.empty()) return std::nullopt;
  auto pattern = Pattern::any_of(std::move(texts));
  STARLING_CHECK(pattern.has_value());
  return std::move(pattern).value();
}

}  // namespace

Tokenizer::Tokenizer(TokenizerFile file)
    : file_(std::move(file)),
      split_(Pattern::compile(file_.split).value()),
      plain_(any_of(file_, false)),
      all_(any_of(file_, true)) {
  for (const auto& added : file_.added) added_.emplace(file_.tokens[added.id], added.id);
  ids_.reserve(file_.tokens.size());
  for (std::uint32_t id = 0; id < vocabulary(); ++id) {
    const std::string& bytes = file_.tokens[id];
    const auto added = added_.find(bytes);
    if (added != added_.end() && added->second == id) continue;
    ids_.emplace(bytes, id);
    if (bytes.size() == 1) of_byte_[static_cast<unsigned char>(bytes[0])] = id;
  }
  merges_.reserve(file_.merges.size());
  for (std::uint32_t rank = 0; rank < file_.merges.size(); ++rank) {
    const auto& merge = file_.merges[rank];
    merges_.emplace(pair(merge.left, merge.right), Merged{rank, merge.whole});
  }
}

std::optional<std::uint32_t> Tokenizer::find(std::string_view text) const {
  if (const auto added = added_.find(text); added != added_.end()) return added->second;
  if (const auto known = ids_.find(text); known != ids_.end()) return known->second;
  return std::nullopt;
}

std::optional<std::uint32_t> Tokenizer::end_of_document() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const auto token = find(name)) return token;
  return std::nullopt;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> tokens) const {
  std::string bytes;
  for (const std::uint32_t token : tokens) {
    STARLING_CHECK(token < vocabulary());
    bytes += file_.tokens[token];
  }
  return bytes;
}

Encoder::Encoder(const Tokenizer& tokenizer, Marks marks)
    : tokenizer_(tokenizer), pieces_(tokenizer.split_) {
  const auto& added = marks == Marks::kTokens ? tokenizer.all_ : tokenizer.plain_;
  if (added) added_.emplace(*added);
}

Result<> Encoder::encode(std::string_view text, std::vector<std::uint32_t>& tokens) {
  if (const auto at = not_utf8(text))
    return bad_input("is not UTF-8 at byte " + std::to_string(*at));
  std::size_t from = 0;
  while (added_) {
    STARLING_TRY(match, added_->next(text, from));
    if (!match) break;
    STARLING_TRY(encode_plain(text.substr(from, match->begin - from), tokens));
    tokens.push_back(tokenizer_.added_.at(text.substr(match->begin, match->end - match->begin)));
    from = match->end;
  }
  return encode_plain(text.substr(from), tokens);
}

Result<> Encoder::encode_plain(std::string_view text, std::vector<std::uint32_t>& tokens) {
  for (std::size_t from = 0; from < text.size();) {
    STARLING_TRY(match, pieces_.next(text, from));
    // What the expression leaves out is a piece as well.
    const std::size_t begin = match ? match->begin : text.size();
    const std::size_t end = match ? match->end : text.size();
    if (std::max(begin - from, end - begin) > kPieceMax)
      return bad_input("has a piece of more than 2 GiB at byte " + std::to_string(from));
    if (begin > from) encode_piece(text.substr(from, begin - from), tokens);
    if (end > begin) encode_piece(text.substr(begin, end - begin), tokens);
    from = end;
  }
  return ok();
}

void Encoder::encode_piece(std::string_view piece, std::vector<std::uint32_t>& tokens) {
  if (piece.size() > kKnownBytes) return merge(piece, tokens);
  const std::string key(piece);
  const auto known = known_.find(key);
  if (known != known_.end()) {
    tokens.insert(tokens.end(), known->second.begin(), known->second.end());
    return;
  }
  const std::size_t begin = tokens.size();
  merge(piece, tokens);
  if (known_.size() == kKnownMax) known_.clear();
  known_.emplace(key,
                 std::vector(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end()));
}

// Puts what a symbol and the one behind it merge to among the candidates.
void Encoder::look_at(std::uint32_t place) {
  if (place == kNone || symbols_[place].after == kNone) return;
  const std::uint32_t left = symbols_[place].token, right = symbols_[symbols_[place].after].token;
  const auto merged = tokenizer_.merges_.find(Tokenizer::pair(left, right));
  if (merged == tokenizer_.merges_.end()) return;
  candidates_.push_back({merged->second.rank, place, left, right});
  std::ranges::push_heap(candidates_, std::greater());
}

void Encoder::merge(std::string_view piece, std::vector<std::uint32_t>& tokens) {
  if (tokenizer_.file_.whole_pieces) {
    const auto whole = tokenizer_.ids_.find(piece);
    if (whole != tokenizer_.ids_.end()) return tokens.push_back(whole->second);
  }
  const auto count = static_cast<std::uint32_t>(piece.size());
  symbols_.clear();
  candidates_.clear();
  for (std::uint32_t i = 0; i < count; ++i)
    symbols_.push_back({tokenizer_.of_byte_[static_cast<unsigned char>(piece[i])],
                        i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1});
  for (std::uint32_t i = 0; i < count; ++i) look_at(i);
  while (!candidates_.empty()) {
    const Candidate best = candidates_.front();
    std::ranges::pop_heap(candidates_, std::greater());
    candidates_.pop_back();
    // One of the two may have been merged since.
    Symbol& left = symbols_[best.place];
    if (left.token != best.left || left.after == kNone) continue;
    Symbol& right = symbols_[left.after];
    if (right.token != best.right) continue;
    left.token = tokenizer_.merges_.at(Tokenizer::pair(best.left, best.right)).token;
    right.token = kNone;
    left.after = right.after;
    if (right.after != kNone) symbols_[right.after].before = best.place;
    look_at(left.before);
    look_at(best.place);
  }
  for (const Symbol& symbol : symbols_)
    if (symbol.token != kNone) tokens.push_back(symbol.token);
}

}  // namespace starling
