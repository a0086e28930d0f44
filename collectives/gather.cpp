#include "collectives/gather.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/runs.h"
#include "core/base/check.h"

namespace starling::collectives {

Gather::Gather(const Layout& layout, Holders holders, GatherOptions options, GatherSource& source)
    : layout_(layout),
      holders_(std::move(holders)),
      options_(std::move(options)),
      source_(source),
      arrived_(layout.segments()),
      published_(layout.buckets()),
      buckets_missing_(layout.buckets()) {
  STARLING_CHECK(options_.self < options_.world);
  STARLING_CHECK(options_.record.size() <= kRecordBytesMax);
  check_holders(layout, *holders_, options_.world);
  for (const SegmentRange& run : equal_runs(layout, *holders_, kFrameBytes)) {
    if ((*holders_)[run.first].front() == options_.self) {
      own_.push_back(run);
    } else {
      segments_missing_ += run.count;
    }
  }
  if (options_.version == kNoVersion) STARLING_CHECK(own_.empty());  // R13
  ByteWriter prefix;
  prefix.put_sized(options_.record);
  prefix_ = share(std::move(prefix).take());
}

void Gather::start(Transport& transport) {
  for (std::uint32_t b = 0; b < layout_.buckets(); ++b) publish(b, transport);
}

void Gather::publish(std::uint32_t bucket, Transport& transport) {
  STARLING_CHECK(bucket < published_.size());
  STARLING_CHECK(!published_[bucket]);
  published_[bucket] = true;
  --buckets_missing_;
  const SegmentRange all = layout_.bucket(bucket);
  const auto before = [](const SegmentRange& run, SegmentId s) { return run.first < s; };
  auto run = std::lower_bound(own_.begin(), own_.end(), all.first, before);
  for (; run != own_.end() && run->first < all.past(); ++run) {
    source_.publish(*run);
    if (options_.world == 1) continue;
    FrameHeader header;
    header.kind = FrameKind::kGather;
    header.version = options_.version;
    header.first = run->first;
    header.count = run->count;
    Payload payload(prefix_);
    payload.append(share(source_.params(*run)));
    transport.send_all(others(options_.self, options_.world), header, payload);
  }
}

Result<> Gather::on_frame(Rank from, const Frame& frame) {
  STARLING_CHECK(from < options_.world);
  STARLING_CHECK(from != options_.self);
  const FrameHeader& header = frame.header;
  if (header.kind != FrameKind::kGather) return malformed(from, "of a kind that is not used here");
  if (header.version != options_.version && options_.version != kNoVersion)
    return malformed(from, "of another version");
  if (header.version == kNoVersion) return malformed(from, "of no version");
  if (!fits(layout_, header.first, header.count)) return malformed(from, "of no segments");
  const SegmentRange run{header.first, header.count};
  for (const SegmentId s : run) {
    if ((*holders_)[s].front() != from) return malformed(from, "not from the owner");
    if (arrived_[s]) return malformed(from, "of segments that it sent before");
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
  STARLING_TRY(source_.set_params(options_.version, run, reader.get_bytes(reader.remaining())));
  for (const SegmentId s : run) arrived_[s] = true;
  segments_missing_ -= run.count;
  return ok();
}

Error Gather::malformed(Rank from, const char* what) const {
  return {Code::kCorrupt, std::string("a frame ") + what + "; gather frame from rank " +
                              std::to_string(from) + ", version " +
                              std::to_string(options_.version)};
}

}  // namespace starling::collectives
