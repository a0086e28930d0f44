#include "core/data/token_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/data/dataset.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {
namespace {

std::vector<std::uint32_t> counted(std::uint32_t count, std::uint32_t step) {
  std::vector<std::uint32_t> tokens(count);
  for (std::uint32_t i = 0; i < count; ++i) tokens[i] = i * step;
  return tokens;
}

Bytes bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("token files: what is written is read back, in files of as many tokens as asked") {
  for (const TokenWidth width : {TokenWidth::k16, TokenWidth::k32}) {
    const DataFolder folder;
    std::filesystem::create_directories(folder.path());
    const auto tokens = counted(1000, width == TokenWidth::k16 ? 65 : 100'000);
    {
      TokenFiles files(folder.path(), width, 300);
      for (std::size_t at = 0; at < tokens.size(); at += 250)
        REQUIRE(files.append(std::span(tokens).subspan(at, 250)));
      REQUIRE(files.finish());
      CHECK(files.tokens() == 1000);
      CHECK(files.files() == 4);
    }
    std::vector<std::uint32_t> read;
    for (const char* name : {"0", "1", "2", "3"}) {
      const std::string path = folder.path() + "/tokens-00000" + name + ".bin";
      const Bytes bytes = bytes_of_file(path);
      const TokenFile file = parse_token_file(bytes, path).value();
      CHECK(file.width == width);
      CHECK(file.size() == (read.size() < 900 ? 300 : 100));
      for (std::uint64_t i = 0; i < file.size(); ++i) read.push_back(file[i]);
    }
    CHECK(read == tokens);
    const std::uint32_t vocabulary = width == TokenWidth::k16 ? 65'000 : 100'000'000;
    const auto set =
        Dataset::open(job_for(DataKind::kTokens, folder.path(), 3, vocabulary)).value();
    CHECK(set->samples() == 333);
    // Sample 100 has the end of the first file and the beginning of the second.
    const std::uint64_t sample[] = {99};
    const Batch batch = set->fill(sample).value();
    CHECK(batch.tokens == std::vector<std::int32_t>(tokens.begin() + 297, tokens.begin() + 300));
    CHECK(batch.targets == std::vector<std::int32_t>(tokens.begin() + 298, tokens.begin() + 301));
  }
}

TEST_CASE("token files: one that was cut while it was written is none") {
  const DataFolder folder;
  std::filesystem::create_directories(folder.path());
  {
    TokenFiles files(folder.path(), TokenWidth::k16, 300);
    REQUIRE(files.append(counted(100, 1)));
  }
  const std::string path = folder.path() + "/tokens-000000.bin";
  const auto file = parse_token_file(bytes_of_file(path), path);
  REQUIRE(!file);
  CHECK(has(file.error().text(), "header says 0 tokens"));
}

TEST_CASE("token files: tokens of two widths are no data set") {
  const DataFolder folder;
  std::filesystem::create_directories(folder.path() + "/a");
  std::filesystem::create_directories(folder.path() + "/b");
  for (const TokenWidth width : {TokenWidth::k16, TokenWidth::k32}) {
    TokenFiles files(folder.path() + (width == TokenWidth::k16 ? "/a" : "/b"), width, 300);
    REQUIRE(files.append(counted(100, 1)));
    REQUIRE(files.finish());
  }
  const auto set = Dataset::open(job_for(DataKind::kTokens, folder.path(), 3, 256));
  REQUIRE(!set);
  CHECK(has(set.error().text(), "has tokens of 32 bits, expected 16 bits as in "));
  CHECK(has(set.error().text(), "/b/tokens-000000.bin"));
}

TEST_CASE("token files: a folder that cannot be written is an error") {
  TokenFiles files("/proc/none", TokenWidth::k16, 10);
  const auto written = files.append(counted(1, 1));
  REQUIRE(!written);
  CHECK(has(written.error().text(), "cannot write /proc/none/tokens-000000.bin: "));
}

}  // namespace starling
