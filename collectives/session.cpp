#include "collectives/session.h"

#include <string>
#include <utility>

#include "core/base/check.h"

namespace starling::collectives {

Session::Session(std::uint32_t world, Version version, SessionLimits limits)
    : world_(world), limits_(limits), version_(version) {}

Result<std::vector<Arrival>> Session::on_frame(Rank from, Frame frame) {
  STARLING_CHECK(from < world_);
  const Version got = frame.header.version;
  std::vector<Arrival> now;
  if (version_ == kNoVersion && frame.header.kind == FrameKind::kGather) {
    if (got == kNoVersion) return wrong_version(from, got);
    now.push_back({from, std::move(frame)});
    STARLING_TRY(waited, set_version(got));
    for (Arrival& arrival : waited) now.push_back(std::move(arrival));
    return now;
  }
  if (version_ != kNoVersion && got == version_) {
    now.push_back({from, std::move(frame)});
    return now;
  }
  if (version_ != kNoVersion && got != version_ + 1) return wrong_version(from, got);
  waiting_bytes_ += frame.payload->size();
  waiting_.push_back({from, std::move(frame)});
  if (waiting_.size() <= limits_.frames_max && waiting_bytes_ <= limits_.bytes_max) return now;
  culprit_ = from;
  return Error(Code::kCorrupt, "too many early frames, " + std::to_string(waiting_.size()) +
                                   " of " + std::to_string(waiting_bytes_) +
                                   " bytes; last from rank " + std::to_string(from));
}

Result<std::vector<Arrival>> Session::set_version(Version version) {
  STARLING_CHECK(version != kNoVersion);
  version_ = version;
  std::vector<Arrival> now;
  std::deque<Arrival> later;
  for (Arrival& arrival : waiting_) {
    const Version got = arrival.frame.header.version;
    if (got != version && got != version + 1) return wrong_version(arrival.from, got);
    if (got == version) {
      waiting_bytes_ -= arrival.frame.payload->size();
      now.push_back(std::move(arrival));
    } else {
      later.push_back(std::move(arrival));
    }
  }
  waiting_ = std::move(later);
  return now;
}

Error Session::wrong_version(Rank from, Version got) {
  culprit_ = from;
  const auto text = [](Version v) { return v == kNoVersion ? "none" : std::to_string(v); };
  return {Code::kCorrupt, "a frame of version " + text(got) + " from rank " + std::to_string(from) +
                              " while at version " + text(version_)};
}

}  // namespace starling::collectives
