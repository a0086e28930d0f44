#pragma once
// A plan that every engine takes, and one of its files.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tools/launch/plan.h"

namespace starling::tools {

inline LaunchPlan a_plan() {
  LaunchPlan plan;
  plan.name = "tiny";
  plan.job_file = "/jobs/tiny.toml";
  plan.job.elastic.coordinator_timeout_ms = 900'000;
  plan.coordinators = {{"n4", 7000}};
  plan.workers = 3;
  plan.min_workers = 2;
  return plan;
}

inline std::string text_of(const Launch& launch, const std::string& path) {
  const auto file = std::ranges::find(launch.files, path, &LaunchFile::path);
  REQUIRE_MESSAGE(file != launch.files.end(), path);
  return file->text;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace starling::tools
