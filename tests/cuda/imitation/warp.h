#pragma once
// What threads of a warp or a block do together. Requirements on masks are those of CUDA, and stricter
// in one way: a lane of a mask that has returned, or never was, is an error here.

#include <bit>
#include <concepts>
#include <cstdint>

#include "tests/cuda/imitation/engine.h"

namespace starling::imitation {

template <class T, class... Types>
concept OneOf = (std::same_as<T, Types> || ...);
// What the real functions take.
template <class T>
concept Shuffled =
    OneOf<T, int, unsigned, long, unsigned long, long long, unsigned long long, float, double>;

template <class Visit>
void for_lanes(std::uint32_t mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<unsigned>(std::countr_zero(mask)));
}

enum class Way { kIndex, kUp, kDown, kXor };

constexpr const char* name_of(Way way) {
  switch (way) {
    case Way::kIndex:
      return "__shfl_sync";
    case Way::kUp:
      return "__shfl_up_sync";
    case Way::kDown:
      return "__shfl_down_sync";
    case Way::kXor:
      return "__shfl_xor_sync";
  }
  return "";
}

// Which lane `lane` reads (PTX ISA, shfl.sync); itself if the wanted one is outside its part of the warp.
constexpr unsigned shuffle_source(Way way, unsigned lane, unsigned by, unsigned width) {
  by &= 31;
  const unsigned first = lane & ~(width - 1), last = first + width - 1;
  switch (way) {
    case Way::kIndex:
      return first | (by & (width - 1));
    case Way::kUp:
      return lane < first + by ? lane : lane - by;
    case Way::kDown:
      return lane + by > last ? lane : lane + by;
    case Way::kXor:
      return (lane ^ by) > last ? lane : lane ^ by;
  }
  return lane;
}

template <class T>
struct ShuffleSlot {
  T value, result;
  unsigned by, width;
};
template <class T, Way kWay>
void complete_shuffle(void* const* slots, std::uint32_t mask) {
  for_lanes(mask, [&](unsigned lane) {
    auto& slot = *static_cast<ShuffleSlot<T>*>(slots[lane]);
    if (slot.width == 0 || slot.width > 32 || (slot.width & (slot.width - 1)) != 0)
      fail("a shuffle of width %u", slot.width);
    const unsigned from = shuffle_source(kWay, lane, slot.by, slot.width);
    if ((mask >> from & 1) == 0)
      fail("lane %u reads lane %u, which is not in the mask 0x%08x", lane, from, mask);
    slot.result = static_cast<ShuffleSlot<T>*>(slots[from])->value;
  });
}
template <class T, Way kWay>
inline constexpr Operation kShuffle{name_of(kWay), &complete_shuffle<T, kWay>};

template <Way kWay, class T>
T shuffle(std::uint32_t mask, T value, unsigned by, int width) {
  ShuffleSlot<T> slot{value, value, by, static_cast<unsigned>(width)};
  meet_in_warp(kShuffle<T, kWay>, mask, &slot);
  return slot.result;
}

// A value of each lane becomes one value of all.
template <class Fold, class T>
void complete_fold(void* const* slots, std::uint32_t mask) {
  T all = *static_cast<T*>(slots[std::countr_zero(mask)]);
  for_lanes(mask & (mask - 1),
            [&](unsigned lane) { all = Fold::of(all, *static_cast<T*>(slots[lane])); });
  for_lanes(mask, [&](unsigned lane) { *static_cast<T*>(slots[lane]) = all; });
}
template <class Fold, class T>
inline constexpr Operation kFold{Fold::kName, &complete_fold<Fold, T>};

template <class Fold, class T>
T fold(std::uint32_t mask, T value) {
  meet_in_warp(kFold<Fold, T>, mask, &value);
  return value;
}

#define STARLING_FOLD(Name, cuda_name, expression)  \
  struct Name {                                     \
    static constexpr const char* kName = cuda_name; \
    template <class T>                              \
    static T of(T a, T b) {                         \
      return expression;                            \
    }                                               \
  };
STARLING_FOLD(Ballot, "__ballot_sync", a | b)
STARLING_FOLD(Any, "__any_sync", a | b)
STARLING_FOLD(All, "__all_sync", a& b)
STARLING_FOLD(Sum, "__reduce_add_sync", a + b)
STARLING_FOLD(Min, "__reduce_min_sync", b < a ? b : a)
STARLING_FOLD(Max, "__reduce_max_sync", a < b ? b : a)
STARLING_FOLD(And, "__reduce_and_sync", a& b)
STARLING_FOLD(Or, "__reduce_or_sync", a | b)
STARLING_FOLD(Xor, "__reduce_xor_sync", a ^ b)
#undef STARLING_FOLD

