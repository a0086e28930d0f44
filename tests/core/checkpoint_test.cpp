#include "core/formats/checkpoint.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>

#include "core/formats/shard.h"
#include "core/formats/synced_file.h"
#include "tests/core/checkpoint_folder.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// Two shards of three segments.
Manifest manifest_sample() {
  Manifest m;
  m.checkpoint = {40, {111, 222}, {3, 4}, "isa reference", {5, 6}};
  m.record = {39, 1.25, 0.5, 800, false, 77, {}};
  m.state_hash = 0xfeedfacecafebeef;
  m.job = "[job]\nname = \"a\\\"b\"\n";
  m.segments = 3;
  m.segment_blocks = 4;
  m.shards = {{"shard-1.1-0.safetensors", 900, {{0, {100, 200}}, {2, {1, 2}}}},
              {"shard-1.1-1.safetensors", 450, {{1, {10, 20}}}}};
  return m;
}

bool same(const Manifest& a, const Manifest& b) {
  return format_manifest(a) == format_manifest(b) && a.shards == b.shards &&
         a.checkpoint == b.checkpoint && a.record == b.record;
}

TEST_CASE("manifest: what was written reads back") {
  const auto read = parse_manifest(format_manifest(manifest_sample()));
  REQUIRE_MESSAGE(read, read.error().text());
  CHECK(same(read.value(), manifest_sample()));
  CHECK(read.value().job == manifest_sample().job);
}

TEST_CASE(
    "manifest: from which step on it is in doubt reads back, and has no line where it is not") {
  Manifest m = manifest_sample();
  CHECK(format_manifest(m).find("doubted_from") == std::string::npos);
  m.checkpoint.doubted_from = 3;
  const auto read = parse_manifest(format_manifest(m));
  REQUIRE_MESSAGE(read, read.error().text());
  CHECK(read.value().checkpoint.doubted_from == Version{3});
}

TEST_CASE("manifest: data that were not known have no line") {
  Manifest m = manifest_sample();
  m.checkpoint.data = {};
  const std::string text = format_manifest(m);
  CHECK(text.find("\"data\"") == std::string::npos);
  const auto read = parse_manifest(text);
  REQUIRE_MESSAGE(read, read.error().text());
  CHECK(same(read.value(), m));
}

// Goal: a build that knows no changes of the rate does not go on without them.
TEST_CASE("manifest: changes of the rate are in it, under a format version of their own") {
  Manifest m = manifest_sample();
  CHECK(format_manifest(m).find("\"version\": 3,") != std::string::npos);
  m.checkpoint.rates = {{7, 5e-4}, {7, 0.1}, {200, 1e-5}};
  const std::string text = format_manifest(m);
  CHECK(text.find("\"version\": 4,") != std::string::npos);
  const auto read = parse_manifest(text);
  REQUIRE_MESSAGE(read, read.error().text());
  CHECK(read.value().checkpoint.rates == m.checkpoint.rates);
}

// Their segments may be cut at other rows, which the fingerprint of workers says.
TEST_CASE("manifest: one of format version 2 is read, and stays one when it is written again") {
  Manifest m = manifest_sample();
  m.is_second_format = true;
  const std::string text = format_manifest(m);
  CHECK(text.find("\"version\": 2,") != std::string::npos);
  const auto read = parse_manifest(text);
  REQUIRE_MESSAGE(read, read.error().text());
  CHECK(read.value().is_second_format);
  CHECK(format_manifest(read.value()) == text);
}

// Goal: nothing that changed since it was written is believed. Method: every bit of it.
TEST_CASE("manifest: a flipped bit is found wherever it is") {
  const std::string text = format_manifest(manifest_sample());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    CAPTURE(bit);
    CHECK_FALSE(parse_manifest(damaged));
  }
}

TEST_CASE("manifest: one that is cut or longer is refused") {
  const std::string text = format_manifest(manifest_sample());
  for (std::size_t n = 0; n < text.size(); ++n) CHECK_FALSE(parse_manifest(text.substr(0, n)));
  CHECK_FALSE(parse_manifest(text + " "));
  CHECK_FALSE(parse_manifest(text + text));
}

