#pragma once
// Addresses of object storage: s3://BUCKET or s3://BUCKET/PREFIX.

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace starling::s3 {

struct Place {
  std::string bucket;
  std::string prefix;  // of every key, without '/' at its ends; may be empty

  // Returns the key of an object.
  std::string key(const std::string& name) const;
  // Returns "s3://BUCKET/KEY", for people.
  std::string text(const std::string& name = {}) const;
};

// Whether it is meant as one: it begins with s3: (or S3:), also without the two strokes.
bool is_place(std::string_view text);

// Pure. Errors: kBadInput  it is no address, or one whose objects some stores would take for others.
Result<Place> parse_place(const std::string& text);

}  // namespace starling::s3
