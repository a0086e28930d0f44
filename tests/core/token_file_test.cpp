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

TEST_CASE("token files: tokens that are not learned are no targets") {
  const DataFolder folder;
  std::filesystem::create_directories(folder.path());
  {
    TokenFiles files(folder.path(), TokenWidth::kMasked32, 5);  // in several files
    // Windows of three and one: the second has nothing to learn, the third a target that is the fourth's first token.
    constexpr std::uint32_t n = kNotLearned;
    REQUIRE(files.append(std::vector<std::uint32_t>{10, 11 | n, 12, 13, 14 | n, 15 | n, 16 | n,
                                                    17 | n, 18 | n, 19, 20 | n}));
    REQUIRE(files.finish());
  }
  const auto set = Dataset::open(job_for(DataKind::kTokens, folder.path(), 3, 256)).value();
  REQUIRE(set->samples() == 2);
  CHECK(set->remark() == "1 of 3 sequences have no token to learn and are left out");
  const std::uint64_t all[] = {0, 1};
  const Batch batch = set->fill(all).value();
  CHECK(batch.tokens == std::vector<std::int32_t>{10, 11, 12, 16, 17, 18});
  constexpr auto none = kNotATarget;
  CHECK(batch.targets == std::vector<std::int32_t>{none, 12, 13, none, none, 19});
  const auto small = Dataset::open(job_for(DataKind::kTokens, folder.path(), 3, 20));
  CHECK(has(small.error().text(), "token 0 is 20"));
}

TEST_CASE("token files: padded documents are sequences of their own") {
  const DataFolder folder;
  const auto put = [&](const std::string& name, std::uint32_t sequence) {
    std::filesystem::create_directories(folder.path() + name);
    TokenFiles files(folder.path() + name, TokenWidth::kMasked32, 100, sequence);
    constexpr std::uint32_t n = kNotLearned;
    REQUIRE(files.append(std::vector<std::uint32_t>{1 | n, 2, 3, 4, 5 | n, 6, 7, 8 | n}));
    REQUIRE(files.finish());
    return folder.path() + name;
  };
  const auto set = Dataset::open(job_for(DataKind::kTokens, put("/a", 4), 4, 256)).value();
  REQUIRE(set->samples() == 2);
  const std::uint64_t all[] = {0, 1};
  const Batch batch = set->fill(all).value();
  CHECK(batch.tokens == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(batch.targets ==
        std::vector<std::int32_t>{2, 3, 4, kNotATarget, 6, 7, kNotATarget, kNotATarget});
  // Of another context they are refused, and the same tokens one behind the other are other data.
  CHECK(has(Dataset::open(job_for(DataKind::kTokens, folder.path() + "/a", 2, 256)).error().text(),
            "has sequences of 4 tokens, as --pad-to or --pack has said; the context must be as "
            "long, is 2"));
  const auto other = Dataset::open(job_for(DataKind::kTokens, put("/b", 0), 4, 256)).value();
  CHECK(other->samples() == 1);
  CHECK(other->identity() != set->identity());
  CHECK(has(Dataset::open(job_for(DataKind::kTokens, folder.path(), 4, 256)).error().text(),
            "has tokens without sequences, expected sequences of 4 tokens as in "));
}

TEST_CASE("token files: each file of padded documents begins a sequence") {
  const DataFolder folder;
  std::filesystem::create_directories(folder.path());
  TokenFiles files(folder.path(), TokenWidth::kMasked32, 10, /*sequence=*/4);
  REQUIRE(files.append(std::vector<std::uint32_t>(16, 3)));
  REQUIRE(files.finish());
  CHECK(files.files() == 2);  // of eight, not of ten
  const std::string path = folder.path() + "/tokens-000001.bin";
  Bytes file = bytes_of_file(path);
  CHECK(parse_token_file(file, path).value().size() == 8);
  file.erase(file.end() - 4, file.end());
  file[8] = 7;
  CHECK(has(parse_token_file(file, path).error().text(),
            "has 7 tokens, expected whole sequences of 4"));
}

TEST_CASE("token files: a mask that leaves nothing to learn is refused") {
  const DataFolder folder;
  std::filesystem::create_directories(folder.path());
  TokenFiles files(folder.path(), TokenWidth::kMasked32, 100);
  REQUIRE(files.append(std::vector<std::uint32_t>(50, 3 | kNotLearned)));
  REQUIRE(files.finish());
  CHECK(has(Dataset::open(job_for(DataKind::kTokens, folder.path(), 4, 256)).error().text(),
            "no token of it is to be learned"));
}

TEST_CASE("token files: a folder that cannot be written is an error") {
  TokenFiles files("/proc/none", TokenWidth::k16, 10);
  const auto written = files.append(counted(1, 1));
  REQUIRE(!written);
  CHECK(has(written.error().text(), "cannot write /proc/none/tokens-000000.bin: "));
}

}  // namespace starling
