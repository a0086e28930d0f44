#include "core/text/tokenizer_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/base/file_system.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/text/composed.h"
#include "core/text/pattern.h"
#include "core/text/utf8.h"

namespace starling {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMergesMax = 4u << 20;
constexpr std::size_t kTokenMax = 1024;  // bytes of one
constexpr int kNoByte = -1;

// GPT-2's expression, which a ByteLevel that cuts by itself means.
constexpr const char* kGpt2Split =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The byte of each character of the alphabet.
constexpr std::array<int, 0x144> byte_of_character() {
  std::array<int, 0x144> bytes{};
  bytes.fill(kNoByte);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes[static_cast<std::size_t>(itself ? byte : next++)] = byte;
  }
  return bytes;
}

std::string shown(std::string_view text) {
  return Json(std::string(text.substr(0, 64))).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// The bytes that a token of the alphabet stands for; nothing if it has another character, or none.
std::optional<std::string> bytes_of(std::string_view token) {
  static constexpr auto kBytes = byte_of_character();
  std::string bytes;
  for (std::size_t i = 0; i < token.size();) {
    auto character = static_cast<unsigned char>(token[i++]);
    std::uint32_t code = character;
    if (character >= 0x80) {
      // Two bytes reach U+07FF; the alphabet ends at U+0143. JSON has been checked as UTF-8.
      if ((character & 0xe0) != 0xc0 || i == token.size()) return std::nullopt;
      code = (character & 0x1fu) << 6 | (static_cast<unsigned char>(token[i++]) & 0x3fu);
    }
    if (code >= kBytes.size() || kBytes[code] == kNoByte) return std::nullopt;
    bytes += static_cast<char>(kBytes[code]);
  }
  if (bytes.empty() || bytes.size() > kTokenMax) return std::nullopt;
  return bytes;
}

// Collects the parts of a tokenizer and looks whether they fit.
class Collector {
 public:
  // {token: id}
  Result<> vocabulary(const Json& vocab) {
    if (!vocab.is_object() || vocab.empty()) return bad_input("has no vocabulary");
    if (vocab.size() > kTokensMax)
      return bad_input("has " + std::to_string(vocab.size()) + " tokens, expected at most " +
                       std::to_string(kTokensMax));
    file_.tokens.resize(vocab.size());
    for (const auto& [token, id] : vocab.items()) {
      STARLING_TRY(place, number(id, "the id of token " + shown(token)));
      const auto bytes = bytes_of(token);
      if (!bytes) odd_.emplace_back(place, token);
      STARLING_TRY(put(place, bytes.value_or(token)));
      ids_.emplace(token, place);
    }
    return ok();
  }

  Result<> merge(const std::string& left, const std::string& right) {
    if (file_.merges.size() == kMergesMax)
      return bad_input("has more than " + std::to_string(kMergesMax) + " merges");
    const auto l = ids_.find(left), r = ids_.find(right), whole = ids_.find(left + right);
    if (l == ids_.end() || r == ids_.end() || whole == ids_.end())
      return bad_input("merge " + std::to_string(file_.merges.size()) + ", " + shown(left) +
                       " and " + shown(right) + ", has a part or a result that is no token");
    if (!pairs_.insert({l->second, r->second}).second)
      return bad_input("merge of " + shown(left) + " and " + shown(right) + " is there twice");
    file_.merges.push_back({l->second, r->second, whole->second});
    return ok();
  }

  // A token that is found as it stands: one of the vocabulary, or the next behind it, as `tokenizers` numbers them.
  Result<> added(const Json& entry) {
    if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string() ||
        !entry.contains("id"))
      return bad_input("has an added token without content or id");
    const auto content = entry["content"].get<std::string>();
    STARLING_TRY(id, number(entry["id"], "the id of added token " + shown(content)));
    if (content.empty() || content.size() > kTokenMax)
      return bad_input("has an added token of " + std::to_string(content.size()) +
                       " bytes, expected 1 to " + std::to_string(kTokenMax));
    for (const char* flag : {"lstrip", "rstrip", "single_word", "special", "normalized"})
      if (const auto it = entry.find(flag); it != entry.end() && !it->is_boolean())
        return bad_input("added token " + shown(content) + " has a " + flag +
                         " that is neither true nor false");
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      if (entry.value(flag, false))
        return bad_input("added token " + shown(content) + " has " + flag +
                         ", which is not done here");
    // `tokenizers` looks in composed text for its composed form.
    std::string other_form;
    if (file_.composed) {
      STARLING_TRY(form, starling::composed(content, other_form));
      if (form != content)
        return bad_input("added token " + shown(content) + " is not in NFC, as text is here");
    }
    const auto known = ids_.find(content);
    const std::uint32_t expected =
        known != ids_.end() ? known->second : static_cast<std::uint32_t>(file_.tokens.size());
    if (id != expected)
      return bad_input("added token " + shown(content) + " has the id " + std::to_string(id) +
                       ", expected " + std::to_string(expected) +
                       (known != ids_.end() ? " as in the vocabulary" : ", the next one"));
    if (std::ranges::any_of(file_.added, [&](const auto& other) { return other.id == id; }))
      return bad_input("added token " + shown(content) + " is there twice");
    const bool odd = std::ranges::any_of(odd_, [&](const auto& one) { return one.first == id; });
    if (known == ids_.end()) {
      file_.tokens.push_back(content);
    } else if (!odd && file_.tokens[id] != content) {
      return bad_input("added token " + shown(content) +
                       " is written as other bytes are in the vocabulary, and could be either");
    }
    file_.added.push_back({id, entry.value("special", false), !entry.value("normalized", true),
                           known != ids_.end() && !odd});
    return ok();
  }

  Result<TokenizerFile> finished() {
    for (const auto& [id, token] : odd_)
      if (std::ranges::none_of(file_.added, [&](const auto& a) { return a.id == id; }))
        return bad_input(
            "token " + shown(token) +
            " has a character that stands for no byte; expected a byte-level vocabulary");
    std::array<bool, 256> there{};
    for (const auto& [token, id] : ids_)
      if (const std::string& bytes = file_.tokens[id]; bytes.size() == 1)
        there[static_cast<unsigned char>(bytes[0])] = true;
    const auto missing = std::ranges::find(there, false);
    if (missing != there.end())
      return bad_input("byte " + std::to_string(missing - there.begin()) + " alone is no token");
    if (auto pattern = Pattern::compile(file_.split); !pattern)
      return bad_input("its expression " + pattern.error().text());
    return std::move(file_);
  }

  TokenizerFile& file() { return file_; }

 private:
  static Result<std::uint32_t> number(const Json& id, const std::string& what) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kTokensMax)
      return bad_input(what + " is " + shown(id.dump()) + ", expected 0 to " +
                       std::to_string(kTokensMax - 1));
    return id.get<std::uint32_t>();
  }
  Result<> put(std::uint32_t id, std::string bytes) {
    if (id >= file_.tokens.size())
      return bad_input("a token has the id " + std::to_string(id) + " in a vocabulary of " +
                       std::to_string(file_.tokens.size()) + " tokens, expected no gap");
    if (!file_.tokens[id].empty()) return bad_input("two tokens have the id " + std::to_string(id));
    file_.tokens[id] = std::move(bytes);
    return ok();
  }

  TokenizerFile file_;
  std::unordered_map<std::string, std::uint32_t> ids_;  // as they are written
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs_;
  std::vector<std::pair<std::uint32_t, std::string>>
      odd_;  // of the vocabulary, not in the alphabet
};