struct MatchSlot {
  std::uint64_t value;
  unsigned lanes;
};
inline void complete_match(void* const* slots, std::uint32_t mask) {
  for_lanes(mask, [&](unsigned lane) {
    auto& slot = *static_cast<MatchSlot*>(slots[lane]);
    slot.lanes = 0;
    for_lanes(mask, [&](unsigned other) {
      if (static_cast<MatchSlot*>(slots[other])->value == slot.value) slot.lanes |= 1u << other;
    });
  });
}
inline constexpr Operation kMatchAny{"__match_any_sync", &complete_match};
inline constexpr Operation kMatchAll{"__match_all_sync", &complete_match};
template <Shuffled T>
unsigned match(const Operation& operation, std::uint32_t mask, T value) {
  MatchSlot slot{0, 0};
  if constexpr (sizeof(T) == 4)
    slot.value = std::bit_cast<std::uint32_t>(value);
  else
    slot.value = std::bit_cast<std::uint64_t>(value);
  meet_in_warp(operation, mask, &slot);
  return slot.lanes;
}

inline constexpr Operation kSyncWarp{"__syncwarp", [](void* const*, std::uint32_t) {},
                                     /*orders_memory=*/true};

}  // namespace starling::imitation

inline void __syncthreads() {
  starling::imitation::meet_in_block();
}

inline void __syncwarp(unsigned mask = 0xffffffff) {
  starling::imitation::meet_in_warp(starling::imitation::kSyncWarp, mask, nullptr);
}

template <starling::imitation::Shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  using starling::imitation::Way;
  return starling::imitation::shuffle<Way::kIndex>(mask, value, static_cast<unsigned>(source),
                                                   width);
}
template <starling::imitation::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return starling::imitation::shuffle<starling::imitation::Way::kUp>(mask, value, by, width);
}
template <starling::imitation::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return starling::imitation::shuffle<starling::imitation::Way::kDown>(mask, value, by, width);
}
template <starling::imitation::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32) {
  using starling::imitation::Way;
  return starling::imitation::shuffle<Way::kXor>(mask, value, static_cast<unsigned>(by), width);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned own = predicate != 0 ? 1u << starling::imitation::lane() : 0u;
  return starling::imitation::fold<starling::imitation::Ballot>(mask, own);
}
inline int __any_sync(unsigned mask, int predicate) {
  return starling::imitation::fold<starling::imitation::Any>(mask, predicate != 0 ? 1 : 0);
}
inline int __all_sync(unsigned mask, int predicate) {
  return starling::imitation::fold<starling::imitation::All>(mask, predicate != 0 ? 1 : 0);
}

template <starling::imitation::Shuffled T>
unsigned __match_any_sync(unsigned mask, T value) {
  return starling::imitation::match(starling::imitation::kMatchAny, mask, value);
}
template <starling::imitation::Shuffled T>
unsigned __match_all_sync(unsigned mask, T value, int* all) {
  const bool same = starling::imitation::match(starling::imitation::kMatchAll, mask, value) == mask;
  *all = same ? 1 : 0;
  return same ? mask : 0;
}

// The real ones exist for these types alone.
#define STARLING_REDUCE(name, type, Fold)                                     \
  inline type name(unsigned mask, type value) {                               \
    return starling::imitation::fold<starling::imitation::Fold>(mask, value); \
  }
STARLING_REDUCE(__reduce_add_sync, unsigned, Sum)
STARLING_REDUCE(__reduce_min_sync, unsigned, Min)
STARLING_REDUCE(__reduce_min_sync, int, Min)
STARLING_REDUCE(__reduce_max_sync, unsigned, Max)
STARLING_REDUCE(__reduce_max_sync, int, Max)
STARLING_REDUCE(__reduce_and_sync, unsigned, And)
STARLING_REDUCE(__reduce_or_sync, unsigned, Or)
STARLING_REDUCE(__reduce_xor_sync, unsigned, Xor)
#undef STARLING_REDUCE
inline int __reduce_add_sync(unsigned mask, int value) {  // wraps round
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
}

// Memory is in one order for all fibers of a thread, so a fence between them has nothing to do.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
