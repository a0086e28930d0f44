#include "core/text/documents.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/data_files.h"
#include "core/base/file_system.h"
#include "core/base/json.h"

namespace starling {
namespace {

bool has_lines(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

// Line `line` of `file` up to its end, which is left out. False: there is none. Errors: kBadInput  longer
// than kLineMax.
Result<bool> read_line(std::ifstream& file, std::string& line) {
  line.clear();
  std::streambuf& bytes = *file.rdbuf();
  constexpr auto kEnd = std::ifstream::traits_type::eof();
  for (auto c = bytes.sbumpc(); c != kEnd; c = bytes.sbumpc()) {
    if (c == '\n') return true;
    if (line.size() == Documents::kLineMax)
      return bad_input("is longer than " + std::to_string(Documents::kLineMax) + " bytes");
    line += static_cast<char>(c);
  }
  return !line.empty();
}

std::string shown_name(const std::string& name) {
  return nlohmann::json(name).dump(-1, ' ', true).substr(0, 32);
}

Result<nlohmann::json> member(nlohmann::json& line, const std::string& field, const char* option) {
  const auto there = line.find(field);
  if (there != line.end()) return std::move(*there);
  std::string has;
  for (const auto& [name, value] : line.items())
    if (has.size() < 80) has += (has.empty() ? ", it has " : ", ") + shown_name(name);
  return bad_input("has no \"" + field + "\", which " + option + " names" + has);
}

Result<Stretch> text_in(nlohmann::json& line, const std::string& field, const char* option,
                        bool learned) {
  STARLING_TRY(text, member(line, field, option));
  if (!text.is_string())
    return bad_input("has no text in \"" + field + "\"" +
                     (text.is_array() ? ", a chat is written with --chat" : ""));
  return Stretch{std::move(text.get_ref<std::string&>()), /*mark=*/false, learned};
}

Result<std::vector<Stretch>> stretches_of_line(std::string_view line, const LineForm& form) {
  if (line.starts_with("\xef\xbb\xbf")) return bad_input("begins with a byte order mark");
  STARLING_TRY(json, parse_json(line, 64));
  if (!json.is_object())
    return bad_input("is no object, expected {\"" + form.field +
                     "\": " + (form.chat != nullptr ? "[..]}" : "\"..\"}"));
  if (form.chat != nullptr) {
    STARLING_TRY(messages, member(json, form.field, "--field"));
    return chat_stretches(messages, *form.chat);
  }
  std::vector<Stretch> stretches;
  if (!form.prompt.empty()) {
    STARLING_TRY(prompt, text_in(json, form.prompt, "--prompt-field", /*learned=*/false));
    stretches.push_back(std::move(prompt));
  }
  STARLING_TRY(text, text_in(json, form.field, "--field", /*learned=*/true));
  if (!form.prompt.empty() && text.text.empty())
    return bad_input("has an empty text in \"" + form.field + "\", of which nothing is learned");
  stretches.push_back(std::move(text));
  std::erase_if(stretches, [](const Stretch& stretch) { return stretch.text.empty(); });
  return stretches;
}

}  // namespace

Result<std::vector<Document>> Documents::next(std::uint64_t bytes) {
  std::vector<Document> documents;
  for (taken_ = 0; taken_ < bytes && file_ < files_.size();) {
    if (has_lines(files_[file_])) {
      STARLING_TRY(take_line(documents));
    } else {
      STARLING_TRY(take_file(documents));
    }
  }
  return documents;
}

Result<> Documents::take_file(std::vector<Document>& documents) {
  const std::string& path = files_[file_++];
  STARLING_TRY(is_file(path, "a text"));
  if (form_.masks())
    return bad_data("is no .jsonl or .ndjson, expected lines with prompts or chats", path);
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return bad_data(error.message(), path);
  if (size > kFileMax)
    return bad_data("has " + std::to_string(size) + " bytes, expected at most " +
                        std::to_string(kFileMax) + " of one document",
                    path);
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  if (!file || !file.read(text.data(), static_cast<std::streamsize>(size)))
    return bad_data(file.is_open() ? "became shorter while it was read" : std::strerror(errno),
                    path);
  if (text.empty()) return ok();
  taken_ += size;
  documents.push_back({{{std::move(text)}}, path});
  return ok();
}

Result<> Documents::take_line(std::vector<Document>& documents) {
  const std::string& path = files_[file_];
  if (!lines_.is_open()) {
    STARLING_TRY(is_file(path, "a file of JSON lines"));
    lines_.open(path, std::ios::binary);
    if (!lines_) return bad_data(std::strerror(errno), path);
    line_ = 0;
  }
  ++line_;
  const std::string place = path + ", line " + std::to_string(line_);
  std::string line;
  auto there = read_line(lines_, line);
  if (!there) return std::move(there).error().in(place);
  if (!there.value()) {
    lines_.close();
    ++file_;
    return ok();
  }
  if (line.ends_with('\r')) line.pop_back();
  if (line.empty()) return ok();
  auto stretches = stretches_of_line(line, form_);
  if (!stretches) return std::move(stretches).error().in(place);
  if (stretches.value().empty()) return ok();
  taken_ += line.size();
  documents.push_back({std::move(stretches).value(), place});
  return ok();
}

}  // namespace starling