bool is_null_or(const Json& object, const char* key, const Json& usual) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() || *it == usual;
}

// The expression of {"type": "ByteLevel"}, or of a sequence of a Split and a ByteLevel.
Result<std::string> split_of(const Json& before) {
  const auto is = [](const Json& one, const char* type) {
    return one.is_object() && one.value("type", Json()) == type;
  };
  const auto plain = [&](const Json& one, bool cuts) {
    return is(one, "ByteLevel") && one.value("add_prefix_space", Json(true)) == false &&
           one.value("use_regex", Json(true)) == cuts;
  };
  if (plain(before, true)) return std::string(kGpt2Split);
  const Json none;
  const Json& parts =
      is(before, "Sequence") && before.contains("pretokenizers") ? before["pretokenizers"] : none;
  if (parts.is_array() && parts.size() == 2 && is(parts[0], "Split") && plain(parts[1], false)) {
    const Json& split = parts[0];
    const Json pattern = split.value("pattern", Json::object());
    if (pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string() &&
        split.value("behavior", Json()) == "Isolated" &&
        split.value("invert", Json(false)) == false)
      return pattern["Regex"].get<std::string>();
  }
  return bad_input("its pre_tokenizer is " +
                   shown(before.dump(-1, ' ', true, Json::error_handler_t::replace)) +
                   ", expected ByteLevel, or a Split by a Regex (Isolated) and a ByteLevel, "
                   "without a prefix space");
}

Result<> read_model(const Json& model, Collector& collector) {
  if (!model.is_object() || model.value("type", Json("BPE")) != "BPE")
    return bad_input("its model is no BPE");
  if (!is_null_or(model, "dropout", 0.0) || !is_null_or(model, "unk_token", "") ||
      !is_null_or(model, "continuing_subword_prefix", "") ||
      !is_null_or(model, "end_of_word_suffix", "") || !is_null_or(model, "byte_fallback", false))
    return bad_input(
        "its model has dropout, unk_token, a prefix or suffix of words or byte_fallback, expected "
        "a "
        "byte-level BPE without them");
  collector.file().whole_pieces = model.value("ignore_merges", Json(false)) == true;
  STARLING_TRY(collector.vocabulary(model.value("vocab", Json())));
  const Json merges = model.value("merges", Json());
  if (!merges.is_array()) return bad_input("has no merges");
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      STARLING_TRY(collector.merge(merge[0].get<std::string>(), merge[1].get<std::string>()));
      continue;
    }
    const std::string both = merge.is_string() ? merge.get<std::string>() : "";
    const auto space = both.find(' ');
    if (space == both.npos)
      return bad_input("a merge is " +
                       shown(merge.dump(-1, ' ', true, Json::error_handler_t::replace)) +
                       ", expected two tokens");
    STARLING_TRY(collector.merge(both.substr(0, space), both.substr(space + 1)));
  }
  return ok();
}

