#pragma once
// Folders that are there whole or not at all.

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

// A folder that gets its name when it is whole. Else nothing of it stays, nor of the folders above it that were made.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path)
      : path_(std::filesystem::path(path).lexically_normal()) {
    if (path_.filename().empty()) path_ = path_.parent_path();
    part_ = path_;
    part_ += ".part-" + std::to_string(::getpid());
  }
  ~NewFolder() {
    if (finished_) return;
    std::error_code error;
    std::filesystem::remove_all(part_, error);
    for (auto made = made_.rbegin(); made != made_.rend(); ++made)
      std::filesystem::remove(*made, error);
  }
  std::string part() const { return part_.string(); }
  Result<> begin() {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(path_, error)))
      return bad_input(path_.string() + " is there already, expected a new folder");
    std::vector<std::filesystem::path> missing;
    for (std::filesystem::path above = path_.parent_path();
         !above.empty() && !std::filesystem::exists(above, error); above = above.parent_path())
      missing.push_back(above);
    for (auto above = missing.rbegin(); above != missing.rend(); ++above)
      if (std::filesystem::create_directory(*above, error)) made_.push_back(*above);
    error.clear();
    std::filesystem::create_directory(part_, error);
    if (error) return bad_input("cannot make " + path_.string() + ": " + error.message());
    return ok();
  }
  Result<> finish() {
    std::error_code error;
    std::filesystem::rename(part_, path_, error);
    if (error) return bad_input("cannot make " + path_.string() + ": " + error.message());
    finished_ = true;
    return ok();
  }

 private:
  std::filesystem::path path_, part_;
  std::vector<std::filesystem::path> made_;
  bool finished_ = false;
};

}  // namespace starling::tools
