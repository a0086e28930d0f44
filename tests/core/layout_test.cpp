#include "core/job/layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace starling {
namespace {

// Goal: what everything else takes for granted, on random models.
TEST_CASE("layout: every element lies in one block, every block in one segment, part and bucket") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<TensorSpec> specs(1 + random() % 20);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      specs[i].name = std::to_string(i);
      specs[i].shape.assign(1 + random() % 3, 0);
      for (auto& d : specs[i].shape) d = 1 + random() % (round % 2 ? 30 : 5);
      if (i > 0) specs[i].layer = specs[i - 1].layer + (random() % 3 == 0 ? random() % 3 : 0);
    }
    const auto segment_blocks = static_cast<std::uint32_t>(random() % 7);
    const auto bucket_segments = static_cast<std::uint32_t>(random() % 4);
    const Layout layout(specs, segment_blocks, bucket_segments);
    CAPTURE(round);

    std::uint32_t block = 0;
    REQUIRE(layout.tensors().size() == specs.size());
    for (std::uint32_t t = 0; t < specs.size(); ++t) {
      const TensorPlace& place = layout.tensors()[t];
      REQUIRE(place.first_block == block);
      std::uint64_t used = 0;
      for (std::uint32_t i = 0; i < place.blocks; ++i, ++block) {
        REQUIRE(layout.tensor_of(block) == t);
        if (i + 1 < place.blocks) REQUIRE(layout.used(block) == kBlock);
        REQUIRE(layout.used(block) >= 1);
        REQUIRE(layout.used(block) <= kBlock);
        used += layout.used(block);
      }
      REQUIRE(used == specs[t].elements());
    }
    REQUIRE(block == layout.blocks());
    REQUIRE(layout.elements() == std::uint64_t{block} * kBlock);

    block = 0;
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      REQUIRE(layout.first_block(s) == block);
      REQUIRE(layout.block_count(s) >= 1);
      for (std::uint32_t i = 0; i < layout.block_count(s); ++i, ++block)
        REQUIRE(layout.segment_of(block) == s);
    }
    REQUIRE(block == layout.blocks());

    SegmentId segment = 0;
    block = 0;
    for (PartId p = 0; p < layout.parts().size(); ++p) {
      const Part& part = layout.parts()[p];
      REQUIRE(part.first_block == block);
      REQUIRE(part.segments.first == segment);
      REQUIRE(layout.block_count(part.segments) == part.blocks);
      for (std::uint32_t i = 0; i < part.segments.count; ++i)
        REQUIRE(layout.part_of(segment++) == p);
      block += part.blocks;
    }
    REQUIRE(segment == layout.segments());
    REQUIRE(block == layout.blocks());

    segment = 0;
    for (std::uint32_t b = 0; b < layout.buckets(); ++b) {
      REQUIRE(layout.bucket(b).first == segment);
      REQUIRE(layout.bucket(b).count >= 1);
      segment += layout.bucket(b).count;
    }
    REQUIRE(segment == layout.segments());
  }
}

TEST_CASE("layout: tensors of one layer are a part, and no segment crosses parts") {
  const Layout layout({{.name = "table", .shape = {30, 100}, .uses = 2, .by_rows = true},
                       {.name = "weight", .shape = {60, 50}, .layer = 1},
                       {.name = "bias", .shape = {50}, .layer = 1},
                       {.name = "end", .shape = {3}, .layer = 7}},
                      /*segment_blocks=*/5);
  REQUIRE(layout.parts().size() == 3);
  CHECK(layout.parts()[0].blocks == 12);
  CHECK(layout.parts()[1].blocks == 12 + 1);
  CHECK(layout.parts()[2].blocks == 1);
  CHECK(layout.parts()[0].segments == SegmentRange{0, 3});
  CHECK(layout.parts()[1].segments == SegmentRange{3, 3});
  CHECK(layout.parts()[2].segments == SegmentRange{6, 1});
  CHECK(layout.block_count(2) == 2);
  CHECK(layout.block_count(5) == 3);
  CHECK(layout.uses(2) == 2);
  CHECK(layout.uses(3) == 1);
  CHECK(layout.uses_max() == 2);
  CHECK(layout.tensors()[2].first_part == 1);
  CHECK(layout.largest_part() == 13 * kBlock);
  CHECK(layout.elements(SegmentRange{1, 3}) == (5 + 2 + 5) * kBlock);
}

