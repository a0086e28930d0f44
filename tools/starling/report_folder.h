#pragma once
// Commands that write a report share these: their folder and how they read a duration.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

// A ReportFolder is a new or empty folder that stays if it gets a
// file: a command that is refused leaves no folder that it has made.
class ReportFolder {
 public:
  // Errors: kBadInput  the folder is not empty.
  static Result<ReportFolder> make(const std::string& out);
  ~ReportFolder();
  ReportFolder(ReportFolder&&) = default;
  ReportFolder& operator=(ReportFolder&&) = delete;

  const std::string& path() const { return path_; }  // absolute

 private:
  ReportFolder() = default;
  std::string path_;
  std::vector<std::string> made_;  // with folders above it, the deepest first
};
Result<> write_file(const std::string& path, const std::string& text);
// Reads "90", "90s", "10m", "1.5h" as seconds, 0 to 30 days. Errors: kBadInput  names `option`.
Result<double> seconds_of(const std::string& option, const std::string& text);

}  // namespace starling::tools
