#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/data/bytes_source.h"
#include "core/data/dataset.h"
#include "core/formats/job_file.h"
#include "tests/core/data_folder.h"
#include "tests/core/has.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

std::string opening_error(const Job& job) {
  const auto set = Dataset::open(job);
  if (set) return "no error";
  CHECK(set.error().code() == Code::kBadInput);
  CHECK(set.error().text().find(job.data.path) != std::string::npos);
  return set.error().text();
}

std::string text_of(const BytesSource& source) {
  Bytes room;
  const auto all = source.read(0, source.size(), room).value();
  return {all.begin(), all.end()};
}

std::string tokens(const std::vector<std::uint16_t>& all) {
  return {reinterpret_cast<const char*>(all.data()), all.size() * 2};
}

std::string llmc(std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
  std::string header(1024, '\0');
  const std::uint32_t fields[] = {magic, version, count};
  std::memcpy(header.data(), fields, sizeof fields);
  return header;
}

}  // namespace

TEST_CASE("text: windows, targets one byte later, tail left out") {
  const DataFolder folder;
  const auto path = folder.write("text", "abcdefghij\xff");  // 11 bytes: 3 sequences of 3, tail 1
  const auto set = Dataset::open(job_for(DataKind::kText, path, 3, 256)).value();
  CHECK(set->samples() == 3);
  const std::uint64_t wanted[] = {2, 0};
  const Batch batch = set->fill(wanted).value();
  CHECK(batch.sequences == 2);
  CHECK(batch.tokens == std::vector<std::int32_t>{'g', 'h', 'i', 'a', 'b', 'c'});
  CHECK(batch.targets == std::vector<std::int32_t>{'h', 'i', 'j', 'b', 'c', 'd'});
  CHECK(batch.x.empty());
  // One byte more or less at the border of a sequence.
  CHECK(Dataset::open(job_for(DataKind::kText, path, 10, 256)).value()->samples() == 1);
  CHECK(Dataset::open(job_for(DataKind::kText, path, 5, 256)).value()->samples() == 2);
  const auto high = folder.write("high", "\x80\xff");
  const std::uint64_t zero[] = {0};
  CHECK(Dataset::open(job_for(DataKind::kText, high, 1, 256))
            .value()
            ->fill(zero)
            .value()
            .targets[0] == 255);
}

TEST_CASE("text that is too short or not there") {
  const DataFolder folder;
  CHECK(has(opening_error(job_for(DataKind::kText, folder.write("empty", ""), 3, 256)),
            "must have at least 4 bytes (context + 1), has 0"));
  CHECK(
      has(opening_error(job_for(DataKind::kText, folder.write("short", "abc"), 3, 256)), "has 3"));
  CHECK(opening_error(job_for(DataKind::kText, folder.write("fits", "abcd"), 3, 256)) ==
        "no error");
  CHECK(has(opening_error(job_for(DataKind::kText, folder.path() + "/none", 3, 256)),
            "No such file"));
  CHECK(
      has(opening_error(job_for(DataKind::kText, "/dev/null", 3, 256)), "neither a regular file"));
  fs::create_directories(folder.path() + "/hollow/inside");
  CHECK(has(opening_error(job_for(DataKind::kText, folder.path() + "/hollow", 3, 256)), "has 0"));
}

TEST_CASE("a folder is its files in the order of their paths; links are not followed") {
  const DataFolder folder;
  folder.write("t/b.h", "BB");
  folder.write("t/a/z.h", "zz");
  folder.write("t/a.h", "AA");
  folder.write("t/c", "CC");
  folder.write("t/d.txt", "DD");
  folder.write("outside", "XX");
  fs::create_symlink(folder.path() + "/outside", folder.path() + "/t/link");
  fs::create_directory_symlink(folder.path() + "/t", folder.path() + "/t/loop");
  fs::create_symlink("nowhere", folder.path() + "/t/broken");
  const auto text = [&](const std::vector<std::string>& extensions) {
    return text_of(*BytesSource::open(folder.path() + "/t", extensions).value());
  };
  CHECK(text({}) == "AAzzBBCCDD");  // "a.h" < "a/z.h": '.' is below '/'
  CHECK(text({".h"}) == "AAzzBB");
  CHECK(text({".txt", ""}) == "CCDD");
  CHECK(text({".none"}).empty());
  // What is left out is said.
  const auto set = Dataset::open(job_for(DataKind::kText, folder.path() + "/t", 3, 256)).value();
  CHECK(has(set->remark(), "not followed, 3 left out: " + folder.path() + "/t/broken"));
  const auto one = Dataset::open(job_for(DataKind::kText, folder.path() + "/outside", 1, 256));
  CHECK(one.value()->remark().empty());
}

