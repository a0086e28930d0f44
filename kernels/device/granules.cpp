#include "kernels/device/granules.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::kernels {

Granules::Granules(std::size_t bytes, std::size_t grain) : grain_(grain) {
  STARLING_CHECK(grain > 0);
  users_.resize((bytes + grain - 1) / grain);
  mapped_.resize(users_.size());
  given_.resize(users_.size());
}

// Of no bytes there is no granule.
std::size_t Granules::end(std::size_t offset, std::size_t count) const {
  STARLING_CHECK(offset <= bytes());
  STARLING_CHECK(count <= bytes() - offset);
  return count == 0 ? first(offset) : (offset + count - 1) / grain_ + 1;
}

void Granules::add(std::vector<Run>& runs, std::size_t granule) const {
  const std::size_t offset = granule * grain_;
  if (runs.empty() || runs.back().offset + runs.back().count != offset)
    runs.push_back({offset, grain_});
  else
    runs.back().count += grain_;
}

Granules::Taken Granules::take(std::size_t offset, std::size_t count) {
  Taken taken;
  for (std::size_t g = first(offset); g < end(offset, count); ++g) {
    if (users_[g]++ > 0) continue;
    add(mapped_[g] ? taken.reused : taken.fresh, g);
    mapped_[g] = true;
  }
  return taken;
}

void Granules::undo(const Taken& taken, std::size_t offset, std::size_t count) {
  for (std::size_t g = first(offset); g < end(offset, count); ++g) {
    STARLING_CHECK(users_[g] > 0);
    --users_[g];
  }
  for (const Run& run : taken.fresh)
    for (std::size_t g = first(run.offset); g < end(run.offset, run.count); ++g) {
      STARLING_CHECK(users_[g] == 0);
      mapped_[g] = false;
    }
}

Granules::Given Granules::give(std::size_t offset, std::size_t count) {
  Given given;
  given.number = ++gives_;
  for (std::size_t g = first(offset); g < end(offset, count); ++g) {
    STARLING_CHECK(users_[g] > 0);
    if (--users_[g] == 0) {
      given_[g] = given.number;
      add(given.unused, g);
      continue;
    }
    const std::size_t from = std::max(offset, g * grain_);
    const std::size_t to = std::min(offset + count, (g + 1) * grain_);
    auto& shared = given.shared;
    if (shared.empty() || shared.back().offset + shared.back().count != from)
      shared.push_back({from, to - from});
    else
      shared.back().count += to - from;
  }
  return given;
}

std::vector<Granules::Run> Granules::take_unused(Run run, std::uint64_t number) {
  std::vector<Run> unused;
  for (std::size_t g = first(run.offset); g < end(run.offset, run.count); ++g) {
    if (users_[g] > 0 || !mapped_[g] || given_[g] != number) continue;
    add(unused, g);
    mapped_[g] = false;
  }
  return unused;
}

bool Granules::used(std::size_t offset, std::size_t count) const {
  return std::all_of(users_.begin() + static_cast<std::ptrdiff_t>(first(offset)),
                     users_.begin() + static_cast<std::ptrdiff_t>(end(offset, count)),
                     [](std::uint32_t users) { return users > 0; });
}

std::vector<Granules::Run> Granules::mapped() const {
  std::vector<Run> mapped;
  for (std::size_t g = 0; g < users_.size(); ++g)
    if (mapped_[g]) add(mapped, g);
  return mapped;
}

}  // namespace starling::kernels
