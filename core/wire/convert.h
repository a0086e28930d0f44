#pragma once
// For the codec's sources only: each plain struct to and from its Cap'n Proto struct. write() needs
// a value within the limits (checked); read() notes in `r` what is wrong with the bytes.

#include <algorithm>
#include <array>
#include <string>

#include "core/wire/control.capnp.h"
#include "core/wire/group_state.h"
#include "core/wire/messages.h"
#include "core/wire/plan.capnp.h"
#include "core/wire/raft.capnp.h"
#include "core/wire/reading.h"

namespace starling::wire {

// convert_plan.cpp
void write(const EpochId& in, schema::EpochId::Builder out);
void write(const Incarnation& in, schema::Incarnation::Builder out);
void write(const Digest& in, schema::Digest::Builder out);
void write(const StepRecord& in, schema::StepRecord::Builder out);
void write(const Join& in, schema::Join::Builder out);
void write(const Plan& in, schema::Plan::Builder out);
void write(const SegmentDigest& in, schema::SegmentDigest::Builder out);
void write(const Checkpoint& in, schema::Checkpoint::Builder out);
EpochId read(schema::EpochId::Reader in);
Incarnation read(schema::Incarnation::Reader in);
Digest read(schema::Digest::Reader in);
StepRecord read(schema::StepRecord::Reader in);
// Metrics; of more than kMetricsMax the first.
void write(const std::vector<double>& in, capnp::List<double>::Builder out);
std::vector<double> read(capnp::List<double>::Reader in, std::size_t most);
void read(Reading& r, schema::Join::Reader in, Join& out);
void read(Reading& r, schema::Plan::Reader in, Plan& out);
SegmentDigest read(Reading& r, schema::SegmentDigest::Reader in);
Checkpoint read(Reading& r, schema::Checkpoint::Reader in);

// convert_raft.cpp
void write(const RaftMessage& in, schema::RaftMessage::Builder out);
void write(const Entry& in, schema::Entry::Builder out);
void write(const GroupState& in, schema::GroupState::Builder out);
void read(Reading& r, schema::RaftMessage::Reader in, RaftMessage& out);
void read(Reading& r, schema::Entry::Reader in, Entry& out);
void read(Reading& r, schema::GroupState::Reader in, GroupState& out);

// convert_seats.cpp
void write(const Seats& in, capnp::List<schema::Seat>::Builder out);
void write(const ChangeAsked& in, schema::ChangeAsked::Builder out);
void write(const ChangeAnswered& in, schema::ChangeAnswered::Builder out);
void write(const CoordinatorAt& in, schema::CoordinatorAt::Builder out);
Seats read(Reading& r, capnp::List<schema::Seat>::Reader in);
ChangeAsked read(Reading& r, schema::ChangeAsked::Reader in);
ChangeAnswered read(Reading& r, schema::ChangeAnswered::Reader in);
CoordinatorAt read(Reading& r, schema::CoordinatorAt::Reader in);

// convert_admin.cpp
void write(const AdminAsked& in, schema::AdminAsked::Builder out);
void write(const AdminAnswered& in, schema::AdminAnswered::Builder out);
AdminAsked read(Reading& r, schema::AdminAsked::Reader in);
AdminAnswered read(Reading& r, schema::AdminAnswered::Reader in);

// convert_identity.cpp
void write(const Enrol& in, schema::Enrol::Builder out);
void write(const Enrolled& in, schema::Enrolled::Builder out);
Enrol read(Reading& r, schema::Enrol::Reader in);
Enrolled read(Reading& r, schema::Enrolled::Reader in);

// convert_control.cpp
void write(const Message& in, schema::Envelope::Body::Builder out);
void read(Reading& r, schema::Envelope::Body::Reader in, Message& out);

// Text as Cap'n Proto takes it. Lines for people are cut at the limit (cut() keeps UTF-8 whole);
// any other text that is too long is a bug of ours.
std::string cut(const std::string& text, std::size_t max);
capnp::Text::Reader text(const std::string& text, std::size_t max);

template <std::size_t n>
capnp::Data::Reader data(const std::array<std::uint8_t, n>& bytes) {
  return {bytes.data(), n};
}
template <std::size_t n>
void read_fixed(Reading& r, capnp::Data::Reader in, std::array<std::uint8_t, n>& out,
                const char* what) {
  if (r.need(in.size() == n, what)) std::copy(in.begin(), in.end(), out.begin());
}

}  // namespace starling::wire
