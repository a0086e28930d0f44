#include "core/data/lanes.h"

#include "core/base/check.h"
#include "core/base/hash.h"

namespace starling {
namespace {

// Permutations of windows have keys of their own.
constexpr std::uint64_t kWindows = 0x77696e646f777321;

}  // namespace

Lanes::Lanes(std::uint64_t seed, std::uint64_t chunks, std::uint32_t samples, std::uint32_t lanes)
    : seed_(seed), chunks_(chunks), samples_(samples), lanes_(lanes) {
  STARLING_CHECK(lanes >= 1 && samples >= 1);
  STARLING_CHECK_MSG(chunks >= lanes, chunks << " chunks, " << lanes << " lanes");
}

std::uint64_t Lanes::chunk_of(std::uint32_t lane, std::uint64_t ordinal) const {
  STARLING_CHECK(lane < lanes_);
  const std::uint64_t i = ordinal * lanes_ + lane;
  return Permutation(seed_, i / chunks_, chunks_)(i % chunks_);
}

// How many chunks the lane has in all passes before: i < pass * chunks_ with i mod M = lane.
std::uint64_t Lanes::first_of_pass(std::uint32_t lane, std::uint64_t pass) const {
  const std::uint64_t all = pass * chunks_;
  return all / lanes_ + (all % lanes_ > lane ? 1 : 0);
}

LaneWindow Lanes::window_of(std::uint32_t lane, std::uint64_t ordinal) const {
  STARLING_CHECK(lane < lanes_);
  const std::uint64_t pass = (ordinal * lanes_ + lane) / chunks_;
  const std::uint64_t first = first_of_pass(lane, pass),
                      count = first_of_pass(lane, pass + 1) - first;
  const std::uint64_t windows = (count + kWindow - 1) / kWindow;
  // Window j has those from count * j / windows on.
  const std::uint64_t j = ((ordinal - first + 1) * windows - 1) / count;
  return {first + count * j / windows, first + count * (j + 1) / windows};
}

Permutation Lanes::order_of(std::uint32_t lane, const LaneWindow& window) const {
  return {mix64(seed_, kWindows), window.first * lanes_ + lane, window.chunks() * samples_};
}

LanePlace Lanes::place_of(std::uint32_t lane, std::uint64_t position) const {
  const LaneWindow window = window_of(lane, position / samples_);
  const std::uint64_t within = order_of(lane, window)(position - window.first * samples_);
  const std::uint64_t ordinal = window.first + within / samples_;
  return {(ordinal * lanes_ + lane) / chunks_, chunk_of(lane, ordinal),
          static_cast<std::uint32_t>(within % samples_)};
}

std::pair<std::uint32_t, std::uint64_t> Lanes::position_of(const LanePlace& place) const {
  STARLING_CHECK(place.chunk < chunks_ && place.sample < samples_);
  const std::uint64_t i =
      place.pass * chunks_ + Permutation(seed_, place.pass, chunks_).inverse(place.chunk);
  const auto lane = static_cast<std::uint32_t>(i % lanes_);
  const std::uint64_t ordinal = i / lanes_;
  const LaneWindow window = window_of(lane, ordinal);
  const std::uint64_t within = (ordinal - window.first) * samples_ + place.sample;
  return {lane, window.first * samples_ + order_of(lane, window).inverse(within)};
}

}  // namespace starling
