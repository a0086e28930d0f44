#include "core/base/s3_place.h"

#include <algorithm>

namespace starling::s3 {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr std::size_t kPrefixMax = 800;  // a key has 1,024 bytes at most

bool is_bucket(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return name.size() >= 3 && name.size() <= 63 && plain(name.front()) && plain(name.back()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return plain(c) || c == '-' || c == '.'; });
}

// Whether every store and proxy leaves such a key as it is.
bool is_prefix(std::string_view prefix) {
  while (!prefix.empty()) {
    const auto slash = std::min(prefix.find('/'), prefix.size());
    const std::string_view part = prefix.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (std::any_of(part.begin(), part.end(),
                    [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      return false;
    prefix.remove_prefix(std::min(slash + 1, prefix.size()));
  }
  return true;
}

}  // namespace

std::string Place::key(const std::string& name) const {
  return prefix.empty() ? name : prefix + "/" + name;
}

std::string Place::text(const std::string& name) const {
  std::string all = std::string(kScheme) + bucket;
  if (!prefix.empty()) all += "/" + prefix;
  if (!name.empty()) all += "/" + name;
  return all;
}

bool is_place(std::string_view text) {
  return text.starts_with("s3:") || text.starts_with("S3:");
}

Result<Place> parse_place(const std::string& text) {
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
    const auto slash = std::min(rest.find('/'), rest.size());
    Place place{std::string(rest.substr(0, slash)), {}};
    rest.remove_prefix(std::min(slash + 1, rest.size()));
    if (rest.ends_with('/')) rest.remove_suffix(1);
    place.prefix = rest;
    if (is_bucket(place.bucket) && is_prefix(rest) && rest.size() <= kPrefixMax) return place;
  }
  return Error(
      Code::kBadInput,
      "expected s3://BUCKET/PREFIX, BUCKET of 3 to 63 letters a to z, digits, '-' and '.', "
      "PREFIX without empty parts, '.', '..' and control characters; " +
          text);
}

}  // namespace starling::s3
