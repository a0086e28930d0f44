#include "core/base/ids.h"

#include <doctest/doctest.h>

namespace starling {
namespace {

TEST_CASE("ids: epochs are ordered by term, then counter; none is below all") {
  const EpochId none, a{1, 1}, b{1, 2}, c{2, 1};
  CHECK(none < a);
  CHECK(a < b);
  CHECK(b < c);
  CHECK(a.next() == b);
  CHECK_FALSE(none);
  CHECK(a);
  CHECK(EpochId{0, 1});
}

TEST_CASE("ids: a life is known by its nonce, before and after it got its counter") {
  CHECK(Incarnation{0, 9} == Incarnation{5, 9});
  CHECK_FALSE(Incarnation{5, 9} == Incarnation{5, 8});
  CHECK(Incarnation{9, 1} < Incarnation{1, 2});
}

TEST_CASE("ids: text forms") {
  CHECK(to_string(EpochId{3, 17}) == "3.17");
  CHECK(to_string(Incarnation{5, 0x1f2e3d4c00000001}) == "5-1f2e3d4c");
  CHECK(to_string(Digest{0x1, 0xab}) == "00000000000000ab0000000000000001");
  JobId job{};
  job[0] = 0xfe;
  job[15] = 1;
  CHECK(to_string(job) == "fe000000000000000000000000000001");
}

TEST_CASE("ids: digests add as 128-bit numbers, in any order") {
  const Digest a{~0ull, 1}, b{1, 2}, c{5, ~0ull};
  CHECK(a + b == Digest{0, 4});
  CHECK(a + c == Digest{4, 1});
  CHECK((a + b) + c == a + (c + b));
}

}  // namespace
}  // namespace starling