// Each row writes a manifest whose checksum holds, and that contradicts itself.
TEST_CASE("manifest: one that contradicts itself is refused, and the text says why") {
  struct Case {
    const char* text;
    void (*spoil)(Manifest&);
  };
  const Case cases[] = {
      {"segment 1 stands there twice", [](Manifest& m) { m.shards[0].segments[0].segment = 1; }},
      {"segment 3 does not exist", [](Manifest& m) { m.shards[0].segments[0].segment = 3; }},
      {"only 2 of 3 segments", [](Manifest& m) { m.shards[0].segments.pop_back(); }},
      {"do not add up", [](Manifest& m) { m.shards[0].segments[0].digest[0] ^= 1; }},
      {"a shard's file", [](Manifest& m) { m.shards[0].file = "../other"; }},
      {"a shard's file", [](Manifest& m) { m.shards[0].file = ""; }},
      {"a shard's file", [](Manifest& m) { m.shards[0].file = "a/b"; }},
      {"record", [](Manifest& m) { m.record.version = 38; }},
      {"segments", [](Manifest& m) { m.segments = 1u << 20; }},
      {"a change of the rate",
       [](Manifest& m) {
         m.checkpoint.rates = {{7, 0}};
       }},
      {"a change of the rate",
       [](Manifest& m) {
         m.checkpoint.rates = {{7, 1}, {6, 1}};
       }},
      {"rates",
       [](Manifest& m) {
         m.checkpoint.rates.assign(257, {7, 1});
       }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    Manifest m = manifest_sample();
    c.spoil(m);
    const auto read = parse_manifest(format_manifest(m));
    REQUIRE_FALSE(read);
    CHECK(read.error().code() == Code::kCorrupt);
    CHECK_MESSAGE(read.error().text().find(c.text) != std::string::npos, read.error().text());
  }
}

TEST_CASE("manifest: another version of the format is not damage") {
  for (const std::string version : {"1", "5"}) {
    std::string text = format_manifest(manifest_sample());
    const std::string now = "\"version\": 3,";
    text.replace(text.find(now), now.size(), "\"version\": " + version + ",");
    const auto read = parse_manifest(text);
    REQUIRE_FALSE(read);
    CHECK(read.error().code() == Code::kStale);
    CHECK(read.error().text().find("this build reads 2 to 4") != std::string::npos);
  }
}

// Goal: no bytes at all crash the reader. Method: pieces of a manifest in disorder, random bytes in
// between, brackets without end.
TEST_CASE("manifest: anything at all is refused without a crash") {
  const std::string text = format_manifest(manifest_sample());
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = text;
    for (auto n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % bytes.size(), from = random() % text.size();
      const std::size_t length = std::min<std::size_t>(random() % 40, text.size() - from);
      switch (random() % 3) {
        case 0:
          bytes.insert(at, text.substr(from, length));
          break;
        case 1:
          bytes.erase(at, length);
          break;
        default:
          bytes[at] = static_cast<char>(random());
          break;
      }
      if (bytes.empty()) bytes = std::string("{");
    }
    if (bytes != text) CHECK_FALSE(parse_manifest(bytes));
  }
  CHECK_FALSE(parse_manifest(std::string(200000, '[')));
  CHECK_FALSE(parse_manifest("{\"format\":\"starling-checkpoint\",\"version\":-1}"));
  CHECK_FALSE(parse_manifest("{\"format\":7}"));
  CHECK_FALSE(parse_manifest(""));
}

// ---- Folders ----------------------------------------------------------------------------------

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

Manifest sample_of(Version version) {
  Manifest m = manifest_sample();
  m.checkpoint.version = version;
  m.record.version = version - 1;
  return m;
}

void publish_sample(const std::string& dir, Version version) {
  for (const Shard& shard : manifest_sample().shards)
    write_text(checkpoint_folder(dir, version) + "/" + shard.file, std::string(shard.bytes, 'x'));
  REQUIRE(publish_checkpoint(*open_storage(dir), sample_of(version)));
}

TEST_CASE("checkpoint: it is there when its manifest is, and not before") {
  const CheckpointFolder folder;
  CHECK(list_checkpoints(*open_storage(folder.path + "/none")).value().empty());
  for (const Shard& shard : manifest_sample().shards)
    write_text(checkpoint_folder(folder.path, 40) + "/" + shard.file,
               std::string(shard.bytes, 'x'));
  CHECK(list_checkpoints(*folder.storage).value().empty());
  REQUIRE(publish_checkpoint(*folder.storage, sample_of(40)));
  publish_sample(folder.path, 7);
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{7, 40});
  CHECK(same(read_manifest(*folder.storage, 40).value(), sample_of(40)));
}

TEST_CASE("checkpoint: a shard that is missing or short is noticed before it is published") {
  const CheckpointFolder folder;
  const auto missing = publish_checkpoint(*folder.storage, sample_of(40));
  REQUIRE_FALSE(missing);
  for (const Shard& shard : manifest_sample().shards)
    write_text(checkpoint_folder(folder.path, 40) + "/" + shard.file, std::string(449, 'x'));
  const auto cut = publish_checkpoint(*folder.storage, sample_of(40));
  REQUIRE_FALSE(cut);
  CHECK(cut.error().text().find("has 449 bytes, expected 900") != std::string::npos);
  CHECK(list_checkpoints(*folder.storage).value().empty());
}

