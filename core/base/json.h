#pragma once
// JSON of files that others wrote, as a tree.

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace starling {

// Errors: kBadInput  no JSON, nested deeper than `depth_max`, or one key twice in an object.
inline Result<nlohmann::json> parse_json(std::string_view text, int depth_max = 16) {
  // The parser would take a NUL for the end, and what follows for nothing.
  if (text.find('\0') != text.npos) return bad_input("is not JSON");
  std::string problem;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using At = nlohmann::json::parse_event_t;
    if (depth > depth_max && problem.empty())
      problem = "is nested deeper than " + std::to_string(depth_max);
    if (!problem.empty()) return false;
    if (event == At::object_start) keys.emplace_back();
    if (event == At::object_end) keys.pop_back();
    if (event == At::key && !keys.back().insert(parsed.get<std::string>()).second)
      problem =
          "has the key " + nlohmann::json(parsed).dump(-1, ' ', true).substr(0, 64) + " twice";
    return problem.empty();
  };
  auto json = nlohmann::json::parse(text.begin(), text.end(), watch, false);
  if (!problem.empty()) return bad_input(std::move(problem));
  if (json.is_discarded()) return bad_input("is not JSON");
  return json;
}

}  // namespace starling
