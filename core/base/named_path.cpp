#include "core/base/named_path.h"

#include <algorithm>

namespace starling {

namespace fs = std::filesystem;

fs::path named_path(const fs::path& name, std::error_code& error) {
  const fs::path path = fs::absolute(name, error);
  if (error || std::ranges::find(path, "..") == path.end()) return path.lexically_normal();
  return fs::weakly_canonical(path, error);
}

}  // namespace starling
