#pragma once
// AWS Signature Version 4, which every store with the S3 interface takes: a request's headers are signed
// with a secret that never travels (https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html).
// Pure functions.

#include <ctime>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace starling::s3 {

struct AccessKey {
  std::string id;
  std::string secret;
  std::string token;  // of temporary ones; else empty
};

// What is signed of a request.
struct Signed {
  std::string method;
  std::string path;                          // encoded: "/bucket/a%20b"
  std::map<std::string, std::string> query;  // decoded
  std::map<std::string, std::string>
      headers;            // names in lower case, values without outer spaces; has host
  std::string body_hash;  // sha256_hex() of the body
};

// Percent-encodes all but letters, digits, '-', '.', '_', '~', and '/' where it is kept.
std::string encoded(std::string_view text, bool keep_slash);
// "a=b&c=", encoded and in order.
std::string query_text(const std::map<std::string, std::string>& query);

// Hexadecimal digits of the SHA-256 of the pieces, one behind the other.
std::string sha256_hex(std::span<const ByteView> pieces);
std::string sha256_hex(std::string_view text);

// "20261128T190956Z".
std::string time_text(std::time_t time);

// Returns the value of the header Authorization. `time`: as time_text(); request.headers has it as x-amz-date.
std::string authorization(const Signed& request, const AccessKey& key, const std::string& region,
                          const std::string& time);

}  // namespace starling::s3
