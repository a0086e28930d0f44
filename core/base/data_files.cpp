#include "core/base/data_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFilesMax = 1 << 20;

bool wanted(const fs::path& path, const std::vector<std::string>& extensions) {
  if (extensions.empty()) return true;
  return std::find(extensions.begin(), extensions.end(), path.extension().string()) !=
         extensions.end();
}

// The paths below `folder` of which `take` says yes.
template <class Iterator, class Take>
Result<std::vector<std::string>> listed(const fs::path& folder, const std::string& path,
                                        const Take& take) {
  std::vector<std::string> files;
  std::error_code error;
  for (Iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!take(*it, error)) {
      if (error) break;
      continue;
    }
    files.push_back(it->path().string());
    if (files.size() > kFilesMax)
      return bad_data("more than " + std::to_string(kFilesMax) + " files, join them", path);
  }
  if (error) return bad_data(error.message(), path);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Error bad_data(const std::string& what, const std::string& path) {
  return bad_input(what + "; reading data " + path);
}

bool is_pattern(const std::string& path) {
  return fs::path(path).filename().string().find_first_of("*?[") != std::string::npos;
}

Result<DataFiles> data_files(const std::string& path, const std::vector<std::string>& extensions) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_regular_file(status)) return DataFiles{{path}, {}};
  if (fs::is_directory(status)) {
    DataFiles found;
    const auto take = [&](const auto& entry, auto& why) {
      const auto type = entry.symlink_status(why).type();
      if (type == fs::file_type::symlink && wanted(entry.path(), extensions) &&
          found.links.size() < kFilesMax)
        found.links.push_back(entry.path().string());
      return type == fs::file_type::regular && wanted(entry.path(), extensions);
    };
    STARLING_TRY(files, listed<fs::recursive_directory_iterator>(path, path, take));
    found.files = std::move(files);
    std::sort(found.links.begin(), found.links.end());
    return found;
  }
  if (status.type() != fs::file_type::not_found || !is_pattern(path))
    return bad_data(error ? error.message() : "neither a regular file nor a folder", path);
  const std::string pattern = fs::path(path).filename();
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  STARLING_TRY(files, listed<fs::directory_iterator>(folder, path, [&](const auto& entry, auto&) {
                 const std::string name = entry.path().filename();
                 std::error_code ignored;  // a link that leads nowhere is no file
                 return ::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0 &&
                        fs::is_regular_file(entry.path(), ignored);
               }));
  if (files.empty()) return bad_data("no file matches the pattern", path);
  return DataFiles{std::move(files), {}};
}

}  // namespace starling