Result<std::string> text_of(const std::string& path) {
  STARLING_TRY(is_file(path, "a file of a tokenizer"));
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > kTokenizerBytesMax)
    return bad_input("has " + std::to_string(size) + " bytes, expected at most " +
                     std::to_string(kTokenizerBytesMax) + "; " + path);
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || text.size() != size) return bad_input("cannot be read; " + path);
  return text;
}

}  // namespace

Result<TokenizerFile> parse_tokenizer(std::string_view text) {
  STARLING_TRY(json, parse_json(text));
  if (!json.is_object() || !json.contains("model"))
    return bad_input("is no tokenizer.json, which has a \"model\"");
  const bool composed = json.value("normalizer", Json()) == Json{{"type", "NFC"}};
  if (!composed && !is_null_or(json, "normalizer", Json()))
    return bad_input(
        "has a normalizer other than NFC, which is not done here: tokens would be others than the "
        "model's");
  Collector collector;
  collector.file().composed = composed;
  STARLING_TRY(split, split_of(json.value("pre_tokenizer", Json())));
  collector.file().split = std::move(split);
  STARLING_TRY(read_model(json["model"], collector));
  const Json added = json.value("added_tokens", Json::array());
  if (!added.is_array()) return bad_input("its added_tokens are no list");
  for (const Json& entry : added) {
    STARLING_TRY(collector.added(entry));
  }
  return collector.finished();
}

Result<TokenizerFile> parse_vocabulary(std::string_view vocab_json, std::string_view merges_txt) {
  STARLING_TRY(vocab, parse_json(vocab_json));
  Collector collector;
  collector.file().split = kGpt2Split;
  STARLING_TRY(collector.vocabulary(vocab));
  if (not_utf8(merges_txt)) return bad_input("its merges are not UTF-8");
  bool first = true;
  while (!merges_txt.empty()) {
    const auto end = std::min(merges_txt.find('\n'), merges_txt.size());
    std::string_view line = merges_txt.substr(0, end);
    merges_txt.remove_prefix(std::min(end + 1, merges_txt.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    // Later lines may begin with '#', which is a token.
    const bool comment = std::exchange(first, false) && line.starts_with("#version");
    if (comment || line.empty()) continue;
    const auto space = line.find(' ');
    if (space == line.npos) return bad_input("a merge is " + shown(line) + ", expected two tokens");
    STARLING_TRY(
        collector.merge(std::string(line.substr(0, space)), std::string(line.substr(space + 1))));
  }
  constexpr const char* kEnd = "<|endoftext|>";
  if (const auto id = vocab.find(kEnd); id != vocab.end()) {
    STARLING_TRY(collector.added({{"content", kEnd}, {"id", *id}, {"special", true}}));
  }
  return collector.finished();
}

std::vector<std::string> tokenizer_files(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder + "/tokenizer.json", error)) return {"tokenizer.json"};
  if (std::filesystem::exists(folder + "/vocab.json", error)) return {"vocab.json", "merges.txt"};
  return {};
}

std::string tokenizer_digest(const std::string& folder) {
  std::string all;
  for (const std::string& name : tokenizer_files(folder)) {
    const auto text = text_of(folder + "/" + name);
    if (!text) return {};
    all += name + "\n" + std::to_string(text.value().size()) + "\n" + text.value();
  }
  if (all.empty()) return {};
  return to_string(hash128({reinterpret_cast<const std::uint8_t*>(all.data()), all.size()}));
}

Result<TokenizerFile> read_tokenizer(const std::string& path, std::vector<std::string>* files) {
  std::error_code error;
  std::vector<std::string> read{path};
  if (std::filesystem::is_directory(path, error)) {
    read = tokenizer_files(path);
    if (read.empty())
      return bad_input("has no tokenizer.json, nor vocab.json and merges.txt; " + path);
    for (std::string& file : read) file = path + "/" + file;
  }
  std::vector<std::string> texts;
  for (const std::string& file : read) {
    STARLING_TRY(text, text_of(file));
    texts.push_back(std::move(text));
  }
  auto parsed =
      texts.size() == 1 ? parse_tokenizer(texts[0]) : parse_vocabulary(texts[0], texts[1]);
  if (!parsed) return std::move(parsed).error().in(read[0]);
  if (files) *files = std::move(read);
  return parsed;
}

}  // namespace starling
