#include "core/text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/base/check.h"
#include "core/text/composed.h"
#include "core/text/utf8.h"

namespace starling {
namespace {

constexpr std::uint32_t kNone = 0xffffffff;  // no neighbour; also a token that has been merged away
constexpr std::size_t kKnownMax = 1u << 16;  // pieces; some 10 MB
constexpr std::size_t kKnownBytes = 64;      // longer pieces do not come again
constexpr std::size_t kPieceMax = 0x7fffffff;

std::vector<std::string> added_in(const TokenizerFile& file, bool first) {
  std::vector<std::string> texts;
  for (const auto& added : file.added)
    if (added.first == first) texts.push_back(file.tokens[added.id]);
  return texts;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerFile file)
    : file_(std::move(file)),
      split_(Pattern::compile(file_.split).value()),
      first_(added_in(file_, true)),
      others_(added_in(file_, false)) {
  std::vector<bool> found_alone(file_.tokens.size());
  for (const auto& added : file_.added) {
    added_.emplace(file_.tokens[added.id], added.id);
    found_alone[added.id] = !added.vocabulary;
    if (added.special) marks_.insert(file_.tokens[added.id]);
  }
  ids_.reserve(file_.tokens.size());
  for (std::uint32_t id = 0; id < vocabulary(); ++id) {
    const std::string& bytes = file_.tokens[id];
    if (found_alone[id]) continue;
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
    : tokenizer_(tokenizer), pieces_(tokenizer.split_), marks_(marks) {}

Result<> Encoder::encode(std::string_view text, std::vector<std::uint32_t>& tokens) {
  if (const auto at = not_utf8(text))
    return bad_input("is not UTF-8 at byte " + std::to_string(*at));
  return take_out(tokenizer_.first_, text, tokens, [&](std::string_view between) -> Result<> {
    if (tokenizer_.composes()) {
      STARLING_TRY(form, composed(between, composed_));
      between = form;
    }
    return take_out(tokenizer_.others_, between, tokens,
                    [&](std::string_view plain) { return encode_plain(plain, tokens); });
  });
}

template <class Rest>
Result<> Encoder::take_out(const TextFinder& finder, std::string_view text,
                           std::vector<std::uint32_t>& tokens, const Rest& rest) {
  std::size_t begin = 0, from = 0;
  while (!finder.empty()) {
    const auto found = finder.next(text, from);
    if (!found) break;
    const std::string& token = finder.text(found->which);
    from = found->begin + token.size();
    // What a mark hides stays hidden where the mark is text.
    if (marks_ == Marks::kText && tokenizer_.marks_.contains(token)) continue;
    STARLING_TRY(rest(text.substr(begin, found->begin - begin)));
    tokens.push_back(tokenizer_.added_.at(token));
    begin = from;
  }
  return rest(text.substr(begin));
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
