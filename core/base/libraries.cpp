#include "core/base/libraries.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <system_error>

#include "core/base/environment.h"

namespace starling {
namespace fs = std::filesystem;

std::vector<fs::path> python_folders() {
  std::vector<fs::path> folders;
  std::istringstream list(environment().value(EnvVar::kPythonLibs));
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty()) folders.emplace_back(folder);
  const std::string& virtual_env = environment().value(EnvVar::kVirtualEnv);
  if (virtual_env.empty()) return folders;
  const std::size_t listed = folders.size();
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(virtual_env + "/lib", error))
    if (entry.path().filename().string().starts_with("python"))
      folders.push_back(entry.path() / "site-packages");
  std::sort(folders.begin() + static_cast<std::ptrdiff_t>(listed), folders.end());
  return folders;
}

}  // namespace starling
