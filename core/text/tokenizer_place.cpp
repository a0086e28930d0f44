#include "core/text/tokenizer_place.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/data_files.h"
#include "core/text/tokenizer_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const fs::path& file) {
  const std::string parent = file.parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string place_of(const std::string& file) {
  std::error_code error;
  const std::string folder = folder_of(file);
  if (!tokenizer_files(folder).empty() || !fs::is_symlink(file, error)) return folder;
  const fs::path target = fs::canonical(file, error);
  return error ? folder : folder_of(target);
}

std::vector<std::string> places_of(const std::vector<std::string>& files, const std::string& path) {
  std::vector<std::string> places;
  for (const std::string& file : files)
    if (std::string place = place_of(file); std::ranges::find(places, place) == places.end())
      places.push_back(std::move(place));
  std::error_code error;
  if (places.empty()) places.push_back(fs::is_directory(path, error) ? path : folder_of(path));
  return places;
}

}  // namespace

std::vector<std::string> places_of_tokens(const std::string& path) {
  const auto found = data_files(path, {".bin"});
  return places_of(found ? found.value().files : std::vector<std::string>(), path);
}

std::vector<std::string> places_of_weights(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return places_of({path}, path);
  std::vector<std::string> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path extension = entry->path().extension();
    if (extension == ".safetensors" || extension == ".bin") files.push_back(entry->path().string());
  }
  std::ranges::sort(files);
  return places_of(files, path);
}

std::string place_of_tokenizer(const std::string& tokens) {
  for (std::string& place : places_of_tokens(tokens))
    if (!tokenizer_files(place).empty()) return std::move(place);
  return {};
}

}  // namespace starling
