#pragma once
// For std::visit with a case for each alternative and none for all others: what is added to the
// variant does not compile until every visitor says what it does with it. Several alternatives for
// which a visitor does the same: [](const OneOf<A, B> auto&) {}.

#include "core/base/kinds.h"

namespace starling {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace starling
