// The requests and signatures that AWS publishes for S3 ("Authenticating Requests: Using the Authorization
// Header", examples with the bucket examplebucket).
#include "core/formats/s3/signature.h"

#include <doctest/doctest.h>

namespace starling::s3 {
namespace {

const AccessKey kKey{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
constexpr const char* kTime = "20130524T000000Z";
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

Signed request(const char* method, const std::string& path, const std::string& body_hash) {
  return {method,
          path,
          {},
          {{"host", "examplebucket.s3.amazonaws.com"},
           {"x-amz-content-sha256", body_hash},
           {"x-amz-date", kTime}},
          body_hash};
}

std::string signature(const Signed& what) {
  const std::string all = authorization(what, kKey, "us-east-1", kTime);
  return all.substr(all.rfind('=') + 1);
}

TEST_CASE("s3 signature: what AWS publishes") {
  CHECK(sha256_hex("") == kEmpty);
  Signed get = request("GET", "/test.txt", kEmpty);
  get.headers["range"] = "bytes=0-9";
  CHECK(authorization(get, kKey, "us-east-1", kTime) ==
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

  Signed put =
      request("PUT", "/" + encoded("test$file.text", true), sha256_hex("Welcome to Amazon S3."));
  put.headers["date"] = "Fri, 24 May 2013 00:00:00 GMT";
  put.headers["x-amz-storage-class"] = "REDUCED_REDUNDANCY";
  CHECK(signature(put) == "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");

  Signed lifecycle = request("GET", "/", kEmpty);
  lifecycle.query = {{"lifecycle", ""}};
  CHECK(signature(lifecycle) == "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");

  Signed list = request("GET", "/", kEmpty);
  list.query = {{"prefix", "J"}, {"max-keys", "2"}};
  CHECK(signature(list) == "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("s3 signature: names are encoded once, and each byte but plain ones") {
  CHECK(encoded("a b/c+d~e", true) == "a%20b/c%2Bd~e");
  CHECK(encoded("a/\xc3\xa9", false) == "a%2F%C3%A9");
  CHECK(query_text({{"uploads", ""}, {"a b", "1/2"}}) == "a%20b=1%2F2&uploads=");
}

TEST_CASE("s3 signature: a hash does not depend on how the bytes are cut") {
  const std::string text = "abcdef";
  const ByteView all = as_bytes(std::span<const char>(text));
  const ByteView pieces[] = {all.first(1), all.subspan(1, 0), all.subspan(1)};
  CHECK(sha256_hex(pieces) == sha256_hex(text));
}

TEST_CASE("s3 signature: time is that of UTC") {
  CHECK(time_text(1369353600) == kTime);
}

}  // namespace
}  // namespace starling::s3
