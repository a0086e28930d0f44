// [data] order = "lanes" of a job file.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "core/job/job.h"
#include "tests/core/job_text.h"

namespace starling {
namespace {

std::string lanes_text() {
  return replaced(kGood, "kind = \"text\"\npath = \"core\"",
                  "kind = \"tokens\"\norder = \"lanes\"\npath = \"core\"");
}

}  // namespace

TEST_CASE("[data] order: global without the key, and checked with it") {
  CHECK(parse_job(kGood, ".").value().data.order == DataOrder::kGlobal);
  CHECK(format_job(parse_job(kGood, ".").value()).find("order") == std::string::npos);
  const auto read = parse_job(lanes_text() + "cache = \"/cache\"\ncache_bytes = 2_000_000\n", ".");
  REQUIRE_MESSAGE(read, read.error().text());
  const Job& job = read.value();
  CHECK(job.data.order == DataOrder::kLanes);
  CHECK(job.data.cache == "/cache");
  CHECK(job.data.cache_bytes == 2'000'000);
  CHECK(parse_job(format_job(job), "/").value() == job);

  const std::string s3 = replaced(lanes_text(), "\"core\"", "\"s3://bucket/a/b/\"");
  CHECK(parse_job(s3, ".").value().data.path == "s3://bucket/a/b");

  const std::pair<std::string, const char*> wrong[] = {
      {replaced(lanes_text(), "tokens", "text"), "order does not apply to kind \"text\""},
      {replaced(lanes_text(), "\"lanes\"", "\"lane\""),
       "order must be one of \"global\", \"lanes\""},
      {lanes_text() + "extensions = [\".bin\"]\n", "extensions does not apply to order \"lanes\""},
      {lanes_text() + "cache = \"here\"\n", "cache must be the whole path of a folder"},
      {lanes_text() + "cache_bytes = 2000000\n", "cache_bytes does not apply without cache"},
      {lanes_text() + "cache = \"/c\"\ncache_bytes = 5\n", "cache_bytes must be an integer from"},
      {replaced(lanes_text(), "order = \"lanes\"", "cache = \"/c\""),
       "cache does not apply to order \"global\""},
      {replaced(lanes_text(), "\"core\"", "\"README.md\""),
       "path must be a folder with an index.json"},
      {replaced(lanes_text(), "\"core\"", "\"s3:/x\""), "s3://"},
      {replaced(s3, "order = \"lanes\"\n", ""), "of a bucket, shards are read"},
      {replaced(kGood, "\"core\"", "\"s3://bucket/x\""), "of a bucket, shards are read"},
  };
  for (const auto& [text, why] : wrong) {
    const std::string error = error_of(text);
    CHECK_MESSAGE(error.find(why) != std::string::npos, error);
  }
}

TEST_CASE("[data] order is in the hash of the state, and where chunks are kept is not") {
  const Job job = parse_job(lanes_text(), ".").value();
  Job other = job;
  other.data.order = DataOrder::kGlobal;
  CHECK(state_hash(other) != state_hash(job));
  other = job;
  other.data.cache = "/elsewhere";
  other.data.cache_bytes = 1;
  other.data.path = "s3://bucket/x";
  CHECK(state_hash(other) == state_hash(job));
}

TEST_CASE("[evaluate] of a job in lanes has token files of the machine") {
  const std::string evaluate = "\n[evaluate]\nevery = 10\npath = ";
  CHECK(parse_job(lanes_text() + evaluate + "\"core\"", ".").value().evaluate.on());
  CHECK(error_of(lanes_text() + evaluate + "\"s3://bucket/x\"")
            .find("path must be a file or folder") != std::string::npos);
}

}  // namespace starling