TEST_CASE("layout: a large table is several parts, each of whole rows and whole blocks") {
  // 96 columns: 8 rows are 3 blocks; 32 MiB are 87381 rows, of which 87360 are a multiple of 64.
  const std::uint64_t rows = 200'001, width = 96;
  const Layout layout({{.name = "table", .shape = {rows, width}, .uses = 2, .by_rows = true},
                       {.name = "rest", .shape = {500}, .layer = 1}});
  const TensorPlace& table = layout.tensors()[0];
  CHECK(table.part_rows == 87360);
  REQUIRE(table.parts == 3);
  REQUIRE(layout.parts().size() == 4);
  for (PartId p = 0; p < 3; ++p) {
    const Part& part = layout.parts()[p];
    CHECK(part.first() == p * table.part_rows * width);
    CHECK(part.elements() * sizeof(float) <= Layout::kPartBytesMax);
    CHECK(part.uses == 2);
    if (p < 2) CHECK(part.elements() / width % Layout::kPartRows == 0);
    for (const std::uint32_t b : {part.first_block, part.first_block + part.blocks - 1})
      CHECK(layout.part_of(layout.segment_of(b)) == p);
  }
  CHECK(layout.parts()[3].first_block == table.blocks);
  // The same table where its rows may not be cut.
  CHECK(Layout({{.name = "table", .shape = {rows, width}}}).parts().size() == 1);
}

TEST_CASE("layout: bytes of segments, ranges and everything add up") {
  // 3 + 1 + 12 + 1 blocks in segments of 4 blocks.
  const Layout layout({{"a", {20, 30}}, {"b", {30}}, {"c", {100, 30}}, {"d", {1}}}, 4);
  REQUIRE(layout.segments() == 5);
  for (const What what : {What::kParameters, What::kHalves, What::kGradient, What::kSums,
                          What::kWeights, What::kMoment, What::kExponents}) {
    std::uint64_t sum = 0;
    for (SegmentId s = 0; s < layout.segments(); ++s) {
      CHECK(layout.bytes_of(SegmentRange{0, s + 1}, what) == (sum += layout.bytes_of(s, what)));
    }
    CHECK(sum == layout.bytes_of(what));
    const std::uint64_t block =
        what == What::kExponents ? 2 : (what == What::kHalves ? 2 : 4) * kBlock;
    CHECK(sum == 17 * block);
  }
  CHECK(layout.first_element(4) == 16 * kBlock);
  CHECK(layout.elements(SegmentId{4}) == kBlock);
  CHECK(layout.elements(SegmentRange{3, 2}) == 5 * kBlock);
  CHECK(std::ranges::equal(layout.used_of(0), std::vector<std::uint16_t>{256, 256, 88, 30}));
}

TEST_CASE("layout: sizes left open give at most 512 segments of at least 4 blocks") {
  for (const std::uint64_t blocks : {1u, 3u, 4u, 5u, 2047u, 2048u, 2049u, 100000u}) {
    const Layout layout({{"a", {blocks * kBlock}}});
    CAPTURE(blocks);
    CHECK(layout.segments() <= 512);
    CHECK(layout.segment_blocks() >= 4);
    CHECK(layout.segments() == (blocks + layout.segment_blocks() - 1) / layout.segment_blocks());
    if (layout.buckets() > 1) {
      const std::uint64_t bytes =
          std::uint64_t{layout.bucket(0).count} * layout.segment_blocks() * kBlock * 4;
      CHECK(bytes <= 4u << 20);
      CHECK(bytes > 2u << 20);
    }
  }
}

TEST_CASE("layout: a large model's segments fit a frame, and its buckets have many of them") {
  for (const std::uint64_t blocks : {512u * 8192u, 512u * 8192u + 1, 900u * 8192u + 5}) {
    CAPTURE(blocks);
    const Layout layout({{"a", {blocks * kBlock}}});
    CHECK(layout.segment_blocks() == 8192);
    CHECK(layout.segments() == (blocks + 8191) / 8192);
    CHECK(layout.bucket(0).count == blocks / 8192 / 64);
  }
}

}  // namespace
}  // namespace starling
