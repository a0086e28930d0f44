#pragma once
// Turns the words of core/wire/messages.h into bytes and back; the schema files beside this one are
// the protocol document. Pure functions, any thread.
//
// Encoding is for our own values: what is above a limit of core/wire/limits.h is a bug and ends the
// process, except lines of text for people, which are cut. Decoding is for what comes from outside:
// every size, enumerator, rank and range is checked, and whatever is wrong becomes an Error.

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/wire/group_state.h"
#include "core/wire/messages.h"

namespace starling {

Bytes encode(const Envelope& envelope);
// Encodes the same bytes without copying the body into an envelope.
Bytes encode(const JobId& job, const Incarnation& from, const Incarnation& to, const Message& body);

// Errors: kCorrupt the bytes or a value in them are wrong; kStale a kind of message or a version of
// the protocol that this build does not know.
Result<Envelope> decode(ByteView message);

// Reads an envelope whose body is an Enrol, and nothing of any other body: all that the owner of a key that is not
// known may say. Errors: as decode(); kStale also for any other message.
Result<Envelope> decode_enrol(ByteView message);

// The receiver of an envelope, without decoding its body: costs the checksum only.
struct EnvelopeHead {
  JobId job{};
  Incarnation from;
  Incarnation to;
};
Result<EnvelopeHead> decode_head(ByteView message);

// An Entry is what Raft orders; this is also the form on disk.
Bytes encode_entry(const Entry& entry);
Result<Entry> decode_entry(ByteView bytes);

// The data of a Raft snapshot.
Bytes encode_group(const GroupState& state);
Result<GroupState> decode_group(ByteView bytes);

// The parts of a plan that follow from nothing outside it: sizes within limits, ranks below the
// number of members, moves within the segments. Empty when all hold, else one line that says what
// does not.
std::string plan_fault(const Plan& plan);

}  // namespace starling
