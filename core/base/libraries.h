#pragma once
// The folders where foreign libraries, which nothing is linked to, may lie.

#include <filesystem>
#include <vector>

namespace starling {

// Folders with Python packages, whose `nvidia` ones have libraries: those of STARLING_PYTHON_LIBS (with
// ':' between them), then those of $VIRTUAL_ENV.
std::vector<std::filesystem::path> python_folders();

}  // namespace starling
