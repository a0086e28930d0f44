#include "core/base/programs.h"

#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <system_error>

#include "core/base/environment.h"

namespace starling {

std::string find_program(const std::string& name, const std::string& more) {
  namespace fs = std::filesystem;
  std::string all = environment().value(EnvVar::kPath);
  if (!more.empty()) all += (all.empty() ? "" : ":") + more;
  std::istringstream folders(all);
  std::error_code error;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;
    const fs::path found = fs::absolute(fs::path(folder) / name, error);
    if (::access(found.c_str(), X_OK) == 0 && fs::is_regular_file(found, error))
      return found.string();
  }
  return {};
}

std::string python_program() {
  const std::string& named = environment().value(EnvVar::kPython);
  return named.empty() ? "python3" : named;
}

}  // namespace starling
