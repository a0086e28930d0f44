#pragma once
// Names of files, as people type them.

#include <filesystem>
#include <system_error>

namespace starling {

// Returns the absolute path that a name means, without dots. `..` behind a symbolic link leads to the parent of what
// the link points to, as it does for the system. The path need not be there.
std::filesystem::path named_path(const std::filesystem::path& name, std::error_code& error);

}  // namespace starling
