#include "tools/starling/report_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

}  // namespace

Result<ReportFolder> ReportFolder::make(const std::string& out) {
  std::error_code error;
  const fs::path path = fs::absolute(out, error).lexically_normal();
  if (fs::exists(path, error) && !fs::is_empty(path, error))
    return bad_input("--out must be a new or empty folder, is " + out);
  ReportFolder folder;
  folder.path_ = path.string();
  for (fs::path above = path; above.has_relative_path() && !fs::exists(above, error);
       above = above.parent_path())
    folder.made_.push_back(above.string());
  fs::create_directories(path, error);
  if (error) return bad_input("cannot make " + out + " (" + error.message() + ")");
  return folder;
}

ReportFolder::~ReportFolder() {
  std::error_code error;
  for (const std::string& made : made_)
    if (fs::exists(made, error) && !fs::remove(made, error)) return;  // something is in it
}

Result<> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return bad_input("cannot write " + path);
  return ok();
}

Result<double> seconds_of(const std::string& option, const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  value *= factor;
  if (end == text.c_str() || factor == 0 || !(value >= 0) || value > 86400 * 30)
    return bad_input(option + " must be a number of seconds, or like 10m or 2h, is \"" + text +
                     "\"");
  return value;
}

}  // namespace starling::tools
