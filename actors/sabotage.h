#pragma once
// At these places the breakable build breaks a promise on purpose,
// so that tests see whether the checks of a run notice it.
//
// This header is that of the shipped build: nothing is ever broken, and the compiler drops
// every call. The breakable build puts tests/breakable/include/ before the root of the
// sources and so finds actors/sabotage.h there, with the same functions (docs/testing.md).
// A source that includes this header stands in the list of tests/breakable/CMakeLists.txt.

#include <span>
#include <string_view>

#include "core/base/ids.h"
#include "core/job/layout.h"
#include "core/wire/messages.h"
#include "kernels/grid/accumulators.h"
#include "kernels/grid/state.h"
#include "kernels/grid/totals.h"
#include "kernels/models/gradient_maker.h"

namespace starling::actors::sabotage {

// `worker`: the name of the worker that asks. `version`: that of the step in which it asks.
inline void drop_gradient(kernels::GradientMaker&, Version, std::string_view /*worker*/) {}
// Makes `gradient`, of so many elements, as if one in 1,000 of its products were another one.
inline void multiply_wrongly(kernels::Queue&, const float* /*gradient*/, std::uint64_t /*elements*/,
                             std::string_view /*worker*/) {}
inline void double_totals(kernels::Totals&, Version, std::string_view /*worker*/) {}
inline void flip_parameters(kernels::State&, Version, std::string_view /*worker*/) {}
// Flips parameters of segments that were published at this version and were not read yet.
inline void flip_published(kernels::State&, std::span<const SegmentId>, Version,
                           std::string_view /*worker*/) {}
inline void compare_late(Version, std::string_view /*worker*/) {}
// Sets the placement that the functions above refer to.
inline void follow(const Plan&, Rank, std::string_view /*worker*/) {}
inline void flip_sums(kernels::Accumulators&, Version, std::string_view /*worker*/) {}
// Flips state in the first of these segments, if there is one.
inline void flip_state(kernels::State&, std::span<const SegmentId>, Version,
                       std::string_view /*worker*/) {}
inline void flip_total(kernels::Totals&, const Layout&, std::span<const SegmentId>, Version,
                       std::string_view /*worker*/) {}
// Corrupts all copies held at this version but those that are `owned`.
inline void corrupt_replicas(kernels::State&, std::span<const SegmentId> /*owned*/, Version,
                             std::string_view /*worker*/) {}
inline void leave_process(std::string_view /*worker*/) {}
// The thread that asks never goes on.
inline void hang_computing(Version, std::string_view /*worker*/) {}
inline void hang_data_plane(Version, std::string_view /*worker*/) {}

constexpr bool keeps_stale_parameters(Version, std::string_view /*worker*/) {
  return false;
}
constexpr bool accepts_any_total(std::string_view /*worker*/) {
  return false;
}
constexpr bool ignores_fence(std::string_view /*worker*/) {
  return false;
}
constexpr bool accepts_strangers() {
  return false;
}

}  // namespace starling::actors::sabotage
