#include "tools/starling/chaos_conclusion.h"

#include <cstdio>
#include <filesystem>

#include "tools/chaos/report_html.h"
#include "tools/starling/report_folder.h"

namespace starling::tools {

Result<int> conclude(chaos::Report report, const std::string& folder) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  report.verdicts = judge::verdicts_of(report.evidence);
  report.pauses = judge::pauses_of(report.evidence.loud, report.evidence.deeds);
  STARLING_TRY(write_file(path("report.json"), chaos::report_json(report)));
  STARLING_TRY(write_file(path("report.html"), chaos::report_html(report)));
  STARLING_TRY(write_file(path("junit.xml"), chaos::report_junit(report)));
  std::printf("verdict\n");
  for (const auto& verdict : report.verdicts)
    std::printf("  %s\n", chaos::line_of(verdict).c_str());
  const bool held = judge::all_held(report.verdicts);
  if (!held) std::printf("to do this again: %s\n", report.repeat.c_str());
  const bool tested = judge::anything_done(report.evidence);
  const std::string conclusion =
      held && !tested ? "NOTHING TESTED" : judge::conclusion(report.verdicts);
  std::printf("%s; report in %s\n", conclusion.c_str(), folder.c_str());
  return held && tested ? 0 : 1;
}

}  // namespace starling::tools