TEST_CASE("a pattern is the files that match, links to files too") {
  const DataFolder folder;
  folder.write("s/train_2.bin", "22");
  folder.write("s/train_10.bin", "10");
  folder.write("s/val_1.bin", "VV");
  folder.write("s/.train_0.bin", "..");
  folder.write("s/train_9.bin/inside", "no");  // a folder
  folder.write("blob", "BB");
  fs::create_symlink(folder.path() + "/blob", folder.path() + "/s/train_3.bin");
  fs::create_symlink("nowhere", folder.path() + "/s/train_4.bin");
  const auto text = [&](const std::string& pattern) {
    return text_of(*BytesSource::open(folder.path() + "/s/" + pattern, {}).value());
  };
  CHECK(text("train_*.bin") == "1022BB");
  CHECK(text("train_[0-9].bin") == "22BB");
  CHECK(text("*_1.bin") == "VV");
  CHECK(has(BytesSource::open(folder.path() + "/s/*.txt", {}).error().text(), "no file matches"));
  CHECK(has(BytesSource::open(folder.path() + "/t/*", {}).error().text(), "No such file"));
  folder.write("s/train_*.bin", "itself");  // a file of that very name
  CHECK(text("train_*.bin") == "itself");
}

// Of one file and of many: small ones in memory, larger ones mapped.
TEST_CASE("bytes are the same however they are cut into files") {
  const DataFolder folder;
  std::string all;
  for (std::uint64_t i = 0; i < 700'000; ++i) all += static_cast<char>(i * i % 251);
  folder.write("one", all);
  const std::size_t cuts[] = {0, 1, 1, 70'000, 140'000, 140'100, 400'000, 700'000};
  for (std::size_t i = 1; i < std::size(cuts); ++i)
    folder.write("many/" + std::to_string(i), all.substr(cuts[i - 1], cuts[i] - cuts[i - 1]));
  const auto job = [&](const std::string& name) {
    return job_for(DataKind::kText, folder.path() + "/" + name, 999, 256);
  };
  const auto one = Dataset::open(job("one")).value(), many = Dataset::open(job("many")).value();
  CHECK(one->identity() == many->identity());
  REQUIRE(one->samples() == many->samples());
  for (std::uint64_t i = 0; i < one->samples(); ++i) {
    const std::uint64_t wanted[] = {i};
    const auto want = one->fill(wanted).value(), got = many->fill(wanted).value();
    CHECK(want.tokens == got.tokens);
    CHECK(want.targets == got.targets);
  }
  // A sample that lies in a file that was cut is refused; others are as good as before.
  fs::resize_file(folder.path() + "/many/6", 5000);  // of bytes 140'100 .. 400'000
  const std::uint64_t touched[] = {200}, before[] = {3}, after[] = {500};
  const auto refused = many->fill(touched);
  REQUIRE_FALSE(refused);
  CHECK(has(refused.error().text(), "was cut to 5000 bytes while in use, had 259900"));
  CHECK(has(refused.error().text(), "many/6"));
  CHECK(many->fill(before).value().tokens == one->fill(before).value().tokens);
  CHECK(many->fill(after).value().tokens == one->fill(after).value().tokens);
}

TEST_CASE("tokens: shards are their tokens one after the other") {
  const DataFolder folder;
  std::vector<std::uint16_t> all;
  for (int i = 0; i < 100'000; ++i) all.push_back(static_cast<std::uint16_t>(i * 7 % 300));
  const auto part = [&](std::size_t from, std::size_t to) {
    return tokens({all.begin() + static_cast<std::ptrdiff_t>(from),
                   all.begin() + static_cast<std::ptrdiff_t>(to)});
  };
  folder.write("one.bin", tokens(all));
  folder.write("s/train_000001.bin", llmc(20240520, 1, 60'001) + part(0, 60'001));
  folder.write("s/train_000002.bin", part(60'001, 60'003));
  folder.write("s/train_000003.bin", llmc(20240520, 1, 39'997) + part(60'003, 100'000));
  folder.write("s/README.md", "These are no tokens");
  const auto open = [&](const std::string& name) {
    return Dataset::open(job_for(DataKind::kTokens, folder.path() + "/" + name, 7, 300)).value();
  };
  const auto one = open("one.bin"), many = open("s"), matched = open("s/train_*.bin");
  for (const auto* set : {many.get(), matched.get()}) {
    CHECK(set->identity() == one->identity());
    REQUIRE(set->samples() == one->samples());
    for (const std::uint64_t i : {0u, 8570u, 8571u, 8572u, 14284u}) {
      const std::uint64_t wanted[] = {i};
      CHECK(set->fill(wanted).value().tokens == one->fill(wanted).value().tokens);
      CHECK(set->fill(wanted).value().targets == one->fill(wanted).value().targets);
    }
  }
  folder.write("s/train_000002.bin", tokens({5, 300}));  // the file at fault is named
  const Job job = job_for(DataKind::kTokens, folder.path() + "/s", 7, 300);
  CHECK(has(Dataset::open(job).error().text(),
            "token 1 is 300; reading data " + job.data.path + "/train_000002.bin"));
}

TEST_CASE("tokens: raw and with llm.c's header are the same data") {
  const DataFolder folder;
  const std::vector<std::uint16_t> all = {5, 0, 299, 7, 8, 9, 10};
  const auto raw =
      Dataset::open(job_for(DataKind::kTokens, folder.write("raw.bin", tokens(all)), 2, 300))
          .value();
  const auto with =
      Dataset::open(job_for(DataKind::kTokens,
                            folder.write("llmc.bin", llmc(20240520, 1, 7) + tokens(all)), 2, 300))
          .value();
  const std::uint64_t wanted[] = {1, 2};
  for (const auto* set : {raw.get(), with.get()}) {
    CHECK(set->samples() == 3);
    const Batch batch = set->fill(wanted).value();
    CHECK(batch.tokens == std::vector<std::int32_t>{299, 7, 8, 9});
    CHECK(batch.targets == std::vector<std::int32_t>{7, 8, 9, 10});
  }
  CHECK(raw->identity() == with->identity());
}

TEST_CASE("token files that are refused") {
  const DataFolder folder;
  const std::string some = tokens({1, 2, 3, 4});
  struct Row {
    std::string content, message;
  };
  const Row rows[] = {
      {"", "must have at least 3 tokens (context + 1), has 0"},
      {tokens({1, 2}), "has 2"},
      {some + "x", "must have an even number of bytes (uint16 tokens), has 9"},
      {tokens({1, 2, 300, 4}), "must be below the vocabulary's 300, token 2 is 300"},
      {tokens({1, 2, 3, 65535}), "token 3 is 65535"},
      {llmc(20240520, 1, 4) + some, "no error"},
      {llmc(20240520, 1, 4) + tokens({1, 2, 3, 300}), "token 3 is 300"},
      {llmc(20240520, 2, 4) + some, "version must be 1, is 2"},
      {llmc(20240520, 1, 5) + some,
       "header says 5 tokens at byte 8 (1034 bytes), file has 1032 bytes"},
      {llmc(20240520, 1, 3) + some, "header says 3 tokens"},
      {llmc(20240520, 1, 0), "header says 0 tokens"},
      {llmc(20240520, 1, 0xffffffff) + some, "header says 4294967295 tokens"},
      {llmc(20240520, 1, 4).substr(0, 12), "file has 12 bytes"},
      {llmc(20240801, 7, 4) + some + some, "token 0 is 131073"},
      {llmc(20240801, 1, 4) + some + some, "version must be 7, is 1"},
      {llmc(20240801, 7, 4) + some, "header says 4 tokens at byte 8 (1040 bytes), file has 1032"},
      {llmc(20240522, 1, 4) + some, "evaluation file"},
  };
  for (const Row& row : rows) {
    const std::string error =
        opening_error(job_for(DataKind::kTokens, folder.write("t.bin", row.content), 2, 300));
    CHECK_MESSAGE(has(error, row.message), "got: " << error << " wanted: " << row.message);
  }
}

TEST_CASE("classified: rows with their labels, from the example's file") {
  const Job job = load_job("examples/mlp/digits.toml").value();
  const auto opened = Dataset::open(job);
  REQUIRE_MESSAGE(opened, opened.error().text());
  const auto& set = opened.value();
  CHECK(set->samples() == 360);
  const std::uint64_t wanted[] = {359, 0};
  const Batch batch = set->fill(wanted).value();
  CHECK(batch.sequences == 2);
  CHECK(batch.tokens.empty());
  CHECK(batch.x.size() == 128);
  CHECK(batch.targets == std::vector<std::int32_t>{9, 0});  // labels go round
  CHECK(set->micro_batch(3, 1).value().targets.size() == job.micro_batch_sequences);
}

TEST_CASE("classified files that are refused") {
  const DataFolder folder;
  const std::string x = R"("x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
  const std::string y = R"("y":{"dtype":"I32","shape":[2],"data_offsets":[24,32]})";
  const std::string good = "{" + x + "," + y + "}";
  const auto file = [](const std::string& header, const std::vector<float>& values,
                       const std::vector<std::int32_t>& labels) {
    const std::uint64_t bytes = header.size();
    std::string out(reinterpret_cast<const char*>(&bytes), 8);
    out += header;
    out.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    out.append(reinterpret_cast<const char*>(labels.data()), labels.size() * 4);
    return out;
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string header = good;
    return file(header.replace(header.find(from), from.size(), to), {1, 2, 3, 4, 5, 6}, {0, 1});
  };
  const std::string whole = file(good, {1, 2, 3, 4, 5, 6}, {0, 1});
  struct Row {
    std::string content, message;
  };
  const Row rows[] = {
      {whole, "no error"},
      {"", "no safetensors header"},
      {whole.substr(0, 7), "no safetensors header"},
      {whole.substr(0, 40), "no safetensors header"},
      {std::string(8, '\xff') + whole, "no safetensors header"},
      {whole.substr(0, whole.size() - 1), "must fill the 31 bytes"},
      {whole + "x", "must fill the 33 bytes"},
      {file("[]", {}, {}), "is not a JSON object"},
      {file(" " + good, {1, 2, 3, 4, 5, 6}, {0, 1}), "is not a JSON object"},
      {file("{" + x + "," + x + "," + y + "}", {1, 2, 3, 4, 5, 6}, {0, 1}), "has a key twice"},
      {changed("\"shape\":[2]", "\"shape\":[2],\"shape\":[2]"), "has a key twice"},
      {file("{" + x + "}", {1, 2, 3, 4, 5, 6}, {}), "y must be I32 of shape [n], is missing"},
      {changed("\"y\"", "\"z\""), "x and y only"},
      {changed("F32", "F16"), "x must be F32 of shape [n, 3], header has {"},
      {changed("[2,3]", "[6]"), "x must be F32 of shape [n, 3]"},
      {changed("[2,3]", "[3,2]"), "has 2 columns"},
      {changed("[2,3]", "[-2,3]"), "x must be F32"},
      {changed("[2,3]", "[2.0,3]"), "x must be F32"},
      {changed("[2,3]", "[4611686018427387904,3]"), "with n from 1 to 2^31"},
      {changed("[2,3]", "[1,3]"), "as many bytes, has n = 1"},
      {changed("[0,24]", "[24,0]"), "as many bytes"},
      {changed("[24,32]", "[16,24]"), "must fill the 32 bytes"},
      {file(good, {1, 2, 3, 4, INFINITY, 6}, {0, 1}), "row 1 column 1 is not"},
      {file(good, {1, 2, NAN, 4, 5, 6}, {0, 1}), "row 0 column 2 is not"},
      {file(good, {1, 2, 3, 4, 5, 6}, {0, 2}),
       "y must be from 0 to 1 (the model's classes), row 1 is 2"},
      {file(good, {1, 2, 3, 4, 5, 6}, {-1, 0}), "row 0 is -1"},
  };
  for (const Row& row : rows) {
    Job job = job_for(DataKind::kClassified, folder.write("c.safetensors", row.content), 1, 2);
    job.model = MlpSpec{{3, 2}};
    const std::string error = opening_error(job);
    CHECK_MESSAGE(has(error, row.message), "got: " << error << " wanted: " << row.message);
  }
}

// The identity of an array above 64 MiB is a sample; a value between its pieces is data, too.
TEST_CASE("classified: the content of large data sees every value") {
  const DataFolder folder;
  constexpr std::size_t kRows = (65u << 20) / (4 * 1024), kColumns = 1024;
  const std::size_t x = 4 * kRows * kColumns;
  const std::string end = std::to_string(x), all = std::to_string(x + 4 * kRows);
  const std::string header = R"({"x":{"dtype":"F32","shape":[)" + std::to_string(kRows) +
                             ",1024],\"data_offsets\":[0," + end +
                             R"(]},"y":{"dtype":"I32","shape":[)" + std::to_string(kRows) +
                             "],\"data_offsets\":[" + end + "," + all + "]}}";
  const std::uint64_t bytes = header.size();
  std::string content(reinterpret_cast<const char*>(&bytes), 8);
  content += header;
  const std::size_t first = content.size();
  content.resize(first + x + 4 * kRows);
  const auto open = [&] {
    Job job = job_for(DataKind::kClassified, folder.write("c.safetensors", content), 1, 2);
    job.model = MlpSpec{{kColumns, 2}};
    return Dataset::open(job).value();
  };
  const auto yes = [] { return true; };
  const auto before = open();
  const float other = 1;
  std::memcpy(content.data() + first + (1u << 20) + (200u << 10), &other, sizeof other);
  const auto after = open();
  CHECK(before->identity() == after->identity());
  CHECK(before->content(yes) != after->content(yes));
  CHECK(before->content(yes) == before->content(yes));
  CHECK(!before->content([] { return false; }));
}

TEST_CASE("every sample exactly once per pass, whatever the step borders") {
  const DataFolder folder;
  const auto path = folder.write("text", std::string(4 * 17 + 1, 'a'));  // 17 samples of 4
  const Job job = job_for(DataKind::kText, path, 4, 256);                // 6 a step
  const auto set = Dataset::open(job).value();
  REQUIRE(set->samples() == 17);
  std::vector<std::uint64_t> sequence;
  for (std::uint64_t step = 0; step < 17; ++step)
    for (MicroBatch m = 0; m < 3; ++m)
      for (std::uint32_t b = 0; b < 2; ++b) sequence.push_back(set->sample_of(step, m, b));
  for (std::size_t pass = 0; pass < 6; ++pass) {
    const auto first = sequence.begin() + static_cast<std::ptrdiff_t>(pass * 17);
    CHECK(std::set<std::uint64_t>(first, first + 17).size() == 17);
    if (pass > 0) CHECK_FALSE(std::equal(first, first + 17, first - 17));
  }
  CHECK(passes(job, 17) == doctest::Approx(60.0 / 17));
}

TEST_CASE("a micro-batch is its samples, and the seed decides which") {
  const DataFolder folder;
  std::string content;
  for (int i = 0; i < 400; ++i) content += static_cast<char>(i % 251);
  Job job = job_for(DataKind::kText, folder.write("text", content), 4, 256);
  const auto set = Dataset::open(job).value();
  const Batch batch = set->micro_batch(5, 2).value();
  const std::uint64_t samples[] = {set->sample_of(5, 2, 0), set->sample_of(5, 2, 1)};
  CHECK(batch.tokens == set->fill(samples).value().tokens);
  CHECK(batch.tokens[4] == content[samples[1] * 4]);
  CHECK(batch.tokens != set->micro_batch(5, 1).value().tokens);
  job.seed = 2;
  CHECK(Dataset::open(job).value()->micro_batch(5, 2).value().tokens != batch.tokens);
}

TEST_CASE("raw tokens of 32 or 64 bits are refused, and what they look like is said") {
  const DataFolder folder;
  const auto error = [&](const auto& numbers, std::uint32_t vocabulary = 50257) {
    const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                            numbers.size() * sizeof numbers[0]);
    return opening_error(job_for(DataKind::kTokens, folder.write("t.bin", bytes), 2, vocabulary));
  };
  std::vector<std::uint16_t> narrow;
  for (int i = 0; i < 500; ++i) narrow.push_back(static_cast<std::uint16_t>(i * 7919 % 50257));
  CHECK(error(narrow) == "no error");
  const std::vector<std::uint32_t> unsigned_32(narrow.begin(), narrow.end());
  const std::vector<std::int64_t> signed_64(narrow.begin(), narrow.end());
  std::vector<std::uint32_t> other_end = unsigned_32, large = unsigned_32;
  for (auto& token : other_end) token <<= 16;
  for (std::size_t i = 0; i < large.size(); ++i) large[i] += i % 2 * 0x10000;
  CHECK(has(error(unsigned_32), "every second 16-bit number is 0"));
  CHECK(has(error(signed_64), "every second 16-bit number is 0"));
  CHECK(has(error(other_end), "every second 16-bit number is 0"));
  CHECK(has(error(large), "every second 16-bit number is below 16"));
  // Tokens of a small vocabulary, and one token alone, are what they are.
  std::vector<std::uint16_t> small(500), one(500, 7);
  for (std::size_t i = 0; i < small.size(); ++i) small[i] = static_cast<std::uint16_t>(i % 3);
  CHECK(error(small, 8) == "no error");
  CHECK(error(one, 8) == "no error");
}

TEST_CASE("after open no file is needed any more") {
  const DataFolder folder;
  folder.write("t/a", std::string(1000, 'a'));
  const auto file = folder.write("f", std::string(1000, 'b'));
  const auto of_folder =
      Dataset::open(job_for(DataKind::kText, folder.path() + "/t", 4, 256)).value();
  const auto of_file = Dataset::open(job_for(DataKind::kText, file, 4, 256)).value();
  fs::remove_all(folder.path());
  CHECK(of_folder->micro_batch(0, 0).value().tokens[0] == 'a');
  CHECK(of_file->micro_batch(0, 0).value().tokens[0] == 'b');
}

// Goal: what a model draws from depends on the job and the place alone, whoever computes it.
TEST_CASE("a micro-batch knows its seed, step and place") {
  const DataFolder folder;
  Job text = job_for(DataKind::kText, folder.write("text", std::string(100, 'a')), 4, 256);
  Job synthetic;
  synthetic.micro_batches = 3;
  synthetic.micro_batch_sequences = 2;
  synthetic.model = SyntheticSpec{};
  for (Job* job : {&text, &synthetic}) {
    job->seed = 9;
    const auto set = Dataset::open(*job).value();
    CHECK(set->micro_batch(5, 2).value().draw == DrawKey{9, 5, 2});
  }
}

TEST_CASE("a synthetic model's micro-batches hold nothing else") {
  Job job;
  job.micro_batches = 3;
  job.micro_batch_sequences = 2;
  job.model = SyntheticSpec{};
  const auto set = Dataset::open(job).value();
  CHECK(set->samples() == 1);
  const Batch batch = set->micro_batch(7, 1).value();
  CHECK(batch.sequences == 2);
  CHECK((batch.tokens.empty() && batch.targets.empty() && batch.x.empty()));
}

}  // namespace starling
