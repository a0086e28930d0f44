#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/lanes.h"
#include "core/formats/job_file.h"
#include "tests/core/has.h"
#include "tests/core/job_text.h"
#include "tests/core/shards.h"

namespace starling {
namespace {

Job lanes_job(const std::string& path, std::uint32_t context = 20) {
  Job job = job_for(DataKind::kTokens, path, context, 251);
  job.seed = 5;
  job.micro_batches = 4;
  job.data.order = DataOrder::kLanes;
  return job;
}

std::string opening_error_of(const Job& job) {
  const auto set = Dataset::open(job);
  return set ? "no error" : set.error().text();
}

}  // namespace

TEST_CASE("lanes data: a micro-batch has the samples that its lane says, each with its targets") {
  const DataFolder folder;
  write_shards(folder, 80, 100);
  const Job job = lanes_job(folder.path());
  const auto set = Dataset::open(job).value();
  CHECK(set->samples() == 80 * 5);
  CHECK(set->remark().empty());
  CHECK(set->lanes()->chunk_samples == 5);
  const Lanes lanes(job.seed, 80, 5, 4);
  for (const std::uint64_t step : {0u, 1u, 2u, 700u, 3u, 99u})
    for (MicroBatch m = 0; m < 4; ++m) {
      const Batch batch = set->micro_batch(step, m).value();
      REQUIRE(batch.sequences == 2);
      REQUIRE(batch.tokens.size() == 40);
      CHECK(batch.draw == DrawKey{5, step, m});
      for (std::uint32_t b = 0; b < 2; ++b) {
        const LanePlace place = lanes.place_of(m.value(), step * 2 + b);
        CHECK(set->sample_of(step, m, b) == place.chunk * 5 + place.sample);
        const std::uint64_t first = place.chunk * 100 + place.sample * 20;
        for (std::uint64_t t = 0; t < 20; ++t) {
          CHECK(batch.tokens[b * 20 + t] == static_cast<std::int32_t>((first + t) % 251));
          CHECK(batch.targets[b * 20 + t] == static_cast<std::int32_t>((first + t + 1) % 251));
        }
      }
    }
}

TEST_CASE("lanes data: every sample is used once in a pass") {
  const DataFolder folder;
  write_shards(folder, 8, 100);
  const Job job = lanes_job(folder.path());
  const auto set = Dataset::open(job).value();
  for (int pass = 0; pass < 2; ++pass) {
    std::set<std::uint64_t> used;
    for (std::uint64_t step = 0; step < 5; ++step)  // 5 steps of 4 micro-batches of 2
      for (MicroBatch m = 0; m < 4; ++m)
        for (std::uint32_t b = 0; b < 2; ++b) used.insert(set->sample_of(pass * 5 + step, m, b));
    CHECK(used.size() == 40);
  }
}

TEST_CASE("lanes data: a worker of one lane reads the chunks of one lane") {
  const DataFolder folder;
  write_shards(folder, 128, 100);
  const Job job = lanes_job(folder.path());
  const auto set = Dataset::open(job).value();
  const Lanes lanes(job.seed, 128, 5, 4);
  std::set<std::string> read;
  for (std::uint64_t i = 0; i < 32; ++i)
    read.insert("shard-" + std::to_string(lanes.chunk_of(2, i) / 2) + ".bin");
  for (int i = 0; i < 64; ++i)
    if (const std::string name = "shard-" + std::to_string(i) + ".bin"; !read.count(name))
      std::filesystem::remove(folder.path() + "/" + name);
  for (std::uint64_t step = 0; step < 32 * 5 / 2 / 2; ++step) CHECK(set->micro_batch(step, 2));
}

TEST_CASE("lanes data: tokens of sequences need none behind their last") {
  const DataFolder folder;
  ShardIndex index;
  index.width = TokenWidth::kMasked32;
  index.sequence = 10;
  index.vocabulary = 100;
  index.chunk_tokens = 20;
  const auto header = token_header(TokenWidth::kMasked32, 80, 10);
  std::string text(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (std::uint32_t i = 0; i < 80; ++i) {
    const std::uint32_t token = i | (i % 10 < 5 ? kNotLearned : 0);
    text.append(reinterpret_cast<const char*>(&token), 4);
  }
  std::vector<Digest> digests;
  const ByteView bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  for (int c = 0; c < 4; ++c) digests.push_back(hash128(bytes.subspan(kTokenHeader + c * 80, 80)));
  folder.write("s.bin", text);
  index.add("s.bin", digests);
  folder.write(ShardIndex::kFile, index.format());
  const auto set = Dataset::open(lanes_job(folder.path(), 10)).value();
  CHECK(set->samples() == 8);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t number[] = {i};
    const Batch batch = set->fill(number).value();
    for (std::int32_t t = 0; t < 10; ++t) {
      const auto token = static_cast<std::int32_t>(i * 10) + t;
      CHECK(batch.tokens[t] == token);
      CHECK(batch.targets[t] == (t < 4 || t == 9 ? kNotATarget : token + 1));
    }
  }
  CHECK(has(opening_error_of(lanes_job(folder.path(), 20)), "the context must be as long, is 20"));
}

TEST_CASE("lanes data: what does not fit the job is said when it begins") {
  const DataFolder folder;
  write_shards(folder, 8, 100);
  Job job = lanes_job(folder.path(), 30);
  CHECK(has(Dataset::open(job).value()->remark(), "10 tokens of each chunk's 100 are left out"));
  CHECK(has(opening_error_of(lanes_job(folder.path(), 101)), "has chunks of 100 tokens, expected"));
  job = lanes_job(folder.path());
  job.micro_batches = 9;
  CHECK(has(opening_error_of(job), "has 8 chunks, expected at least one for each of the job's 9"));
  job = lanes_job(folder.path());
  std::get<GptSpec>(job.model).vocabulary = 250;
  CHECK(has(opening_error_of(job), "tokens must be below the vocabulary's 250"));
}

TEST_CASE("lanes data: the same chunks in other shards are the same data") {
  const DataFolder folder;
  ShardIndex index = write_shards(folder, 8, 100);
  const Digest whole = Dataset::open(lanes_job(folder.path())).value()->identity();
  std::filesystem::rename(folder.path() + "/shard-0.bin", folder.path() + "/first.bin");
  index.shards[0].name = "first.bin";
  folder.write(ShardIndex::kFile, index.format());
  CHECK(Dataset::open(lanes_job(folder.path())).value()->identity() == whole);
  index.shards[0].chunks[0][0] ^= 1;
  folder.write(ShardIndex::kFile, index.format());
  CHECK(Dataset::open(lanes_job(folder.path())).value()->identity() != whole);
}

}  // namespace starling
