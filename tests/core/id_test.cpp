#include "core/base/id.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"

namespace starling {
namespace {

// What compiles, asked of types that stand for the operands.
template <class A, class B>
concept Equal = requires(A a, B b) {
  a == b;
};
template <class A, class B>
concept Ordered = requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept Added = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Subtracted = requires(A a, B b) {
  a - b;
};

template <class A, class B>
constexpr bool kApart = !std::is_convertible_v<A, B> && !std::is_constructible_v<A, B> &&
                        !std::is_assignable_v<A&, B> && !Equal<A, B> && !Ordered<A, B> &&
                        !Added<A, B> && !Subtracted<A, B>;

// Goal: two kinds of ids cannot be mixed up, whether their numbers are of one type or of two.
// Method: the compiler; every pair in both directions.
template <class... Kinds>
constexpr bool all_apart() {
  const auto from_others = []<class A>(std::type_identity<A>) {
    return ((std::is_same_v<A, Kinds> || kApart<A, Kinds>)&&...);
  };
  return (from_others(std::type_identity<Kinds>{}) && ...);
}
static_assert(all_apart<Rank, Version, MicroBatch, SegmentId>());
static_assert(!kApart<Rank, Rank>);  // the question can be answered otherwise
static_assert(!std::is_constructible_v<std::optional<Rank>, SegmentId>);
static_assert(!std::is_constructible_v<std::pair<Rank, int>, std::pair<SegmentId, int>>);

// An id of its own kind: compared, and subtracted to a distance; a sum of two names is none.
static_assert(Equal<Rank, Rank> && Ordered<Rank, Rank> && !Added<Rank, Rank>);
static_assert(std::is_same_v<decltype(Version{9} - Version{4}), std::uint64_t>);
static_assert(std::is_same_v<decltype(Version{9} - 4), Version>);
static_assert(std::is_same_v<decltype(Version{9} + 4u), Version>);
static_assert(std::is_same_v<decltype(SegmentId{9} % 4u), std::uint32_t>);
static_assert(std::is_same_v<decltype(4u + SegmentId{9}), std::uint32_t>);

// Reading is free.
static_assert(std::is_convertible_v<Rank, std::uint32_t>);
static_assert(std::is_convertible_v<Version, std::uint64_t>);
static_assert(Equal<Rank, std::size_t> && Ordered<std::size_t, Rank>);

// Zero cost.
template <class T, class Int>
constexpr bool kAsItsInt =
    sizeof(T) == sizeof(Int) &&
    alignof(T) == alignof(Int) && std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<T>;
static_assert(kAsItsInt<Rank, std::uint32_t> && kAsItsInt<MicroBatch, std::uint32_t>);
static_assert(kAsItsInt<SegmentId, std::uint32_t> && kAsItsInt<Version, std::uint64_t>);

// Goal: an id is made of a literal that it can hold, and of nothing else that is not said.
// Method: `requires` tells whether a call with this value is a constant expression.
template <class T>
constexpr bool takes(T) {
  return true;
}
template <class T, auto n>
concept Made = requires {
  std::bool_constant<takes<T>(n)>{};
};
static_assert(Made<Rank, 0> && Made<Rank, 7u> && Made<Rank, 0xffff'ffff>);
static_assert(!Made<Rank, -1> && !Made<Rank, 0x1'0000'0000> && !Made<Rank, true>);
static_assert(Made<Version, ~std::uint64_t{0}> && !Made<Version, -1>);
static_assert(!std::is_constructible_v<Rank, double> && !std::is_constructible_v<Rank, bool>);

TEST_CASE("id: counts as its number does and stays of its kind") {
  Rank rank = 3;
  CHECK(rank++ == 3);
  CHECK(++rank == 5);
  CHECK(--rank == 4);
  rank += 2;
  rank -= 1u;
  CHECK(rank == 5);
  CHECK(rank + 1 == Rank{6});
  CHECK(rank - 1 == Rank{4});
  CHECK(Version{9} - Version{4} == 5);
  const std::size_t count = 7;
  CHECK(Rank(count) == 7);
  CHECK(rank < count);
  CHECK((rank + 4) % count == 2);
  const std::vector<int> values{1, 2, 3, 4, 5, 6};
  CHECK(values[rank] == 6);
}

TEST_CASE("id: is printed, hashed, written and read as its number") {
  std::ostringstream text;
  text << Rank{12} << ' ' << std::to_string(Version{1'000'000'000'000});
  CHECK(text.str() == "12 1000000000000");
  const std::unordered_set<SegmentId> some{1, 2, 2};
  CHECK(some.size() == 2);
  const std::map<Version, int> by_version{{3, 1}, {1, 2}};
  CHECK(by_version.begin()->first == 1);

  const nlohmann::json json = std::vector<Version>{5, ~std::uint64_t{0}};
  CHECK(json.dump() == "[5,18446744073709551615]");
  CHECK(json.get<std::vector<Version>>().back() == ~std::uint64_t{0});

  ByteWriter ids, numbers;
  ids.put(Version{5});
  ids.put(SegmentRange{7, 2});
  numbers.put(std::uint64_t{5});
  numbers.put(std::uint32_t{7});
  numbers.put(std::uint32_t{2});
  CHECK(std::move(ids).take() == std::move(numbers).take());

  static_assert(std::numeric_limits<MicroBatch>::max() == 0xffff'ffff);
}

TEST_CASE("segments in a row: each of them once, and nothing else") {
  const auto all = [](SegmentRange range) {
    return std::vector<SegmentId>(range.begin(), range.end());
  };
  CHECK(all({4, 3}) == std::vector<SegmentId>{4, 5, 6});
  CHECK(all({4, 0}).empty());
  std::vector<SegmentId> seen;
  for (const SegmentId s : SegmentRange{0, 2}) seen.push_back(s);
  CHECK(seen == std::vector<SegmentId>{0, 1});

  const SegmentRange range{4, 3};
  CHECK(range.size() == 3);
  CHECK(range.past() == 7);
  CHECK_FALSE(range.empty());
  for (SegmentId s = 0; s < 10; ++s)
    CHECK_MESSAGE(range.contains(s) == (s == 4 || s == 5 || s == 6), s);
  CHECK_FALSE(SegmentRange{4, 0}.contains(4));
  CHECK(SegmentRange{4, 0}.empty());
}

}  // namespace
}  // namespace starling