TEST_CASE("checkpoint: a manifest in the folder of another version is refused") {
  const CheckpointFolder folder;
  publish_sample(folder.path, 40);
  fs::rename(checkpoint_folder(folder.path, 40), checkpoint_folder(folder.path, 50));
  const auto read = read_manifest(*folder.storage, 50);
  REQUIRE_FALSE(read);
  CHECK(read.error().code() == Code::kCorrupt);
}

const std::vector<std::uint64_t> kMine{manifest_sample().state_hash};

TEST_CASE("checkpoint: old ones go, whole or not, and nothing else does") {
  const CheckpointFolder folder;
  for (const Version version : std::vector<Version>{10, 20, 30, 40})
    publish_sample(folder.path, version);
  write_text(checkpoint_folder(folder.path, 25) + "/shard-left", "x");  // never complete
  write_text(folder.path + "/notes.txt", "mine");
  write_text(folder.path + "/step-x/notes.txt", "mine");
  write_text(folder.path + "/step-4/notes.txt", "mine");  // ours has nine digits
  remove_checkpoints(*folder.storage, 40, {30, 40}, kMine);
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{30, 40});
  CHECK_FALSE(fs::exists(checkpoint_folder(folder.path, 25)));
  CHECK(fs::exists(folder.path + "/notes.txt"));
  CHECK(fs::exists(folder.path + "/step-x/notes.txt"));
  CHECK(fs::exists(folder.path + "/step-4/notes.txt"));
}

// A leader that is none any more knows of 10 and 20 alone.
TEST_CASE("checkpoint: who is out of date removes nothing that was published since") {
  const CheckpointFolder folder;
  for (const Version version : std::vector<Version>{10, 20, 30})
    publish_sample(folder.path, version);
  write_text(checkpoint_folder(folder.path, 35) + "/shard-left", "x");
  remove_checkpoints(*folder.storage, 40, {10, 20}, kMine);
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{10, 20, 30});
  CHECK_FALSE(fs::exists(checkpoint_folder(folder.path, 35)));
  remove_checkpoints(*folder.storage, 40, {}, kMine);
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{10, 20, 30});
}

TEST_CASE("checkpoint: those that are withdrawn are removed, another job's are not") {
  const CheckpointFolder folder;
  for (const Version version : std::vector<Version>{10, 20, 30})
    publish_sample(folder.path, version);
  REQUIRE(withdraw_checkpoints(*folder.storage, 10, {kMine.front() + 1}));
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{10, 20, 30});
  REQUIRE(withdraw_checkpoints(*folder.storage, 10, kMine));
  CHECK(list_checkpoints(*folder.storage).value() == std::vector<Version>{10});
}

TEST_CASE("checkpoint: a folder that cannot be written is refused at once") {
  const CheckpointFolder folder;
  CHECK(open_storage(folder.path + "/a/b")->make());
  CHECK(fs::is_empty(folder.path + "/a/b"));
  write_text(folder.path + "/file", "x");
  CHECK_FALSE(open_storage(folder.path + "/file")->make());
  CHECK_FALSE(open_storage("/proc/starling")->make());
}

// ---- Shards -----------------------------------------------------------------------------------

// Three tensors that end within blocks, in segments that cross them.
Layout small_layout() {
  return Layout({{"a", {300}}, {"b", {2, 700}}, {"c", {5}}}, /*segment_blocks=*/3);
}

// Values of one segment: real elements random, padding zero.
struct Values {
  Values(const Layout& layout, SegmentId id, std::uint64_t seed) : segment(id) {
    std::mt19937_64 random(seed * 100 + id);
    const std::uint32_t blocks = layout.block_count(id);
    for (auto* array : {&weights, &first, &second}) {
      array->resize(std::size_t{blocks} * kBlock);
      for (std::uint32_t b = 0; b < blocks; ++b)
        for (std::uint32_t i = 0; i < layout.used(layout.first_block(id) + b); ++i)
          (*array)[b * kBlock + i] = static_cast<float>(random() % 1000) / 7;
    }
    for (std::uint32_t b = 0; b < blocks; ++b)
      exponents.push_back(static_cast<std::int16_t>(random() % 100));
  }
  SegmentValues view(bool two) const {
    SegmentValues values{segment, weights, first, second, exponents};
    if (!two) values.second = {};
    return values;
  }
  SegmentId segment;
  std::vector<float> weights, first, second;
  std::vector<std::int16_t> exponents;
};

