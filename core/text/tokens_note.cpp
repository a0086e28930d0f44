#include "core/text/tokens_note.h"

#include <fstream>
#include <iterator>

#include "core/base/file_system.h"
#include "core/base/json.h"

namespace starling {

std::string TokensNote::format() const {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::optional<std::uint32_t>& token) {
    return token ? Json(*token) : Json();
  };
  Json note{{"vocabulary", vocabulary}, {"bits", bits},   {"tokens", tokens},
            {"documents", documents},   {"bytes", bytes}, {"begin", or_null(begin)},
            {"end", or_null(end)}};
  if (learned) note["learned"] = *learned;
  if (!tokenizer.empty()) note["tokenizer"] = tokenizer;
  return note.dump(2) + "\n";
}

std::optional<TokensNote> TokensNote::read(const std::string& folder) {
  const std::string path = folder + "/" + kFile;
  if (!is_file(path, "a note")) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(kBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse(text);
}

std::optional<TokensNote> TokensNote::parse(std::string_view text) {
  const auto json = parse_json(text);
  if (!json || !json.value().is_object()) return std::nullopt;
  TokensNote note;
  const auto count = [&](const char* key) -> std::uint64_t {
    const auto it = json.value().find(key);
    return it != json.value().end() && it->is_number_unsigned() ? it->get<std::uint64_t>() : 0;
  };
  const auto number = [&](const char* key) -> std::optional<std::uint32_t> {
    const auto it = json.value().find(key);
    if (it == json.value().end() || !it->is_number_unsigned() || count(key) > 1u << 24)
      return std::nullopt;
    return it->get<std::uint32_t>();
  };
  if (!number("vocabulary")) return std::nullopt;
  note.vocabulary = *number("vocabulary");
  note.bits = number("bits").value_or(16);
  note.tokens = count("tokens");
  note.documents = count("documents");
  note.bytes = count("bytes");
  note.begin = number("begin");
  note.end = number("end");
  const auto made_by = json.value().find("tokenizer");
  if (made_by != json.value().end() && made_by->is_string())
    note.tokenizer = made_by->get<std::string>();
  if (json.value().contains("learned")) note.learned = count("learned");
  return note;
}

}  // namespace starling
