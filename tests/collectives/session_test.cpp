#include "collectives/session.h"

#include <doctest/doctest.h>

#include "collectives/frame_sender.h"

namespace starling::collectives {
namespace {

Frame frame_of(Version version, FrameKind kind = FrameKind::kVote, std::size_t size = 0) {
  FrameHeader header;
  header.kind = kind;
  header.version = version;
  return make_frame(header, share(Bytes(size)));
}

// What is delivered, as "rank:version" in order; "error" if the connection is to end.
std::string arrivals_text(const Result<std::vector<Arrival>>& result) {
  if (!result) return "error";
  std::string out;
  for (const Arrival& a : result.value())
    out += std::to_string(a.from) + ":" + std::to_string(a.frame.header.version) + " ";
  return out;
}

TEST_CASE("session: R1, this version passes, the next waits, any other ends the connection") {
  Session session(/*world=*/3, /*version=*/7);
  CHECK(arrivals_text(session.on_frame(1, frame_of(7))) == "1:7 ");
  CHECK(arrivals_text(session.on_frame(2, frame_of(8))) == "");
  CHECK(arrivals_text(session.on_frame(1, frame_of(8))) == "");
  CHECK(arrivals_text(session.on_frame(1, frame_of(7))) == "1:7 ");
  CHECK(session.waiting() == 2);
  CHECK(arrivals_text(session.on_frame(1, frame_of(6))) == "error");
  CHECK(arrivals_text(session.on_frame(1, frame_of(9))) == "error");
  CHECK(arrivals_text(session.set_version(8)) == "2:8 1:8 ");
  CHECK(session.waiting() == 0);
  CHECK(arrivals_text(session.on_frame(2, frame_of(7))) == "error");
  CHECK(arrivals_text(session.on_frame(2, frame_of(9))) == "");
}

TEST_CASE("session: a joiner learns the version from the first gather frame, the rest waits") {
  Session session(3, kNoVersion);
  CHECK(arrivals_text(session.on_frame(1, frame_of(5))) == "");
  CHECK(arrivals_text(session.on_frame(2, frame_of(6))) == "");
  CHECK(arrivals_text(session.on_frame(0, frame_of(5, FrameKind::kGather))) == "0:5 1:5 ");
  CHECK(session.version() == 5);
  CHECK(session.waiting() == 1);
  CHECK(arrivals_text(session.set_version(6)) == "2:6 ");

  Session misled(3, kNoVersion);
  CHECK(arrivals_text(misled.on_frame(1, frame_of(3))) == "");
  CHECK(arrivals_text(misled.on_frame(0, frame_of(5, FrameKind::kGather))) == "error");
  Session none(3, kNoVersion);
  CHECK(arrivals_text(none.on_frame(0, frame_of(kNoVersion, FrameKind::kGather))) == "error");
}

TEST_CASE("session: what waits is bounded in number and bytes") {
  SessionLimits limits;
  limits.frames_max = 3;
  limits.bytes_max = 100;
  Session many(2, 0, limits);
  for (int i = 0; i < 3; ++i) CHECK(arrivals_text(many.on_frame(1, frame_of(1))) == "");
  CHECK(arrivals_text(many.on_frame(1, frame_of(1))) == "error");
  Session large(2, 0, limits);
  CHECK(arrivals_text(large.on_frame(1, frame_of(1, FrameKind::kVote, 100))) == "");
  CHECK(arrivals_text(large.on_frame(1, frame_of(1, FrameKind::kVote, 1))) == "error");
  // Delivering makes room again.
  Session room(2, 0, limits);
  for (Version v = 1; v < 5; ++v) {
    CHECK(arrivals_text(room.on_frame(1, frame_of(v, FrameKind::kVote, 80))) == "");
    CHECK(room.set_version(v).has_value());
  }
}

}  // namespace
}  // namespace starling::collectives
