#pragma once
// A number that names one of a kind: a rank, a version, a segment. Two kinds of numbers are two
// types, so that a rank where a segment is meant does not compile.
//
//   struct RankTag;
//   using Rank = Id<RankTag, std::uint32_t>;
//
// - Reading is free: an id converts to its Int, so it indexes a vector, is printed, is compared with
//   a count and is calculated with as the Int would be.
// - Making one takes a literal (`Rank r = 0`) or a word (`Rank(n)`): a number that is known at run
//   time is never taken for an id by itself.
// - Id + n, Id - n, ++ and += stay of the kind; Id - Id is a distance, an Int. Everything else
//   (`id * n`, `id % n`, `n + id`) is an Int.
// - Two kinds are never compared, assigned, added or subtracted. To do so all the same, say `value()`.
//
// An Id is as large as its Int, and trivially copyable.

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

namespace starling {

template <class Tag, class Int>
class Id;

namespace id_detail {

template <class N>
concept Literal = std::integral<N> && !std::same_as<N, bool>;
// More constrained than Literal, so that `Rank(n)` takes the explicit constructor.
template <class N>
concept Number = Literal<N> && true;

void out_of_range();  // does nothing; but what calls it is no constant expression

template <class T>
inline constexpr bool kIsId = false;
template <class Tag, class Int>
inline constexpr bool kIsId<Id<Tag, Int>> = true;

template <class A, class B>
concept TwoKinds = kIsId<A> && kIsId<B> && !std::same_as<A, B>;

}  // namespace id_detail

template <class Tag, class Int>
class Id {
  static_assert(std::unsigned_integral<Int>);

 public:
  using Value = Int;

  constexpr Id() = default;
  // Takes a literal, or another constant expression; one that Int cannot hold does not compile.
  template <id_detail::Literal N>
  consteval Id(N n) : value_(static_cast<Int>(n)) {
    if (!std::in_range<Int>(n)) id_detail::out_of_range();
  }
  template <id_detail::Number N>
  explicit constexpr Id(N n) : value_(static_cast<Int>(n)) {}
  template <id_detail::TwoKinds<Id> Other>
  Id(Other) = delete;

  constexpr operator Int() const { return value_; }
  constexpr Int value() const { return value_; }

  constexpr Id& operator++() {
    ++value_;
    return *this;
  }
  constexpr Id operator++(int) { return Id(value_++); }
  constexpr Id& operator--() {
    --value_;
    return *this;
  }
  template <id_detail::Number N>
  constexpr Id& operator+=(N n) {
    value_ = static_cast<Int>(value_ + static_cast<Int>(n));
    return *this;
  }
  template <id_detail::Number N>
  constexpr Id& operator-=(N n) {
    value_ = static_cast<Int>(value_ - static_cast<Int>(n));
    return *this;
  }

 private:
  Int value_ = 0;
};

// Templates, so that a number beside an id is never made an id to be compared.
template <class Tag, class Int>
constexpr bool operator==(Id<Tag, Int> a, Id<Tag, Int> b) {
  return a.value() == b.value();
}
template <class Tag, class Int>
constexpr std::strong_ordering operator<=>(Id<Tag, Int> a, Id<Tag, Int> b) {
  return a.value() <=> b.value();
}
template <class Tag, class Int, id_detail::Number N>
constexpr Id<Tag, Int> operator+(Id<Tag, Int> id, N n) {
  return id += n;
}
template <class Tag, class Int, id_detail::Number N>
constexpr Id<Tag, Int> operator-(Id<Tag, Int> id, N n) {
  return id -= n;
}
template <class Tag, class Int>
constexpr Int operator-(Id<Tag, Int> a, Id<Tag, Int> b) {
  return static_cast<Int>(a.value() - b.value());
}
// The sum of two names is no name.
template <class Tag, class Int>
void operator+(Id<Tag, Int>, Id<Tag, Int>) = delete;

template <class A, class B>
requires id_detail::TwoKinds<A, B>
bool operator==(A, B) = delete;
template <class A, class B>
requires id_detail::TwoKinds<A, B> std::strong_ordering operator<=>(A, B) = delete;
template <class A, class B>
requires id_detail::TwoKinds<A, B>
void operator+(A, B) = delete;
template <class A, class B>
requires id_detail::TwoKinds<A, B>
void operator-(A, B) = delete;

// As JSON an id is its Int (nlohmann's library finds these two by their names).
template <class Json, class Tag, class Int>
void to_json(Json& json, const Id<Tag, Int>& id) {
  json = id.value();
}
template <class Json, class Tag, class Int>
void from_json(const Json& json, Id<Tag, Int>& id) {
  id = Id<Tag, Int>(json.template get<Int>());
}

}  // namespace starling

template <class Tag, class Int>
struct std::hash<starling::Id<Tag, Int>> {
  std::size_t operator()(starling::Id<Tag, Int> id) const noexcept {
    return std::hash<Int>{}(id.value());
  }
};

// Without this specialisation std::numeric_limits<Rank>::max() would be 0.
template <class Tag, class Int>
struct std::numeric_limits<starling::Id<Tag, Int>> : std::numeric_limits<Int> {};