bool same(const SegmentValues& a, const SegmentValues& b) {
  return a.id == b.id && std::equal(a.weights.begin(), a.weights.end(), b.weights.begin()) &&
         std::equal(a.first.begin(), a.first.end(), b.first.begin()) &&
         a.second.size() == b.second.size() &&
         std::equal(a.second.begin(), a.second.end(), b.second.begin()) &&
         std::equal(a.exponents.begin(), a.exponents.end(), b.exponents.begin());
}

TEST_CASE("shard: the state of segments comes back, with one moment or two") {
  const Layout layout = small_layout();
  REQUIRE(layout.segments() >= 3);
  for (const bool two : {false, true}) {
    const CheckpointFolder folder;
    std::vector<Values> kept;
    for (SegmentId s = 0; s < layout.segments(); ++s) kept.emplace_back(layout, s, 1);
    std::vector<SegmentValues> views;
    for (const Values& values : kept) views.push_back(values.view(two));
    const auto shard = write_shard(*folder.storage, "step-1", "shard-a", layout, views);
    REQUIRE_MESSAGE(shard, shard.error().text());
    ShardReader reader(*folder.storage, "step-1", layout, two);
    SegmentStates states(layout, two);
    for (std::size_t i = views.size(); i-- > 0;)  // any order
      REQUIRE(reader.read(shard.value(), shard.value().segments[i], states));
    for (std::size_t i = 0; i < views.size(); ++i)
      CHECK(same(states[views.size() - 1 - i], views[i]));
  }
}

TEST_CASE("shard: it is a safetensors file with names that say what is where") {
  const Layout layout = small_layout();
  const CheckpointFolder folder;
  const Values values(layout, 0, 2);
  const SegmentValues view = values.view(true);
  REQUIRE(write_shard(*folder.storage, "step-1", "shard-a", layout, std::span(&view, 1)));
  const auto file = SafetensorsFile::open(folder.path + "/step-1/shard-a").value();
  const auto a = file.floats("param.a@0").value();
  CHECK(a.size() == 300);
  CHECK(std::equal(a.begin(), a.end(), values.weights.begin()));
  const auto b = file.floats("moment2.b@0").value();
  CHECK(b.size() == kBlock);  // of its 1400 elements those in this segment
  CHECK(std::equal(b.begin(), b.end(), values.second.begin() + 2 * kBlock));
  CHECK(file.find("exponents@0") != nullptr);
}

TEST_CASE("shard: damage of any kind is told with the file's name") {
  const Layout layout = small_layout();
  const CheckpointFolder folder;
  const Values values(layout, 1, 3);
  const SegmentValues view = values.view(true);
  const Shard shard =
      write_shard(*folder.storage, "step-1", "shard-a", layout, std::span(&view, 1)).value();
  const std::string path = folder.path + "/step-1/shard-a";
  const auto read = [&] {
    ShardReader reader(*folder.storage, "step-1", layout, true);
    SegmentStates states(layout, true);
    return reader.read(shard, shard.segments[0], states);
  };
  REQUIRE(read());
  const auto refused = [&](const char* why) {
    const auto result = read();
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == Code::kCorrupt);
    CHECK_MESSAGE(result.error().text().find("shard-a") != std::string::npos, why);
  };
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  // Headers of JSON are checked where they are read; every byte of data must matter.
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (std::size_t at = 0; at < bytes.size(); at += at < 8 + header ? 1 : 37) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_text(path, damaged);
    CAPTURE(at);
    if (at < 8 + header)
      (void)read();  // metadata is nobody's business; no crash
    else
      refused("flipped");
  }
  write_text(path, bytes.substr(0, bytes.size() - 4));
  refused("cut");
  fs::remove(path);
  refused("gone");
}

// In a container every process has number 1.
TEST_CASE("synced file: what a killed process of the same number has left is no obstacle") {
  const CheckpointFolder folder;
  const std::string path = folder.path + "/file", text = "x";
  for (int i = 0; i < 1000; ++i)
    write_text(path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(i), "left");
  const ByteView bytes = as_bytes(std::span<const char>(text));
  CHECK(write_synced_file(path, std::span<const ByteView>(&bytes, 1)));
  CHECK(open_storage(folder.path)->get("file", 10).value() == "x");
}

TEST_CASE("synced file: a failed write leaves neither the file nor a temporary one") {
  const CheckpointFolder folder;
  fs::create_directories(folder.path + "/taken/inside");
  const std::string text = "x";
  const ByteView bytes = as_bytes(std::span<const char>(text));
  CHECK_FALSE(write_synced_file(folder.path + "/taken", std::span<const ByteView>(&bytes, 1)));
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

}  // namespace
}  // namespace starling
