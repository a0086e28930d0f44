#include "core/base/libraries.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <system_error>

namespace starling {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::vector<fs::path> python_folders() {
  std::vector<fs::path> folders;
  std::istringstream list(variable("STARLING_PYTHON_LIBS"));
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty()) folders.emplace_back(folder);
  const std::string environment = variable("VIRTUAL_ENV");
  if (environment.empty()) return folders;
  const std::size_t listed = folders.size();
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(environment + "/lib", error))
    if (entry.path().filename().string().starts_with("python"))
      folders.push_back(entry.path() / "site-packages");
  std::sort(folders.begin() + static_cast<std::ptrdiff_t>(listed), folders.end());
  return folders;
}

}  // namespace starling
