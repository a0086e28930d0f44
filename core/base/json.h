#pragma once
// JSON of files that others wrote, as a tree.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace starling {

// Looks at the shape of a JSON text: how deep it is nested, and that no object has a key twice. The parser's own
// callbacks could say the same, and walk through an array at the end of each object in it.
class JsonShape : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonShape(int depth_max) : depth_max_(depth_max) {}
  const std::string& problem() const { return problem_; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return begin();
  }
  bool key(std::string& name) override {
    if (keys_.back().insert(name).second) return true;
    problem_ = "has the key " + nlohmann::json(name).dump(-1, ' ', true).substr(0, 64) + " twice";
    return false;
  }
  bool end_object() override {
    keys_.pop_back();
    return end();
  }
  bool start_array(std::size_t) override { return begin(); }
  bool end_array() override { return end(); }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool begin() {
    if (++depth_ <= depth_max_) return true;
    problem_ = "is nested deeper than " + std::to_string(depth_max_);
    return false;
  }
  bool end() {
    --depth_;
    return true;
  }

  const int depth_max_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string problem_;
};

// Errors: kBadInput  no JSON, nested deeper than `depth_max`, or one key twice in an object.
inline Result<nlohmann::json> parse_json(std::string_view text, int depth_max = 16) {
  // The parser would take a NUL for the end, and what follows for nothing.
  if (text.find('\0') != text.npos) return bad_input("is not JSON");
  JsonShape shape(depth_max);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &shape))
    return bad_input(shape.problem().empty() ? "is not JSON" : shape.problem());
  return nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace starling
