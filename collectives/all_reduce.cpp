#include "collectives/all_reduce.h"

#include <algorithm>
#include <string>

#include "collectives/add.h"
#include "core/base/check.h"

namespace starling::collectives {

AllReduce::AllReduce(std::span<const std::int32_t> in, std::span<std::int32_t> out,
                     const AllReduceOptions& options)
    : in_(in),
      out_(out),
      options_(options),
      one_hop_(in.size_bytes() <= options.one_hop_bytes),
      seen_(options.world) {
  STARLING_CHECK(in.size() == out.size());
  STARLING_CHECK(options.self < options.world);
  const std::size_t piece = std::max<std::size_t>(1, options.piece_bytes / sizeof(std::int32_t));
  const std::uint32_t slices = one_hop_ ? 1 : options.world;
  for (Rank owner = 0; owner < slices; ++owner) {
    const std::size_t end = in.size() * (owner + 1) / slices;
    for (std::size_t first = in.size() * owner / slices; first < end; first += piece)
      pieces_.push_back({first, std::min(piece, end - first), owner, 0});
  }
  for (Piece& p : pieces_) p.missing = mine(p) ? options.world - 1 : 1;
  for (auto& pieces : seen_) pieces.resize(pieces_.size());
  totals_missing_ = pieces_.size();
  if (options.world > 1) return;
  std::copy(in.begin(), in.end(), out.begin());
  totals_missing_ = 0;
}

void AllReduce::start(FrameSender& sender) {
  STARLING_CHECK(!started_);
  started_ = true;
  // Each rank begins with another owner, so that the ranks do not all send to one at first.
  const std::uint32_t world = options_.world;
  std::vector<std::vector<std::uint32_t>> of(world);
  for (std::uint32_t i = 0; i < pieces_.size(); ++i) of[pieces_[i].owner].push_back(i);
  for (std::uint32_t k = 1; k < world; ++k) {
    const Rank to((options_.self + k) % world);
    for (const std::uint32_t i : of[one_hop_ ? Rank{0} : to]) {
      FrameHeader header;
      header.kind = FrameKind::kContribution;
      header.version = options_.version;
      header.first = SegmentId(i);  // the header's field of segments holds the piece's number
      header.count = 1;
      Payload payload;
      payload.append_borrowed(as_bytes(in_.subspan(pieces_[i].first, pieces_[i].count)));
      sender.send(to, header, payload);
    }
  }
}

Result<> AllReduce::on_frame(Rank from, const Frame& frame, FrameSender& sender) {
  STARLING_CHECK(from < options_.world);
  STARLING_CHECK(from != options_.self);
  const FrameHeader& header = frame.header;
  if (header.version != options_.version) return malformed(from, "another version");
  if (header.first >= pieces_.size() || header.count != 1)
    return malformed(from, "no piece of this array");
  const Piece& piece = pieces_[header.first];
  if (frame.payload->size() != piece.count * sizeof(std::int32_t))
    return malformed(from, "not as long as its piece");
  if (seen_[from][header.first]) return malformed(from, "twice");
  seen_[from][header.first] = true;
  if (header.kind == FrameKind::kContribution) return on_contribution(from, frame, sender);
  if (header.kind == FrameKind::kTotal) return on_total(from, frame);
  return malformed(from, "of a kind that is not used here");
}

Result<> AllReduce::on_contribution(Rank from, const Frame& frame, FrameSender& sender) {
  Piece& piece = pieces_[frame.header.first];
  if (!mine(piece)) return malformed(from, "a contribution to another rank's piece");
  const auto out = out_.subspan(piece.first, piece.count);
  // The first contribution that arrives is added to the own numbers on their way to `out`.
  const bool first = piece.missing == options_.world - 1;
  if (first) {
    add_sums(out, in_.subspan(piece.first, piece.count), *frame.payload);
  } else {
    add_sums(out, out, *frame.payload);
  }
  if (--piece.missing > 0) return ok();
  --totals_missing_;
  if (one_hop_) return ok();
  FrameHeader header = frame.header;
  header.kind = FrameKind::kTotal;
  Payload payload;
  payload.append_borrowed(as_bytes(std::span<const std::int32_t>(out)));
  sender.send_all(others(options_.self, options_.world), header, payload);
  return ok();
}

Result<> AllReduce::on_total(Rank from, const Frame& frame) {
  Piece& piece = pieces_[frame.header.first];
  if (one_hop_ || piece.owner != from) return malformed(from, "a total of another rank's piece");
  copy_sums(out_.subspan(piece.first, piece.count), *frame.payload);
  piece.missing = 0;
  --totals_missing_;
  return ok();
}

Error AllReduce::malformed(Rank from, const char* what) const {
  return {Code::kCorrupt, std::string(what) + "; all-reduce frame from rank " +
                              std::to_string(from) + ", operation " +
                              std::to_string(options_.version)};
}

}  // namespace starling::collectives
