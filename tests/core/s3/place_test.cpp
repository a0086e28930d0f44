#include <doctest/doctest.h>

#include "core/base/s3_place.h"
#include "core/formats/storage.h"

namespace starling::s3 {
namespace {

TEST_CASE("s3 place: a bucket, and what all keys begin with") {
  const Place place = parse_place("s3://my-bucket.x/team a/run-1/").value();
  CHECK(place.bucket == "my-bucket.x");
  CHECK(place.prefix == "team a/run-1");
  CHECK(place.key("owner.json") == "team a/run-1/owner.json");
  CHECK(place.text("owner.json") == "s3://my-bucket.x/team a/run-1/owner.json");
  CHECK(parse_place("s3://abc").value().key("x") == "x");
  CHECK(parse_place("s3://abc/").value().text() == "s3://abc");
}

TEST_CASE("s3 place: what is no bucket, and keys that some would take for others, are refused") {
  for (const char* text : {"", "s3:/a", "S3://abc", "s3://", "s3://ab", "s3://Abc", "s3://a_bc",
                           "s3://-abc", "s3://abc//x", "s3://abc/x//y", "s3://abc/../x",
                           "s3://abc/x/.", "s3://abc/a\nb", "gs://abc/x"})
    CHECK_MESSAGE(!parse_place(text), text);
  CHECK_FALSE(parse_place("s3://abc/" + std::string(801, 'x')));
}

TEST_CASE("s3 place: a store is named by a folder or an address") {
  CHECK(storage_named("s3://abc/x/").value() == "s3://abc/x");
  for (const char* meant : {"s3://abc/../x", "s3:/abc/x", "S3://abc/x", "s3:abc"})
    CHECK_MESSAGE(!storage_named(meant), meant);  // a folder of this name is not meant
  CHECK(storage_named("/a/./b/").value() == "/a/b");
  CHECK(storage_named("/").value() == "/");
  CHECK(storage_named("c").value().ends_with("/c"));
  CHECK(open_storage("s3://abc/x")->place("step-1/a") == "s3://abc/x/step-1/a");
}

}  // namespace
}  // namespace starling::s3
