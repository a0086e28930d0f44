#pragma once
// The kinds of a variant, each handled or named where it is ignored. There is no "all others", so a
// new kind does not compile until every such place says what it does with it.

#include <concepts>
#include <cstddef>
#include <variant>

namespace starling {

// What an overload ignores:  template <OneOf<Freeze, Fenced> Other> void on(const Other&) {}
template <class Kind, class... Kinds>
concept OneOf = (std::same_as<Kind, Kinds> || ...);

// Whether `Kinds` are all that the variant has, and nothing else: for a chain of std::get_if.
template <class Variant, class... Kinds>
inline constexpr bool kAllKinds = false;
template <class... Has, class... Kinds>
inline constexpr bool kAllKinds<std::variant<Has...>, Kinds...> = sizeof...(Has) ==
                                                                      sizeof...(Kinds) &&
                                                                  (OneOf<Has, Kinds...> && ...);

}  // namespace starling
