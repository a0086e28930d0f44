#include "actors/worker/arrivals.h"

#include <algorithm>

namespace starling::actors {

Arrivals::Arrivals(const Layout& layout)
    : layout_(layout),
      versions_(layout.segments(), kNoVersion),
      coming_(layout.parts().size()),
      there_(layout.parts().size()) {
  for (auto& version : there_) version = kNoVersion;
}

void Arrivals::note(SegmentId segment, Version version) {
  if (versions_[segment] == version) return;
  const PartId part = layout_.part_of(segment);
  Coming& coming = coming_[part];
  if (coming.version != version) {
    const SegmentRange all = layout_.parts()[part].segments;
    const auto lacks = [&](SegmentId s) { return versions_[s] != version; };
    coming = {version, static_cast<std::uint32_t>(std::count_if(all.begin(), all.end(), lacks))};
  }
  versions_[segment] = version;
  if (--coming.lacking != 0) return;
  // Stores under the lock, so that a pass that has just looked does not miss it.
  const MutexLock lock(mutex_);
  there_[part].store(version, std::memory_order_release);
  changed_.notify_all();
}

std::optional<std::chrono::nanoseconds> Arrivals::wait(PartId part, Version version) {
  const auto there = [&] { return there_[part].load(std::memory_order_acquire) == version; };
  if (there()) return std::chrono::nanoseconds(0);
  const auto begun = std::chrono::steady_clock::now();
  const MutexLock lock(mutex_);
  while (!cancelled_ && !there()) changed_.wait(mutex_);
  if (!there()) return std::nullopt;
  return std::chrono::steady_clock::now() - begun;
}

void Arrivals::cancel() {
  const MutexLock lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

}  // namespace starling::actors
