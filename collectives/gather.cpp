#include "collectives/gather.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/ranges.h"
#include "core/base/check.h"

namespace starling::collectives {

Gather::Gather(const Layout& layout, Holders holders, GatherOptions options, GatherSource& source)
    : layout_(layout),
      holders_(std::move(holders)),
      options_(std::move(options)),
      source_(source),
      arrived_(layout.segments()) {
  STARLING_CHECK(options_.self < options_.world);
  STARLING_CHECK(options_.record.size() <= kRecordBytesMax);
  check_holders(layout, *holders_, options_.world);
  for (const SegmentRange& range : equal_ranges(layout, *holders_, options_.frame_bytes)) {
    if (held(range.first)) held_.push_back(range);
    if ((*holders_)[range.first].front() != options_.self) segments_missing_ += range.count;
  }
  if (options_.version == kNoVersion) STARLING_CHECK(held_.empty());  // R13
  ByteWriter prefix;
  prefix.put_sized(options_.record);
  prefix_ = share(std::move(prefix).take());
}

bool Gather::held(SegmentId segment) const {
  const auto& ranks = (*holders_)[segment];
  return std::find(ranks.begin(), ranks.end(), options_.self) != ranks.end();
}

void Gather::start(FrameSender& sender) {
  STARLING_CHECK(!started_);
  started_ = true;
  for (const SegmentRange& range : held_) {
    source_.publish(options_.version, range);
    if ((*holders_)[range.first].front() == options_.self) send(range, sender);
  }
}

// Sends segments that this rank owns.
void Gather::send(SegmentRange range, FrameSender& sender) {
  const auto& ranks = (*holders_)[range.first];
  const std::span<const Rank> replicas = std::span(ranks).subspan(1);
  std::vector<Rank> lacking = others(options_.self, options_.world);
  std::erase_if(lacking,
                [&](Rank rank) { return std::ranges::find(replicas, rank) != replicas.end(); });
  FrameHeader header;
  header.kind = FrameKind::kGather;
  header.flags = options_.on_device ? kOnDevice : 0;
  header.version = options_.version;
  header.first = range.first;
  header.count = range.count;
  const auto send_to = [&](std::span<const Rank> to, Bytes bytes) {
    Payload payload(prefix_);
    payload.append(share(std::move(bytes)));
    sender.send_all(to, header, payload);
  };
  if (!lacking.empty()) send_to(lacking, source_.params(range));
  if (replicas.empty()) return;
  ByteWriter checksums;
  for (const std::uint64_t checksum : source_.checksums(range)) checksums.put(checksum);
  send_to(replicas, std::move(checksums).take());
}

Result<> Gather::on_frame(Rank from, const Frame& frame) {
  STARLING_CHECK(from < options_.world);
  STARLING_CHECK(from != options_.self);
  const FrameHeader& header = frame.header;
  if (header.kind != FrameKind::kGather) return malformed(from, "of a kind that is not used here");
  if (header.version != options_.version && options_.version != kNoVersion)
    return malformed(from, "of another version");
  if (header.version == kNoVersion) return malformed(from, "of no version");
  if (header.flags != (options_.on_device ? kOnDevice : 0))
    return malformed(from, "of the other transport");
  if (!fits(layout_, header.first, header.count)) return malformed(from, "of no segments");
  const SegmentRange range{header.first, header.count};
  for (const SegmentId s : range) {
    if ((*holders_)[s].front() != from) return malformed(from, "not from the owner");
    if (arrived_[s]) return malformed(from, "of segments that it sent before");
    if (held(s) != held(range.first)) return malformed(from, "of segments held here and others");
  }
  ByteReader reader(*frame.payload);
  const ByteView record = reader.get_sized();
  if (!reader.good() || record.size() > kRecordBytesMax)
    return malformed(from, "without a whole record");
  // A joiner takes the record from the first frame; all others must bring the same.
  const bool known = first_seen_ || options_.version != kNoVersion;
  if (known &&
      !std::equal(record.begin(), record.end(), options_.record.begin(), options_.record.end()))
    return malformed(from, "with another record");
  if (!first_seen_) {
    first_seen_ = true;
    options_.version = header.version;
    options_.record.assign(record.begin(), record.end());
  }
  if (held(range.first)) STARLING_CHECK(started_);
  const ByteView rest = reader.get_bytes(reader.remaining());
  if (held(range.first)) {
    STARLING_TRY(compare(range, from, rest));
  } else {
    STARLING_TRY(source_.set_params(options_.version, range, rest));
  }
  for (const SegmentId s : range) arrived_[s] = true;
  segments_missing_ -= range.count;
  return ok();
}

Result<> Gather::compare(SegmentRange range, Rank from, ByteView checksums) {
  if (checksums.size() != range.count * sizeof(std::uint64_t))
    return malformed(from, "not as long as its checksums");
  ByteReader reader(checksums);
  const auto own = source_.checksums(range);
  for (std::uint32_t i = 0; i < range.count; ++i)
    if (reader.get<std::uint64_t>() != own[i] && !differs_) differs_ = range.first + i;
  return ok();
}

Error Gather::malformed(Rank from, const char* what) const {
  return {Code::kCorrupt, std::string("a frame ") + what + "; gather frame from rank " +
                              std::to_string(from) + ", version " +
                              std::to_string(options_.version)};
}

}  // namespace starling::collectives
