#pragma once
// What commands that write a report share: their folder and how they are told a duration.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

// A new or empty folder, there as long as something is in it: a command that is refused leaves none
// that it has made.
class ReportFolder {
 public:
  // Errors: kBadInput  there is something in it.
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
// "90", "90s", "10m", "1.5h" in seconds, from 0 to 30 days. Errors: kBadInput  names `option`.
Result<double> seconds_of(const std::string& option, const std::string& text);

}  // namespace starling::tools
