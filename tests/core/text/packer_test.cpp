#include "core/text/packer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace starling {
namespace {

constexpr std::uint32_t kMark = 1u << 31, kFill = 9 | kMark;
using Sequences = std::vector<std::vector<std::uint32_t>>;

// Documents of these lengths, whose tokens are 1000 times their number and their place.
std::vector<std::uint32_t> document(std::uint32_t number, std::uint32_t length) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < length; ++i) tokens.push_back(1000 * (number + 1) + i);
  return tokens;
}

struct Packed {
  Sequences sequences;
  std::uint64_t filling = 0;
};

Packed pack(std::uint32_t length, const std::vector<std::uint32_t>& lengths) {
  Packed packed;
  Packer packer(length, kFill, [&](std::span<const std::uint32_t> sequence) -> Result<> {
    packed.sequences.emplace_back(sequence.begin(), sequence.end());
    return ok();
  });
  for (std::uint32_t i = 0; i < lengths.size(); ++i)
    REQUIRE(packer.add(document(i, lengths[i]), kMark));
  REQUIRE(packer.finish());
  packed.filling = packer.filling();
  return packed;
}

}  // namespace

TEST_CASE("packer: a document goes where it leaves least room, and the rest is filled") {
  const Packed packed = pack(5, {3, 4, 1, 2, 4});
  // The one of 1 fills that of 4, and the one of 2 that of 3.
  CHECK(packed.sequences == Sequences{{2000 | kMark, 2001, 2002, 2003, 3000 | kMark},
                                      {1000 | kMark, 1001, 1002, 4000 | kMark, 4001},
                                      {5000 | kMark, 5001, 5002, 5003, kFill}});
  CHECK(packed.filling == 1);
}

TEST_CASE(
    "packer: a document that is longer than a sequence is cut, and its end goes where it fits") {
  const Packed packed = pack(4, {3, 9});
  CHECK(packed.sequences == Sequences{{2000 | kMark, 2001, 2002, 2003},
                                      {2004 | kMark, 2005, 2006, 2007},
                                      {1000 | kMark, 1001, 1002, 2008 | kMark}});
  CHECK(packed.filling == 0);
  CHECK(pack(4, {}).sequences.empty());
  CHECK(pack(4, {0, 0}).sequences.empty());
}

// Goal: nothing is lost, nothing is cut, little is filled, the same each time. Method: many more documents than sequences
// may be open.
TEST_CASE("packer: of many documents each is whole in one sequence, once") {
  std::mt19937 random(3);
  std::vector<std::uint32_t> lengths(20000);
  for (std::uint32_t& length : lengths) length = 1 + random() % 128;
  const Packed packed = pack(128, lengths);
  std::vector<std::uint32_t> found(lengths.size());
  for (const auto& sequence : packed.sequences) {
    REQUIRE(sequence.size() == 128);
    CHECK((sequence.front() & kMark) != 0);
    for (std::size_t i = 0; i < sequence.size();) {
      if (sequence[i] == kFill) {
        ++i;
        continue;
      }
      const std::uint32_t number = (sequence[i] & ~kMark) / 1000 - 1;
      auto expected = document(number, lengths[number]);
      expected.front() |= kMark;
      REQUIRE(i + expected.size() <= sequence.size());
      CHECK(std::equal(expected.begin(), expected.end(), sequence.begin() + std::ptrdiff_t(i)));
      ++found[number];
      i += expected.size();
    }
  }
  CHECK(std::ranges::all_of(found, [](std::uint32_t times) { return times == 1; }));
  CHECK(static_cast<double>(packed.filling) < 0.02 * 128 * double(packed.sequences.size()));
  CHECK(pack(128, lengths).sequences == packed.sequences);
}

TEST_CASE("packer: an error of who takes sequences is the end") {
  Packer packer(2, kFill, [](std::span<const std::uint32_t>) -> Result<> {
    return Error(Code::kBadInput, "full");
  });
  CHECK(packer.add(document(0, 1), kMark));
  CHECK_FALSE(packer.add(document(1, 2), kMark));
}

}  // namespace starling
