#include "core/observe/line_format.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

namespace starling {
namespace {

using Json = nlohmann::json;

TEST_CASE("lines: an object has the schema's names, the time in UTC, and labels as texts") {
  const std::string line = ecs_line(LogLevel::kWarn, "worker-1 \"is\" gone\n",
                                    {{"worker", "3"}, {"cause", ""}}, 1'772'000'000'000'123);
  CHECK(line.find('\n') == std::string::npos);
  const Json json = Json::parse(line);
  CHECK(json["@timestamp"] == "2026-02-25T06:13:20.000123Z");
  CHECK(json["log.level"] == "warn");
  CHECK(json["message"] == "worker-1 \"is\" gone\n");
  CHECK(json["ecs.version"] == "8.11.0");
  CHECK(json["service.name"] == "starling");
  CHECK(json["process.pid"] == ::getpid());
  CHECK(json["labels.worker"] == "3");
  CHECK(json["labels.cause"] == "");
  CHECK_FALSE(json.contains("service.node.name"));
}

TEST_CASE("lines: each level has its name") {
  const auto level = [](LogLevel of) { return Json::parse(ecs_line(of, "", {}, 0))["log.level"]; };
  CHECK(level(LogLevel::kDebug) == "debug");
  CHECK(level(LogLevel::kInfo) == "info");
  CHECK(level(LogLevel::kError) == "error");
}

TEST_CASE("lines: what is long is cut, and what is no UTF-8 is replaced") {
  const Json json = Json::parse(
      ecs_line(LogLevel::kInfo, std::string(100'000, 'a') + "\xff", {{"x", "\xc3"}}, 0));
  CHECK(json["message"].get<std::string>() == std::string(kEcsMessageBytes, 'a'));
  CHECK(json["labels.truncated"] == "true");
  CHECK(json["labels.x"] == "\xef\xbf\xbd");
}

}  // namespace
}  // namespace starling
