// Kinds of a variant: what is neither handled nor named does not compile.

#include "core/base/kinds.h"

#include <doctest/doctest.h>

#include "core/wire/messages.h"

namespace starling {
namespace {

struct Handled {};
struct Ignored {};
struct New {};

struct Handler {
  int operator()(const Handled&) const { return 1; }
  template <OneOf<Ignored> Other>
  int operator()(const Other&) const {
    return 2;
  }
};

template <class Kind>
constexpr bool taken = requires(const Handler& handler, const Kind& kind) {
  handler(kind);
};

TEST_CASE("kinds: a handler takes what it handles and what it names, and nothing else") {
  CHECK(Handler{}(Handled{}) == 1);
  CHECK(Handler{}(Ignored{}) == 2);
  CHECK(taken<Handled>);
  CHECK(taken<Ignored>);
  CHECK_FALSE(taken<New>);
}

TEST_CASE("kinds: a list names all kinds of a variant or it does not") {
  using Two = std::variant<Handled, Ignored>;
  CHECK(kAllKinds<Two, Ignored, Handled>);
  CHECK_FALSE(kAllKinds<Two, Handled>);
  CHECK_FALSE(kAllKinds<Two, Handled, New>);
  CHECK_FALSE(kAllKinds<Two, Handled, Ignored, New>);
  CHECK_FALSE(kAllKinds<std::variant<Handled, Ignored, New>, Handled, Ignored>);
}

// Goal: who takes a message and who may say it follow from one list.
TEST_CASE("kinds: every message travels one way") {
  CHECK(SaidByWorkers<Join>);
  CHECK_FALSE(SaidByCoordinators<Join>);
  CHECK(SaidByCoordinators<Committed>);
  CHECK_FALSE(SaidByWorkers<Committed>);
  CHECK(SaidAmongCoordinators<RaftMessage>);
  CHECK_FALSE(SaidByWorkers<RaftMessage>);
  CHECK_FALSE(SaidByCoordinators<RaftMessage>);
  CHECK(OneWay<Message>::value);
  CHECK_FALSE(OneWay<std::variant<Join, New>>::value);
}

}  // namespace
}  // namespace starling
